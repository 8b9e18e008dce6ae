"""What happened when: the calls of one step, by thread and stream, and what the allocator held meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from labkit.profiling.step_time import recorded_steps
from labkit.profiling.traces.nesting import ancestors, innermost
from labkit.profiling.traces.trace import ON_THE_DEVICE, ON_THE_HOST, Trace

if TYPE_CHECKING:
    import pandas as pd

DEEPEST = 6
"""Calls within calls that have a line of their own."""
MOST_EVENTS = 3000
"""Of a timeline; the longest ones."""
KINDS = {"user_annotation": "annotation", "cpu_op": "operator", "kernel": "kernel"}


def timeline(trace: Trace) -> pd.DataFrame:
    """The events of the step of median length.

    Returns:
        Columns lane ("thread 1", "thread 1, level 2", "GPU 0 stream 7"), kind ("annotation", "operator", "kernel",
        "copy or fill"), name, start_us (since the step began), duration_us; the order is that of the lanes.

    Raises:
        UserError: the trace has no steps.
    """
    import pandas as pd

    events = trace.events
    steps = recorded_steps(trace)
    chosen = steps.iloc[steps["duration_us"].argsort().to_numpy()[len(steps) // 2]]
    begin, end = chosen["start_us"], chosen["start_us"] + chosen["duration_us"]
    inside = events[(events["start_us"] >= begin) & (events["start_us"] < end)]
    host = inside[inside["category"].isin(ON_THE_HOST)]
    depth = sum((above >= 0).astype(int) for above in ancestors(events["parent"].to_numpy()))
    host = host.assign(level=np.broadcast_to(depth, len(events))[host.index])
    host = host[host["level"] <= DEEPEST]
    device = inside[inside["category"].isin(ON_THE_DEVICE)].assign(level=0)
    lanes = sorted(host["lane"].astype(str).unique(), key=lambda lane: (lane != chosen["lane"], lane))
    names = {lane: f"thread {number}" for number, lane in enumerate(lanes, start=1)}
    for lane in device["lane"].unique():
        number, _, stream = lane.partition("/")
        names[lane] = f"GPU {number} stream {stream.removeprefix('stream ')}"
    shown = pd.concat([host, device], ignore_index=True).astype({"lane": str, "category": str, "name": str})
    levels = np.where(shown["level"] > 0, ", level " + shown["level"].astype(str), "")
    frame = pd.DataFrame(
        {
            "lane": shown["lane"].map(names) + levels,
            "kind": shown["category"].map(KINDS).fillna("copy or fill"),
            "name": shown["name"],
            "start_us": shown["start_us"] - begin,
            "duration_us": shown["duration_us"],
        }
    ).nlargest(MOST_EVENTS, "duration_us")
    return frame.sort_values(["lane", "start_us"], ignore_index=True)


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
