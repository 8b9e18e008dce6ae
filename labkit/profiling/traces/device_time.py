"""What a device did and how long it did nothing, from the kernels and copies of a trace.

Streams run side by side: time in which several are busy counts once. The definitions are those of Holistic Trace
Analysis (HTA of Meta: get_temporal_breakdown and get_gpu_kernel_breakdown), so that its documentation holds. Where its
own numbers differ: it shortens times in ns to whole µs, counts records of waits (`cuda_sync`) as work, and leaves out
what the trace's last step launched (unless it is asked to count that), or what no call in the trace did.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from labkit.profiling.traces.nesting import innermost
from labkit.profiling.traces.trace import ON_THE_DEVICE, ON_THE_HOST
from labkit.profiling.traces.trace_file import TraceError

if TYPE_CHECKING:
    import pandas as pd

    from labkit.profiling.traces.trace import Trace

KINDS = ("COMPUTATION", "COMMUNICATION", "MEMORY")
COMMUNICATION = r"nccl.*Kernel"
"""How the names of NCCL's and RCCL's kernels begin."""
MEMORY = r"Memcpy|Memset"
"""How the names of copies begin, where the category does not tell them."""
RESOLUTION_US = 1e-3
"""Of Kineto's times; less is what is left over of subtractions."""


def device_breakdown(trace: Trace) -> pd.DataFrame:
    """How long each device computed, did something else, or nothing, from its first kernel's start to the last end.

    Returns:
        Columns device (its number), span_us, idle_us (no kernel, no copy), compute_us (at least one kernel computes),
        non_compute_us (only communication, copies and fills), which add up to the span, and their shares of it,
        idle_share, compute_share, non_compute_share; one row a device, none without one.
    """
    import pandas as pd

    rows = []
    for device, lasts, is_on in _stretches(trace):
        computes, works = is_on[0], is_on.any(axis=0)
        times = (lasts[which].sum() for which in (~works, computes, works & ~computes))
        rows.append((device, lasts.sum(), *times))
    parts = ("idle", "compute", "non_compute")
    frame = pd.DataFrame(rows, columns=["device", "span_us", *(f"{part}_us" for part in parts)])
    for part in parts:
        frame[f"{part}_share"] = frame[f"{part}_us"] / frame["span_us"]
    return frame


def kernel_breakdown(trace: Trace) -> pd.DataFrame:
    """How long each kind of work ran on each device, alone and while others ran.

    Returns:
        Columns device, kind (of `KINDS`, or several of them, "COMPUTATION overlapping COMMUNICATION"), time_us, share
        (of the time in which the device was busy); of each device the longest first, empty without one.
    """
    import pandas as pd

    rows = []
    for device, lasts, is_on in _stretches(trace):
        for combination in np.unique(is_on, axis=1).T:
            time = lasts[(is_on == combination[:, None]).all(axis=0)].sum()
            if combination.any() and time > RESOLUTION_US:
                rows.append((device, " overlapping ".join(compress(KINDS, combination)), time))
    frame = pd.DataFrame(rows, columns=["device", "kind", "time_us"])
    frame["share"] = frame["time_us"] / frame.groupby("device")["time_us"].transform("sum")
    return frame.sort_values(["device", "time_us"], ascending=[True, False], ignore_index=True)


def launched_us(trace: Trace) -> np.ndarray:
    """How long the kernels ran that each event of a trace, and what it called, launched (N,)."""
    direct = launched_directly_us(trace)
    parent, total = trace.events["parent"].to_numpy(), direct.copy()
    for row in np.flatnonzero(direct).tolist():  # to all that enclose it
        above = parent[row]
        while above >= 0:
            total[above] += direct[row]
            above = parent[above]
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


def _stretches(trace: Trace) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Of each device: how long it is from each start or end of its work to the next (M,), and what kinds go on then."""
    found = trace.events[trace.events["category"].isin(ON_THE_DEVICE)]
    name, lanes = found["name"].astype(str), found["lane"].astype(str)
    if not lanes.str.match(r"\d{1,9}/").all():
        raise TraceError(
            f"{trace.path}: of some kernels the process is no number of a device, as torch.profiler writes it: their "
            "times on devices cannot be told."
        )
    is_copy = (found["category"] != "kernel") | name.str.match(MEMORY)
    kinds = np.select([is_copy, name.str.match(COMMUNICATION)], [KINDS[2], KINDS[1]], KINDS[0])
    # Kineto's process of such an event is the device, its thread the stream
    devices = lanes.str.partition("/")[0].astype(int) if len(found) else lanes
    for device, work in found.assign(kind=kinds).groupby(devices):
        running = np.stack([(work["kind"] == kind).to_numpy() for kind in KINDS])  # (kinds, N)
        moments = np.concatenate([work["start_us"], work["start_us"] + work["duration_us"]])
        change = np.concatenate([running, -1 * running], axis=1)  # (kinds, 2 N)
        order = np.argsort(moments, kind="stable")
        yield device, np.diff(moments[order]), (np.cumsum(change[:, order], axis=1) > 0)[:, :-1]
