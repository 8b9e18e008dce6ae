"""One small kernel in many shapes on a GPU, and what each counter says of it: in a paper, and on this machine."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

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
PUBLISHED = "recorded, published at EuroMLSys 2023"
"""Yousefzadeh-Asl-Miandoab, Robroek and Tözün, Profiling and Monitoring Deep Learning Training Tasks."""
_SQUARE = (
    (1, 1, 91, 0.2, 0.0),
    (128, 1024, 100, 25.5, 13.7),
    (1024, 1024, 99, 55.5, 38.7),
    (131072, 1, 100, 29.2, 1.4),
    (131072, 1024, 100, 99.5, 78.2),
)
"""Blocks, threads a block, and the paper's three counters in %, of a kernel that squares numbers."""


def square_kernel() -> pd.DataFrame:
    """What a GPU's counters said of a kernel that squares numbers, by its blocks and threads.

    Returns:
        Columns blocks, threads, gpu_utilisation, sm_active, sm_occupancy (all %), provenance, which names the source.
    """
    import pandas as pd

    return pd.DataFrame(_SQUARE, columns=["blocks", "threads", *COUNTERS]).assign(provenance=PUBLISHED)


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
        for blocks, threads, *_ in _SQUARE:
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
