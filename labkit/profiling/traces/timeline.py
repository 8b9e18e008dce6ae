"""What happened when: the calls of one step, by thread and stream, and what the allocator held meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from labkit.profiling.step_time import recorded_steps
from labkit.profiling.traces.nesting import ancestors
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
