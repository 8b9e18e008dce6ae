"""What looking costs: a load with each observer in turn, in rounds, whose times lab 31 pairs.

Observers are samplers, commands that ask every second, and profilers. Run as a program, it is a process of its own
that runs a load under one of them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError, certain
from labkit.process import silenced
from labkit.telemetry import Sampler, own_peak_bytes

if TYPE_CHECKING:
    import pandas as pd

NOBODY, NOBODY_OUTSIDE = "nobody", "nobody, a process of its own"
"""Looking not at all, and what an observer that starts the program is compared with."""
LONGEST_S = 300.0
"""For a process of its own: its imports, the steps, and what a profiler writes at its end."""
MOST_STEPS = 200
"""Of a turn: a profiler keeps every operation in memory until its turn ends."""
LOADS = {"light": (32, 64), "heavy": (1024, 512)}
"""Samples a step, and width of the layers."""


@dataclass(frozen=True)
class Observer:
    """Something that looks while a load runs."""

    name: str
    watching: Callable[[], AbstractContextManager] = contextlib.nullcontext
    """Makes the context in which it looks."""
    why_not: str | None = None
    """Why it cannot look here."""
    around: Sequence[str] | None = None
    """Where it must start the program itself: the command before the program's."""


def observers() -> list[Observer]:
    """Every observer that labkit knows, the absent one first; those that cannot look here say why."""
    # NVIDIA Nsight Systems, as its command line profiles by default
    nsys = ["nsys", "profile", "--output", "report"]
    return [
        Observer(NOBODY),
        *(Observer(f"labkit's sampler, {hz} Hz", partial(_sampler, hz)) for hz in (1, 10, 100)),
        _loop("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv", "-l", "1"),
        _loop("dcgmi", "dmon", "-e", "1002,1003", "-d", "1000"),
        Observer("torch.profiler", _profiler),
        Observer("torch.profiler, shapes", partial(_profiler, record_shapes=True)),
        Observer("torch.profiler, stacks", partial(_profiler, with_stack=True)),
        Observer("torch.profiler, memory", partial(_profiler, profile_memory=True)),
        Observer("nsys", around=nsys, why_not=_absent("nsys")),
    ]


def observe(load: str, by: Sequence[Observer], *, rounds: int, seconds: float) -> pd.DataFrame:
    """Run a load under each observer, all of them in every round, in an order that is drawn again each time.

    An observer that must start the program has a process of its own each time, and so has the run that it is
    compared with. One that cannot look, as profilers in many containers cannot, is left out with a warning.

    Args:
        load: "light" or "heavy".
        by: the observers.
        rounds: how often each takes its turn.
        seconds: of a turn; starting and ending an observer does not count.

    Returns:
        Columns observer, baseline (what it is compared with), round, step_time_ms and provenance.
    """
    import pandas as pd

    able = []
    for observer in by:
        try:
            if observer.why_not is None:
                if observer.around:
                    whole_run(load, observer, 1)
                able.append(observer)
        except UserError as error:
            warnings.warn(f"{error} It is left out.", stacklevel=2)
    if any(observer.around for observer in able):
        able.append(Observer(NOBODY_OUTSIDE, around=()))
    step = _make_load(load)
    steps = min(MOST_STEPS, max(3, round(1000 * seconds / _step_time_ms(step, Observer(NOBODY), 3))))
    order, rows = random.Random(0), []
    for number in range(rounds):
        for observer in order.sample(able, len(able)):
            if observer.around is None:
                baseline, step_time_ms = NOBODY, _step_time_ms(step, observer, steps)
                gc.collect()  # what a profiler wrote down hangs together in circles
            else:
                baseline, step_time_ms = NOBODY_OUTSIDE, whole_run(load, observer, steps)["step_time_ms"]
            rows.append((observer.name, baseline, number, step_time_ms, "measured"))
    return pd.DataFrame(rows, columns=["observer", "baseline", "round", "step_time_ms", "provenance"])


def _absent(tool: str) -> str | None:
    return None if shutil.which(tool) else f"{tool} is not on PATH"


@contextlib.contextmanager
def _sampler(hz: float) -> Generator[None]:
    with tempfile.TemporaryDirectory() as folder, Sampler(Path(folder), hz=hz):
        yield


def _loop(*command: str) -> Observer:
    @contextlib.contextmanager
    def watching() -> Generator[None]:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()

    return Observer(command[0], watching, _absent(command[0]))


@contextlib.contextmanager
def _profiler(**options: Any) -> Generator[Any]:
    from torch.profiler import profile

    # Kineto's library writes to standard error at each start, end and allocation
    with silenced(), profile(**options) as looking:
        yield looking


def whole_run(load: str, observer: Observer, steps: int) -> dict[str, float]:
    """Run some steps of a load in a process of its own, with an observer from the first to the last.

    Returns:
        step_time_ms; peak_memory_bytes, the most that it held (what an observer holds in a process of its own, as a
        sampler does, does not count); and span_s from its start to its end, a profiler's report included.
    """
    inside = observer.name if observer.around is None else NOBODY
    program = [sys.executable, "-m", "labkit_course.apparatus.observer_effect", load, inside, str(steps)]
    command = [*(observer.around or ()), *program]
    with tempfile.TemporaryDirectory() as folder:  # for a report
        began = time.perf_counter()
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S, cwd=folder)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"The load did not end within {LONGEST_S:g} s under {observer.name}.") from error
        span_s = time.perf_counter() - began
    # an observer that started the program prints, too
    lines = [line for line in run.stdout.splitlines() if line.startswith('{"step_time_ms"')]
    if run.returncode or not lines:
        said = (run.stderr or run.stdout).strip().splitlines()
        raise UserError(f"The load failed under {observer.name}: {said[-1] if said else 'it says nothing'}.")
    return json.loads(lines[-1]) | {"span_s": span_s}


def _make_load(name: str) -> Callable[[], object]:
    """A training step of a small ("light") or of a larger ("heavy") network; what is made at its first call is made."""
    import torch
    from torch import nn

    batch_size, width = LOADS[name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    model.to(device)
    parameters = list(model.parameters())  # torch.optim would bring compilers in, 2 s of each process
    x, y = torch.randn(batch_size, width, device=device), torch.randn(batch_size, 1, device=device)

    def step() -> None:
        model.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for parameter in parameters:
                parameter.sub_(certain(parameter.grad), alpha=1e-3)
        if device == "cuda":
            torch.cuda.synchronize()

    step()
    return step


def _step_time_ms(step: Callable[[], object], by: Observer, steps: int, report: str | None = None) -> float:
    with by.watching() as looking:
        step()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        took_s = time.perf_counter() - began
    if report and looking is not None:
        looking.export_chrome_trace(report)
    return 1000 * took_s / steps


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)  # several wait for each other, and a disturbance of one holds up all
    _, load, name, steps = sys.argv
    by = next(each for each in observers() if each.name == name)
    step_time_ms = _step_time_ms(_make_load(load), by, int(steps), report="trace.json")
    print(json.dumps({"step_time_ms": step_time_ms, "peak_memory_bytes": own_peak_bytes()}), flush=True)
