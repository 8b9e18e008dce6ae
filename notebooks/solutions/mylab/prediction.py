"""What I wrote; the checks of the course keep it here. Change it as you like, and check it again."""

# --- 60.roofline
def kernel_us(flop: float, moved: float, gflop_per_s: float, gb_per_s: float, call_us: float) -> float:
    """The least time of an operator, in microseconds."""
    return call_us + max(flop / gflop_per_s, moved / gb_per_s) / 1e3

# --- 60.walk
from collections.abc import Sequence

Call = tuple[str, float, int | None, int | None]
Kernel = tuple[str, float, Sequence[int]]


def walk(calls: Sequence[Call], kernels: Sequence[Kernel], without: Sequence[str] = ()) -> float:
    """When the host and all kernels are done, in microseconds."""
    host, ends, free = 0.0, [], {}
    for kind, took, launches, waits_for in calls:
        if kind not in without:
            host += took
        if launches is not None:
            stream, lasts, after = kernels[launches]
            start = max([host, free.get(stream, 0.0), *(ends[other] for other in after)])
            ends.append(start + lasts)
            free[stream] = ends[-1] + 1.0
        if waits_for is not None:
            host = max(host, ends[waits_for])
    return max([host, *ends])
