"""Who looks while a program runs: samplers, commands that ask again and again, and profilers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from labkit.telemetry.sampler import Sampler

NOBODY = "nobody"
"""The name of looking not at all."""
NOBODY_OUTSIDE = "nobody, a process of its own"
"""What an observer that starts the program is compared with."""
SAMPLER_HZ = (1, 10, 100)


@dataclass(frozen=True)
class Observer:
    """Something that looks while a load runs."""

    name: str
    watching: Callable[[], AbstractContextManager] = contextlib.nullcontext
    """Makes the context in which it looks."""
    why_not: str | None = None
    """Why it cannot look here."""
    around: Callable[[Path], list[str]] | None = None
    """Where it must start the program itself: the command before the program's, which may write into a folder."""


def observers() -> list[Observer]:
    """Every observer that labkit knows, nobody first; those that cannot look here say why."""
    nsys = shutil.which("nsys")
    return [
        Observer(NOBODY),
        *(Observer(f"labkit's sampler, {hz} Hz", partial(_sampler, hz)) for hz in SAMPLER_HZ),
        _loop("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv", "-l", "1"),
        _loop("dcgmi", "dmon", "-e", "1002,1003", "-d", "1000"),
        Observer("torch.profiler", _profiler),
        Observer("torch.profiler, shapes", partial(_profiler, record_shapes=True)),
        Observer("torch.profiler, stacks", partial(_profiler, with_stack=True)),
        Observer("torch.profiler, memory", partial(_profiler, profile_memory=True)),
        # NVIDIA Nsight Systems, as its command line profiles by default
        Observer("nsys", around=lambda folder: [nsys, "profile", "--output", str(folder / "report")])
        if nsys
        else Observer("nsys", why_not="nsys is not on PATH"),
    ]


@contextlib.contextmanager
def _sampler(hz: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, Sampler(Path(folder), hz=hz):
        yield


def _loop(tool: str, *arguments: str) -> Observer:
    name, path = f"{tool} every second", shutil.which(tool)
    if path is None:
        return Observer(name, why_not=f"{tool} is not on PATH")

    @contextlib.contextmanager
    def watching() -> Iterator[None]:
        nowhere = subprocess.DEVNULL
        with subprocess.Popen([path, *arguments], stdout=nowhere, stderr=nowhere) as process:
            try:
                yield
            finally:
                process.terminate()

    return Observer(name, watching)


@contextlib.contextmanager
def _profiler(**options: bool) -> Iterator[None]:
    from torch.profiler import profile

    # Kineto's library writes to standard error at each start, end and allocation
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with profile(**options):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
