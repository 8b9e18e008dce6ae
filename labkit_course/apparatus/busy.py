"""Loads that all keep a core or a GPU busy and do very different amounts of work, watched by the same counters.

What a utilisation says: that something ran. What it does not say: that it computed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from labkit.compiled import why_not_compiled
from labkit.hardware import one_thread

if TYPE_CHECKING:
    import pandas as pd

COPIED_BYTES = 2**27
SIZE = 512
"""Rows and columns of the matrices multiplied."""
TURN_S = 0.05
"""About how long a load works between two looks at the clock."""
KERNEL = r"""
extern "C" __global__ void square(const float* x, float* y, int n, int repeats) {
    for (int r = 0; r < repeats; ++r)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            y[i] = x[i] * x[i];
}
"""
NUMBERS = 2**20
READ_HZ = 5.0
COUNTERS = {
    "gpu_utilisation": "GPU utilisation",
    "graphics_active": "GRACT",
    "sm_active": "SM activity",
    "sm_occupancy": "SM occupancy",
}
"""Of a GPU, and what figures call them"""


class Load(NamedTuple):
    """Something that keeps a core busy."""

    name: str
    what: str
    """Its description."""
    work: Callable[[], tuple[float, float]]
    """Does a turn of it; its floating-point operations, and the bytes that it asked for."""


def watch(
    loads: Sequence[Load], times: pd.DataFrame, peak_gflops: float, best_gb_per_s: float, seconds: float = 1.0
) -> pd.DataFrame:
    """The utilisation of a core while each load runs on it, and the work that it does in that time.

    Args:
        loads: each runs for `seconds`.
        times: seconds per call of each load's work, a column each (`labkit_course.paired_times`).
        peak_gflops: the most that one core does.
        best_gb_per_s: the most that one core moves.
        seconds: for which the utilisation is watched.

    Returns:
        A row per load: load, what, cpu_percent (of one core), gflops, gb_per_s, share_of_peak and share_of_bandwidth
        (%), provenance.
    """
    import pandas as pd

    rows = []
    for load in loads:
        done = np.array(load.work()) / times[load.name].median() / 1e9
        shares = 100 * done / (peak_gflops, best_gb_per_s)
        rows.append((load.name, load.what, _cpu_percent(load, seconds), *done, *shares, "measured"))
    names = "load what cpu_percent gflops gb_per_s share_of_peak share_of_bandwidth provenance"
    return pd.DataFrame(rows, columns=names.split())


def _cpu_percent(load: Load, seconds: float) -> float:
    from labkit.telemetry import ProcessCounters

    process = ProcessCounters(os.getpid(), apart=set())
    with one_thread():
        list(process.read())
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            load.work()
        return next(reading.value or 0.0 for reading in process.read() if reading.counter == "cpu_percent")


def loads(places: np.ndarray) -> list[Load]:
    """Four loads, the emptiest first.

    Args:
        places: (N,) says at each place where to read next, for the chase.
    """
    return [_spin(), _chase(places), _copy(), _product()]


def _spin() -> Load:
    def work() -> tuple[float, float]:
        until = time.perf_counter() + TURN_S
        while time.perf_counter() < until:
            pass
        return 0, 0

    return Load("spin", "asks for the time again and again", work)


def chase(places: np.ndarray, at: int, steps: int) -> int:
    """Follow `places` (N,) from `at` for `steps` steps."""
    for _ in range(steps):
        at = places[at]
    return int(at)


def _chase(places: np.ndarray) -> Load:
    places = np.asarray(places, np.int64)
    follow, steps, how = chase, 20_000, ", interpreted"
    if why_not_compiled() is None:
        from numba import njit

        follow, steps, how = njit(cache=True)(chase), 500_000, ""
    at = 0

    def work() -> tuple[float, float]:
        nonlocal at
        at = follow(places, at, steps)
        return 0, steps * places.itemsize

    return Load("chase", f"reads where to read next, all over {places.nbytes >> 20} MiB{how}", work)


def _copy() -> Load:
    source = np.ones(COPIED_BYTES // 8)
    target = np.empty_like(source)

    def work() -> tuple[float, float]:
        np.copyto(target, source)
        return 0, 2 * source.nbytes

    return Load("copy", f"copies {source.nbytes >> 20} MiB", work)


def _product() -> Load:
    import torch

    a, b = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    out = torch.empty(SIZE, SIZE)

    def work() -> tuple[float, float]:
        for _ in range(10):
            torch.mm(a, b, out=out)
        return 10 * 2 * SIZE**3, 10 * 3 * 4 * SIZE**2

    return Load("product", f"multiplies matrices of {SIZE} × {SIZE}, fp32", work)


def sweep(shapes: Sequence[tuple[int, int]], seconds: float) -> pd.DataFrame:
    """Run a kernel that squares numbers in each shape for some seconds on the first GPU, and read it meanwhile.

    Args:
        shapes: blocks, and threads a block.
        seconds: of each shape; the driver's utilisation is an average over up to one second, so give two or more.

    Returns:
        Columns blocks, threads, those of COUNTERS (%, the median; NaN where the GPU does not have it), provenance.
    """
    import pandas as pd
    import torch

    from labkit.hardware import get_devices
    from labkit.telemetry import open_ladder

    gpu = next(each for each in get_devices() if each.torch_name == "cuda:0")
    rows = []
    with torch.cuda.device(0), open_ladder(None, [gpu], READ_HZ, lambda kind, what: None) as ladder:
        square = torch.cuda._compile_kernel(KERNEL, "square")
        x = torch.rand(NUMBERS, device="cuda")
        y = torch.empty_like(x)
        for blocks, threads in shapes:
            seen: dict[str, list[float]] = {name: [] for name in COUNTERS}
            began = read_at = time.monotonic()
            list(ladder.read())  # averages are over the time since the reading before
            while time.monotonic() - began < seconds:
                # a thousand numbers a thread at most, so that the smallest shape ends, too
                square((blocks, 1, 1), (threads, 1, 1), (x, y, min(NUMBERS, 1000 * blocks * threads), 100))
                torch.cuda.synchronize()
                if time.monotonic() - read_at >= 1 / READ_HZ:
                    read_at = time.monotonic()
                    for reading in ladder.read():
                        if reading.counter in seen and reading.value is not None:
                            seen[reading.counter].append(reading.value)
            middle = {name: median(values) if values else float("nan") for name, values in seen.items()}
            rows.append({"blocks": blocks, "threads": threads, **middle, "provenance": "measured"})
    return pd.DataFrame(rows)
