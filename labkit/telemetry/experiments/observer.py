"""What looking costs: a load with each observer in turn, paired and interleaved, and a verdict that knows noise.

Run as a program, it prints the peak memory of a load under one observer.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.telemetry.sampler import Sampler

if TYPE_CHECKING:
    import pandas as pd

NOBODY = "nobody"
"""The name of looking not at all."""
CONFIDENCE = 0.95
MOST_STEPS = 200
"""Of a turn: a profiler keeps every operation in memory until its turn ends."""
SAMPLER_HZ = (1, 10, 100)


@dataclass(frozen=True)
class Observer:
    """Something that looks while a load runs."""

    name: str
    watching: Callable[[], AbstractContextManager] = contextlib.nullcontext
    """Makes the context in which it looks."""
    why_not: str | None = None
    """Why it cannot look here."""


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
    ]
    return [Observer(NOBODY), *samplers, *loops, *profilers]


def loads() -> dict[str, Callable[[], object]]:
    """A light and a heavy load: a training step of a small and of a larger network."""
    return {"light": _training_step(32, 64), "heavy": _training_step(1024, 512)}


def observe(
    load: Callable[[], object],
    by: Sequence[Observer],
    *,
    rounds: int = 12,
    seconds: float = 0.3,
    seed: int = 0,
) -> pd.DataFrame:
    """Run a load under each observer, all of them in every round, in an order that is drawn anew each time.

    Args:
        load: called again and again; one call is a step.
        by: the observers; those that cannot look here are left out.
        rounds: how often each takes its turn.
        seconds: of a turn; starting and ending an observer does not count.
        seed: of the orders.

    Returns:
        Columns observer, round, step_time_ms and provenance.
    """
    import pandas as pd

    able = [observer for observer in by if observer.why_not is None]
    load()  # what is made at the first call is not the load
    steps = min(MOST_STEPS, max(3, round(seconds / _seconds_of(load, 3) * 3)))
    order, rows = random.Random(seed), []
    for number in range(rounds):
        for observer in order.sample(able, len(able)):
            with observer.watching():
                load()
                taken = _seconds_of(load, steps)
            rows.append((observer.name, number, 1000 * taken / steps, "measured"))
    return pd.DataFrame(rows, columns=["observer", "round", "step_time_ms", "provenance"])


def overhead(observed: pd.DataFrame) -> pd.DataFrame:
    """How many times as long a step takes under each observer as under nobody, from pairs of one round.

    Returns:
        Columns observer, ratio (geometric mean over the rounds), low, high (95 % confidence interval, Student's t on
        the logarithms), verdict and provenance; the cheapest first.
    """
    import numpy as np
    import pandas as pd
    from scipy.stats import t as student

    times = observed.pivot(index="round", columns="observer", values="step_time_ms")
    rows = []
    for name in observed["observer"].unique():
        if name == NOBODY:
            continue
        logs = np.log(times[name] / times[NOBODY])
        half = student.ppf((1 + CONFIDENCE) / 2, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
        low, high = math.exp(logs.mean() - half), math.exp(logs.mean() + half)
        rows.append((name, math.exp(logs.mean()), low, high, _verdict(low, high), "measured"))
    columns = ["observer", "ratio", "low", "high", "verdict", "provenance"]
    return pd.DataFrame(rows, columns=columns).sort_values("ratio", ignore_index=True)


def peak_memory_bytes(load: str, observer: str, steps: int = 1000) -> int:
    """Most memory that a process of its own held which ran so many steps of a load of `loads` under an observer.

    What one observer leaves in a process would count for the next.
    """
    command = [sys.executable, "-m", "labkit.telemetry.experiments.observer", load, observer, str(steps)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def _verdict(low: float, high: float) -> str:
    if low <= 1 <= high:
        return "not distinguishable from noise"
    return f"{abs(100 * (math.sqrt(low * high) - 1)):.1f} % {'slower' if low > 1 else 'faster'}"


def _seconds_of(load: Callable[[], object], steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        load()
    return time.perf_counter() - began


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


def _training_step(batch_size: int, width: int) -> Callable[[], object]:
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    model.to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(batch_size, width, device=device), torch.randn(batch_size, 1, device=device)

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimiser.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def _main(load: str, observer: str, steps: str) -> None:
    """Print the peak memory of this process after so many steps of the load under the observer."""
    step, by = loads()[load], next(each for each in observers() if each.name == observer)
    with by.watching():
        for _ in range(int(steps)):
            step()
    print(_peak_bytes())


def _peak_bytes() -> int:
    """The most memory that this process held."""
    with contextlib.suppress(OSError):
        # not getrusage's, which begins with that of the process that started this one
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import psutil

    memory = psutil.Process().memory_info()
    return getattr(
        memory, "peak_wset", memory.rss
    )  # Windows tells its peak; elsewhere that of now is the best there is


if __name__ == "__main__":
    _main(*sys.argv[1:])
