"""One small kernel in many shapes on a GPU, and what each counter says of it: the paper's sweep on this machine."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from labkit.telemetry.experiments.published import square_kernel

if TYPE_CHECKING:
    import pandas as pd

KERNEL = r"""
extern "C" __global__ void square(const float* x, float* y, int n, int repeats) {
    for (int r = 0; r < repeats; ++r)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            y[i] = x[i] * x[i];
}
"""
NUMBERS = 2**20
READ_HZ = 5.0
COUNTERS = ("gpu_utilisation", "sm_active", "sm_occupancy")


def sweep(seconds: float, device: str = "cuda:0") -> pd.DataFrame:
    """Run the kernel in each shape of the paper for so long and read the GPU meanwhile.

    Args:
        seconds: of each shape; the driver's utilisation is an average over up to one second, so give two or more.
        device: as torch names it.

    Returns:
        As `square_kernel`, measured here: the median of each counter, NaN where the GPU does not have it.
    """
    import pandas as pd
    import torch

    from labkit.hardware.devices import get_devices
    from labkit.telemetry.sources.machine import open_ladder

    gpu = next(each for each in get_devices() if each.torch_name == device)
    rows = []
    with torch.cuda.device(device), open_ladder(None, [gpu], READ_HZ, lambda kind, what: None) as ladder:
        square = torch.cuda._compile_kernel(KERNEL, "square")
        x = torch.rand(NUMBERS, device=device)
        y = torch.empty_like(x)
        for shape in square_kernel()[["blocks", "threads"]].itertuples(index=False):
            seen: dict[str, list[float]] = {name: [] for name in COUNTERS}
            began = read_at = time.monotonic()
            list(ladder.read())  # averages are over the time since the reading before
            while time.monotonic() - began < seconds:
                # a thousand numbers a thread at most, so that the smallest shape ends, too
                count = min(NUMBERS, 1000 * shape.blocks * shape.threads)
                square((shape.blocks, 1, 1), (shape.threads, 1, 1), (x, y, count, 100))
                torch.cuda.synchronize()
                if time.monotonic() - read_at >= 1 / READ_HZ:
                    read_at = time.monotonic()
                    for reading in ladder.read():
                        if reading.counter in seen and reading.value is not None:
                            seen[reading.counter].append(reading.value)
            middle = {name: median(values) if values else float("nan") for name, values in seen.items()}
            rows.append({"blocks": shape.blocks, "threads": shape.threads, **middle, "provenance": "measured"})
    return pd.DataFrame(rows)
