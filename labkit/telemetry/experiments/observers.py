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
    samplers = [Observer(f"labkit's sampler, {hz} Hz", _sampler(hz)) for hz in SAMPLER_HZ]
    loops = [
        _command("nvidia-smi every second", ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv", "-l", "1"]),
        _command("dcgmi every second", ["dcgmi", "dmon", "-e", "1002,1003", "-d", "1000"]),
    ]
    profilers = [
        Observer("torch.profiler", _profiler()),
        Observer("torch.profiler, shapes", _profiler(record_shapes=True)),
        Observer("torch.profiler, stacks", _profiler(with_stack=True)),
        Observer("torch.profiler, memory", _profiler(profile_memory=True)),
        _nsys(),
    ]
    return [Observer(NOBODY), *samplers, *loops, *profilers]


def _sampler(hz: int) -> Callable[[], AbstractContextManager]:
    @contextlib.contextmanager
    def watching() -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder, Sampler(Path(folder), hz=hz):
            yield

    return watching


def _command(name: str, command: list[str]) -> Observer:
    path = shutil.which(command[0])
    if path is None:
        return Observer(name, why_not=f"{command[0]} is not on PATH")

    @contextlib.contextmanager
    def watching() -> Iterator[None]:
        with subprocess.Popen([path, *command[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()

    return Observer(name, watching)


def _nsys() -> Observer:
    """NVIDIA Nsight Systems, as its command line profiles by default."""
    path = shutil.which("nsys")
    if path is None:
        return Observer("nsys", why_not="nsys is not on PATH")
    return Observer("nsys", around=lambda folder: [path, "profile", "--output", str(folder / "report")])


def _profiler(**options: bool) -> Callable[[], AbstractContextManager]:
    @contextlib.contextmanager
    def watching() -> Iterator[None]:
        from torch.profiler import profile

        with _quiet(), profile(**options):
            yield

    return watching


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send to nowhere what Kineto's library writes to standard error at each start, end and allocation."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
