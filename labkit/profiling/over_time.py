"""What happened when: what each call launched, how a device spent its time, one step along time, and memory.

Streams run in parallel: time in which several are busy counts once. The definitions are those of Holistic Trace
Analysis (Meta's HTA, get_temporal_breakdown), which itself rounds times to whole µs, counts records of waits as work,
and omits what the last step launched.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from labkit.profiling.step_time import recorded_steps
from labkit.profiling.trace import ON_THE_DEVICE, ON_THE_HOST, Trace, nest
from labkit.profiling.trace_file import TraceError
from labkit.profiling.work import operator_work

NO_COMPUTING = r"nccl.*Kernel|Memcpy|Memset"
"""Beginning of the names of kernels that communicate (NCCL and RCCL) or copy."""
DEEPEST = 6
"""Largest depth of calls within calls that a timeline shows."""
MOST_EVENTS = 3000
"""Largest number of events in a timeline; the longest ones are kept."""
KINDS = {"user_annotation": "annotation", "cpu_op": "operator", "kernel": "kernel"}


def ancestors(parent: np.ndarray) -> Iterator[np.ndarray]:
    """The row of each event's parent, of its parent's parent, and so on: (N,) each, −1 where there is none."""
    above = parent
    while (above >= 0).any():
        yield above
        above = np.where(above >= 0, parent[above], -1)


def within(marked: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Whether each event lies within a marked one, at any depth (N,)."""
    inside = np.zeros(len(marked), dtype=bool)
    for above in ancestors(parent):
        inside |= (above >= 0) & marked[above]
    return inside


def launched_us(trace: Trace) -> np.ndarray:
    """Run time of the kernels that each event of a trace, with everything it called, launched (N,)."""
    direct = launched_directly_us(trace)
    total = direct.copy()
    for above in ancestors(trace.events["parent"].to_numpy()):
        np.add.at(total, above[above >= 0], direct[above >= 0])
    return total


def launched_directly_us(trace: Trace) -> np.ndarray:
    """The same without what each event called (N,)."""
    events = trace.events
    kernels = events[events["category"].isin(ON_THE_DEVICE) & (events["correlation"] >= 0)]
    time_of = kernels.groupby("correlation")["duration_us"].sum()
    launches = events["category"].astype(str).str.endswith(("_runtime", "_driver"))
    launches &= events["correlation"].isin(time_of.index)
    nests = events[events["category"].isin(ON_THE_HOST) | launches]
    parent, _ = nest(nests)
    launches, found = launches[nests.index].to_numpy(), np.zeros(len(events))
    callers, times_us = parent[launches], time_of[nests.loc[launches, "correlation"]].to_numpy()
    while (is_call := (callers >= 0) & launches[callers]).any():
        callers = np.where(is_call, parent[callers], callers)  # a call of the runtime may launch by one of the driver
    np.add.at(found, nests.index.to_numpy()[callers[callers >= 0]], times_us[callers >= 0])
    return found


def device_breakdown(trace: Trace) -> pd.DataFrame:
    """How each device spent the time from the start of its first kernel to the end of its last.

    Returns:
        Columns device (its number), span_us, idle_us (no kernel, no copy), compute_us (at least one kernel computes),
        non_compute_us (only communication, copies and fills), which add up to the span, and their shares of it,
        idle_share, compute_share, non_compute_share; one row per device, none without a device.

    Raises:
        TraceError: the devices of kernels are not numbered as torch.profiler does it.
    """
    found = trace.events[trace.events["category"].isin(ON_THE_DEVICE)]
    lanes = found["lane"].astype(str)
    if not lanes.str.match(r"\d{1,9}/").all():
        raise TraceError(
            f"{trace.path}: some kernels have no device number as process id, which torch.profiler writes: their times "
            "cannot be assigned to devices. Record the trace with torch.profiler."
        )
    computes = (found["category"] == "kernel") & ~found["name"].astype(str).str.match(NO_COMPUTING)
    rows = []
    # Kineto's process of such an event is the device, its thread the stream
    for device, work in found.assign(computes=computes).groupby(lanes.str.split("/").str[0].astype(int)):
        moments = np.concatenate([work["start_us"], work["start_us"] + work["duration_us"]])
        begin = np.stack([np.ones(len(work), int), work["computes"].astype(int)])  # (2, N): anything, and computing
        order = np.argsort(moments, kind="stable")
        works, computing = np.cumsum(np.concatenate([begin, -begin], axis=1)[:, order], axis=1)[:, :-1] > 0
        lasts = np.diff(moments[order])
        times = (lasts[which].sum() for which in (~works, computing, works & ~computing))
        rows.append((device, lasts.sum(), *times))
    parts = ("idle", "compute", "non_compute")
    frame = pd.DataFrame(rows, columns=["device", "span_us", *(f"{part}_us" for part in parts)])
    for part in parts:
        frame[f"{part}_share"] = frame[f"{part}_us"] / frame["span_us"]
    return frame


def operators_at_work(trace: Trace) -> pd.DataFrame:
    """The work of a trace's operators, and how fast they did it.

    A call inside another one that has a formula counts as part of that one. The profiler must have recorded shapes.

    Returns:
        Columns operator, calls, time_us (including what they called; with a GPU, of the kernels), flop, bytes,
        gflop_per_s, gb_per_s, flop_per_byte; longest time first; empty without shapes.
    """
    events = trace.events
    calls = events[events["category"] == "cpu_op"]
    kinds = list(zip(calls["name"].astype(str), calls["inputs"], strict=True))
    works = {kind: operator_work(*kind) for kind in set(kinds)}
    known = np.zeros(len(events), dtype=bool)
    known[calls.index[[works[kind] is not None for kind in kinds]]] = True
    outermost = known & ~within(known, events["parent"].to_numpy())
    took = launched_us(trace)[calls.index] if trace.is_of_gpu else calls["duration_us"]
    rows = [
        (kind[0], 1, duration, *work)
        for kind, duration, counts in zip(kinds, took, outermost[calls.index], strict=True)
        if counts and (work := works[kind]) is not None
    ]
    frame = pd.DataFrame(rows, columns=["operator", "calls", "time_us", "flop", "bytes"])
    sums = frame.groupby("operator").sum()
    sums[["gflop_per_s", "gb_per_s"]] = sums[["flop", "bytes"]].div(sums["time_us"] * 1e3, axis=0)
    sums["flop_per_byte"] = sums["flop"] / sums["bytes"]
    return sums.reset_index().sort_values("time_us", ascending=False, ignore_index=True)


def timeline(trace: Trace) -> pd.DataFrame:
    """The events of the step of median length.

    Returns:
        Columns lane ("thread 1", "thread 1, level 2", "GPU 0 stream 7"), kind ("annotation", "operator", "kernel",
        "copy or fill"), name, start_us (since the step began), duration_us; sorted by lane.

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
    names = {lane: f"thread {number}" for number, lane in enumerate(lanes, start=1)}
    for lane in device["lane"].unique():
        number, _, stream = lane.partition("/")
        names[lane] = f"GPU {number} stream {stream.removeprefix('stream ')}"
    shown = pd.concat([host, device], ignore_index=True).astype({"lane": str, "category": str, "name": str})
    levels = np.where(shown["level"] > 0, ", level " + shown["level"].astype(str), "")
    kinds = shown["category"].map(KINDS).fillna("copy or fill")
    frame = shown.assign(lane=shown["lane"].map(names) + levels, kind=kinds, start_us=shown["start_us"] - begin)
    longest = frame[["lane", "kind", "name", "start_us", "duration_us"]].nlargest(MOST_EVENTS, "duration_us")
    return longest.sort_values(["lane", "start_us"], ignore_index=True)


def memory_over_time(trace: Trace) -> pd.DataFrame:
    """Memory allocated since the recording began; what was allocated before, such as the weights, is not in it.

    Returns:
        Columns time_us, device (−1: the host), held_bytes; empty where memory was not recorded.
    """
    allocations = trace.allocations
    held = allocations["bytes"].astype("int64").groupby(allocations["device"]).cumsum()
    return allocations[["time_us", "device"]].assign(held_bytes=held)
