"""Counters that a paper published, for machines that cannot measure them."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "EuroMLSys 2023"
"""Yousefzadeh-Asl-Miandoab, Robroek and Tözün, Profiling and Monitoring Deep Learning Training Tasks."""
_SQUARE = (
    (1, 1, 91, 0.002, 0.000),
    (128, 1024, 100, 0.255, 0.137),
    (1024, 1024, 99, 0.555, 0.387),
    (131072, 1, 100, 0.292, 0.014),
    (131072, 1024, 100, 0.995, 0.782),
)
"""blocks, threads a block, utilisation in %, SM activity and SM occupancy as shares: a kernel that squares numbers."""


def square_kernel() -> pd.DataFrame:
    """What a GPU's counters said of a kernel that squares numbers, by its blocks and threads.

    Returns:
        Columns blocks, threads, gpu_utilisation, sm_active, sm_occupancy (all %), provenance, which names the source.
    """
    import pandas as pd

    frame = pd.DataFrame(_SQUARE, columns=["blocks", "threads", "gpu_utilisation", "sm_active", "sm_occupancy"])
    frame[["sm_active", "sm_occupancy"]] *= 100
    return frame.assign(provenance=f"recorded, published at {SOURCE}")


_MNIST_S = {"baseline": (48.7, 48.3), "nvidia-smi": (48.1, 48.4), "dcgmi": (48.4,), "nsys": (49.4,)}
"""Seconds of five epochs of an MNIST CNN under each observer, run by run."""


def observer_ratios() -> pd.DataFrame:
    """What a paper found: the time of a training under each observer, of that under none.

    Returns:
        Columns observer, ratio, low, high (the least and greatest of the pairs of runs that it gives) and provenance.
    """
    import pandas as pd

    base = _MNIST_S["baseline"]
    rows = [
        (name, mean(own) / mean(base), min(own) / max(base), max(own) / min(base))
        for name, own in _MNIST_S.items()
        if own is not base
    ]
    frame = pd.DataFrame(rows, columns=["observer", "ratio", "low", "high"])
    return frame.assign(provenance=f"recorded, published at {SOURCE}")
