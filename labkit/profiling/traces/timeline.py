"""What ran when in one step, on each thread of the host and each stream of a device."""

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
    width = len(str(len(lanes)))  # so that they sort as numbers do
    names = {lane: f"thread {number:0{width}}" for number, lane in enumerate(lanes, start=1)}
    names |= {lane: _stream(lane) for lane in device["lane"].unique()}
    import pandas as pd

    frame = pd.concat([_rows(host, names), _rows(device, names)], ignore_index=True)
    frame["start_us"] -= begin
    longest = frame["duration_us"].nlargest(MOST_EVENTS).index
    return frame.loc[longest].sort_values(["lane", "start_us"], ignore_index=True)


def _rows(events: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    lanes = events["lane"].astype(str).map(names)
    levels = np.where(events["level"] > 0, ", level " + events["level"].astype(str), "")
    return events.assign(
        lane=lanes.astype(str) + levels,
        kind=events["category"].astype(str).map(KINDS).fillna("copy or fill"),
        name=events["name"].astype(str),
    )[["lane", "kind", "name", "start_us", "duration_us"]]


def _stream(lane: str) -> str:
    device, _, stream = lane.partition("/")
    return f"GPU {device} {stream if stream.startswith('stream') else f'stream {stream}'}"
