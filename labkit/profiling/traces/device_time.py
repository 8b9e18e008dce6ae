"""What a device did and how long it did nothing, from the kernels and copies of a trace.

Streams run side by side: time in which several are busy counts once. The definitions are those of Holistic Trace
Analysis (HTA of Meta: get_temporal_breakdown), so that its documentation holds. Where its own numbers differ: it
shortens times in ns to whole µs, counts records of waits (`cuda_sync`) as work, and leaves out what the trace's last
step launched (unless it is asked to count that), or what no call in the trace did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from labkit.profiling.traces.nesting import ancestors, innermost
from labkit.profiling.traces.trace import ON_THE_DEVICE, ON_THE_HOST
from labkit.profiling.traces.trace_file import TraceError

if TYPE_CHECKING:
    import pandas as pd

    from labkit.profiling.traces.trace import Trace

NO_COMPUTING = r"nccl.*Kernel|Memcpy|Memset"
"""How the names of kernels begin that communicate (NCCL's and RCCL's) or copy."""


def device_breakdown(trace: Trace) -> pd.DataFrame:
    """How long each device computed, did something else, or nothing, from its first kernel's start to the last end.

    Returns:
        Columns device (its number), span_us, idle_us (no kernel, no copy), compute_us (at least one kernel computes),
        non_compute_us (only communication, copies and fills), which add up to the span, and their shares of it,
        idle_share, compute_share, non_compute_share; one row a device, none without one.

    Raises:
        TraceError: the devices of kernels are not numbered as torch.profiler does it.
    """
    import pandas as pd

    found = trace.events[trace.events["category"].isin(ON_THE_DEVICE)]
    lanes = found["lane"].astype(str)
    if not lanes.str.match(r"\d{1,9}/").all():
        raise TraceError(
            f"{trace.path}: of some kernels the process is no number of a device, as torch.profiler writes it: their "
            "times on devices cannot be told."
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


def launched_us(trace: Trace) -> np.ndarray:
    """How long the kernels ran that each event of a trace, and what it called, launched (N,)."""
    direct = launched_directly_us(trace)
    total = direct.copy()
    for above in ancestors(trace.events["parent"].to_numpy()):
        np.add.at(total, above[above >= 0], direct[above >= 0])
    return total


def launched_directly_us(trace: Trace) -> np.ndarray:
    """The same without what it called (N,)."""
    events = trace.events
    kernels = events[events["category"].isin(ON_THE_DEVICE) & (events["correlation"] >= 0)]
    time_of = kernels.groupby("correlation")["duration_us"].sum()
    calls = events[events["category"].astype(str).str.endswith(("_runtime", "_driver"))]
    calls = calls[calls["correlation"].isin(time_of.index)]
    parent, found = events["parent"].to_numpy(), np.zeros(len(events))
    for lane, of_lane in calls.groupby("lane", observed=True):
        host = events[(events["lane"] == lane) & events["category"].isin(ON_THE_HOST)]
        within = innermost(host, parent, of_lane["start_us"].to_numpy())
        np.add.at(found, within[within >= 0], time_of[of_lane["correlation"]].to_numpy()[within >= 0])
    return found
