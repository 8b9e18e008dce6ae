"""What the allocator held over time, and which tensors lived when it held most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from labkit.profiling.traces.nesting import innermost
from labkit.profiling.traces.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


def memory_over_time(trace: Trace) -> pd.DataFrame:
    """What was allocated since the recording began: what was there before, the weights for one, is not in it.

    Returns:
        Columns time_us, device (−1: the host), held_bytes; empty where memory was not recorded.
    """
    allocations = trace.allocations
    held = allocations["bytes"].astype("int64").groupby(allocations["device"]).cumsum()
    return allocations[["time_us", "device"]].assign(held_bytes=held)


def alive_at_peak(trace: Trace) -> pd.DataFrame:
    """The tensors that made up the peak, of the device or the host where it is higher, the largest first.

    Returns:
        Columns bytes, allocated_us (when), operator (in which, with the operator that called it), freed_us (NaN: not
        while it was recorded); the bytes add up to the peak.
    """
    import pandas as pd

    columns = ["bytes", "allocated_us", "operator", "freed_us"]
    held = memory_over_time(trace)
    if held.empty:
        return pd.DataFrame(columns=columns)
    device = held.loc[held["held_bytes"].idxmax(), "device"]
    own = trace.allocations[trace.allocations["device"] == device]
    peak = held.loc[own.index, "held_bytes"].idxmax()
    alive: dict[int, list[float]] = {}
    freed_before = 0
    for time_us, size, address, is_before in zip(
        own["time_us"], own["bytes"], own["address"], own.index <= peak, strict=True
    ):
        if is_before and size > 0:
            alive[address] = [size, time_us, np.nan]
        elif is_before and alive.pop(address, None) is None:
            freed_before -= size  # of what was there before the recording
        elif size < 0 and address in alive and np.isnan(alive[address][2]):
            alive[address][2] = time_us
    frame = pd.DataFrame(list(alive.values()), columns=["bytes", "allocated_us", "freed_us"])
    frame["operator"] = _operators_at(trace, frame["allocated_us"].to_numpy())
    frame = frame.sort_values("bytes", ascending=False, ignore_index=True)[columns]
    if freed_before:
        frame.loc[len(frame)] = [-freed_before, np.nan, "(freed since, allocated before the recording)", np.nan]
    return frame


def _operators_at(trace: Trace, times_us: np.ndarray) -> list[str]:
    """The innermost operator at each moment, and the outermost one around it."""
    parents = trace.events["parent"].to_numpy()
    is_operator = (trace.events["category"] == "cpu_op").to_numpy()
    names = trace.events["name"].astype(str)
    found = []
    for row in innermost(trace.events[is_operator], parents, times_us).tolist():
        outer = row
        while parents[outer] >= 0 and is_operator[parents[outer]]:
            outer = parents[outer]
        around = "" if outer == row else f" in {names[outer]}"
        found.append(f"{names[row]}{around}" if row >= 0 else "outside of operators")
    return found
