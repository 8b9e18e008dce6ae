"""What looking costs: a load with each observer in turn, paired and interleaved, and a verdict that knows noise.

Observers are samplers, commands that ask again and again, and profilers. Run as a program, it is a process of its own
that runs a load under one of them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from labkit.errors import UserError
from labkit.process.silence import silenced
from labkit.telemetry.experiments.busy import PUBLISHED
from labkit.telemetry.memory import own_peak_bytes
from labkit.telemetry.sampler import Sampler

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
_ALONE_S, _MNIST_S = (48.7, 48.3), {"nvidia-smi": (48.1, 48.4), "dcgmi": (48.4,), "nsys": (49.4,)}
"""A paper's seconds of five epochs of an MNIST CNN alone and under each observer, run by run (`PUBLISHED`)."""


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
    """Every observer that labkit knows, nobody first; those that cannot look here say why."""
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


def observe(
    load: str, by: Sequence[Observer], *, rounds: int = 12, seconds: float = 0.3, seed: int = 0
) -> pd.DataFrame:
    """Run a load under each observer, all of them in every round, in an order that is drawn anew each time.

    An observer that must start the program has a process of its own each time, and so has nobody beside it. One that
    is there but cannot look, as profilers in many containers cannot, is left out with a warning.

    Args:
        load: "light" or "heavy".
        by: the observers.
        rounds: how often each takes its turn.
        seconds: of a turn; starting and ending an observer does not count.
        seed: of the orders.

    Returns:
        Columns observer, beside (whom it is compared with), round, step_time_ms and provenance.
    """
    import pandas as pd

    able = []
    for observer in by:
        try:
            if observer.why_not is None:
                if observer.around:
                    _of_a_process(load, observer, 1)
                able.append(observer)
        except UserError as error:
            warnings.warn(f"{error} It is left out.", stacklevel=2)
    if any(observer.around for observer in able):
        able.append(Observer(NOBODY_OUTSIDE, around=()))
    step = _make_load(load)
    steps = min(MOST_STEPS, max(3, round(1000 * seconds / _step_time_ms(step, Observer(NOBODY), 3))))
    order, rows = random.Random(seed), []
    for number in range(rounds):
        for observer in order.sample(able, len(able)):
            if observer.around is None:
                beside, step_time_ms = NOBODY, _step_time_ms(step, observer, steps)
                gc.collect()  # what a profiler wrote down hangs together in circles
            else:
                beside, step_time_ms = NOBODY_OUTSIDE, _of_a_process(load, observer, steps)["step_time_ms"]
            rows.append((observer.name, beside, number, step_time_ms, "measured"))
    return pd.DataFrame(rows, columns=["observer", "beside", "round", "step_time_ms", "provenance"])


def overhead(observed: pd.DataFrame) -> pd.DataFrame:
    """How many times as long a step takes under each observer as under nobody, from pairs of one round.

    Returns:
        Columns observer, ratio (geometric mean over the rounds), low, high (95 % confidence interval, Student's t on
        the logarithms), verdict and provenance; the cheapest first.
    """
    import numpy as np
    import pandas as pd
    from scipy.stats import ttest_1samp

    times = observed.pivot(index="round", columns="observer", values="step_time_ms")
    rows = []
    for name, beside in observed[["observer", "beside"]].drop_duplicates().itertuples(index=False):
        if name == beside:
            continue
        logs = np.log(times[name] / times[beside])
        ratio, (low, high) = math.exp(logs.mean()), np.exp(ttest_1samp(logs, 0).confidence_interval(0.95))
        verdict = f"{abs(100 * (ratio - 1)):.1f} % {'slower' if low > 1 else 'faster'}"
        verdict = "not distinguishable from noise" if low <= 1 <= high else verdict
        rows.append((name, ratio, low, high, verdict, "measured"))
    columns = ["observer", "ratio", "low", "high", "verdict", "provenance"]
    return pd.DataFrame(rows, columns=columns).sort_values("ratio", ignore_index=True)


def peak_memory_bytes(load: str, observer: Observer, steps: int = 1000) -> int:
    """Most memory that a process of its own held which ran so many steps of a load under an observer.

    What an observer holds in a process of its own, as a sampler does, does not count.
    """
    return _of_a_process(load, observer, steps)["peak_memory_bytes"]


def observer_ratios() -> pd.DataFrame:
    """What a paper found: the time of a training under each observer, of that under none.

    Returns:
        Columns observer, ratio, low, high (the least and greatest of the pairs of runs that it gives) and provenance.
    """
    import pandas as pd

    rows = [
        (name, mean(own) / mean(_ALONE_S), min(own) / max(_ALONE_S), max(own) / min(_ALONE_S), PUBLISHED)
        for name, own in _MNIST_S.items()
    ]
    return pd.DataFrame(rows, columns=["observer", "ratio", "low", "high", "provenance"])


def _absent(tool: str) -> str | None:
    return None if shutil.which(tool) else f"{tool} is not on PATH"


@contextlib.contextmanager
def _sampler(hz: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, Sampler(Path(folder), hz=hz):
        yield


def _loop(*command: str) -> Observer:
    @contextlib.contextmanager
    def watching() -> Iterator[None]:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()

    return Observer(f"{command[0]} every second", watching, _absent(command[0]))


@contextlib.contextmanager
def _profiler(**options: bool) -> Iterator[None]:
    from torch.profiler import profile

    # Kineto's library writes to standard error at each start, end and allocation
    with silenced(), profile(**options):
        yield


def _of_a_process(load: str, observer: Observer, steps: int) -> dict[str, float]:
    inside = observer.name if observer.around is None else NOBODY
    program = [sys.executable, "-m", "labkit.telemetry.experiments.observer_effect", load, inside, str(steps)]
    command = [*(observer.around or ()), *program]
    with tempfile.TemporaryDirectory() as folder:  # for a report
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S, cwd=folder)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"The load did not end within {LONGEST_S:g} s under {observer.name}.") from error
    # an observer around it says what it does, too
    told = [line for line in run.stdout.splitlines() if line.startswith('{"step_time_ms"')]
    if run.returncode or not told:
        said = (run.stderr or run.stdout).strip().splitlines()
        raise UserError(f"The load failed under {observer.name}: {said[-1] if said else 'it says nothing'}.")
    return json.loads(told[-1])


def _make_load(name: str) -> Callable[[], object]:
    """A training step of a small ("light") or of a larger ("heavy") network; what is made at its first call is made."""
    import torch
    from torch import nn

    batch_size, width = LOADS[name]
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

    step()
    return step


def _step_time_ms(step: Callable[[], object], by: Observer, steps: int) -> float:
    with by.watching():
        step()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        return 1000 * (time.perf_counter() - began) / steps


if __name__ == "__main__":
    _, load, name, steps = sys.argv
    by = next(each for each in observers() if each.name == name)
    step_time_ms = _step_time_ms(_make_load(load), by, int(steps))
    print(json.dumps({"step_time_ms": step_time_ms, "peak_memory_bytes": own_peak_bytes()}), flush=True)
