"""A training step that a profiler recorded on a GPU: the calls of its host, the kernels they launched, and the waits.

The host's time is one of the five overheads of Lin et al., arXiv 2201.07821, or the wait for a kernel:

- T1: between two top-level operators;
- T2: from an operator's start to its first launch;
- T3: from its last launch to its end;
- T4: the launch call itself;
- T5: between two launches of an operator, or all of an operator that launches nothing.

Kineto of that time recorded that a stream waits, but not for what, so this is inferred. A collective waits for the
stream of the operator that asks for it. An operator that launches no collective and lets a stream wait, waits for the
latest exchange (all-to-all). A wait between operators is for the reductions of the backward pass, or else for copies.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from labkit.profiling import CUDA_CALLS, ON_THE_DEVICE, TraceError, read_trace

VENDOR = re.compile(r"cuda|cu|hip")
"""Beginning of the names of calls of the runtime or driver, of NVIDIA or AMD"""
BLOCKING = ("MemcpyWithStream", "Memcpy", "MemcpyDtoH", "MemcpyDtoH_v2")
"""Copies that always wait for their end, without the vendor's beginning"""
COPIES = ("MemcpyAsync", "MemcpyDtoHAsync", "MemcpyDtoHAsync_v2")
SYNCHRONISES = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "CtxSynchronize")
LETS_WAIT = "StreamWaitEvent"
STEP, COLLECTIVE, REDUCTION = "ProfilerStep#", "nccl", "AllReduce"
USUAL_CALL_US = 10.0
"""Time of a call that may block above which it waited, if what it waits for was running; launches of the recorded V100s
take 4 to 12 µs"""


@dataclass(frozen=True)
class Kernel:
    """The work of one launch on a stream: a kernel, a copy, or a rank's part of a collective."""

    name: str
    stream: str
    start_us: float
    """Measured start, on one clock for all ranks"""
    duration_us: float
    after: tuple[int, ...] = ()
    """Numbers (in order of launch) of kernels of other streams that must end first"""
    collective: int | None = None
    """Number among the step's collectives, from 0"""


@dataclass(frozen=True)
class Call:
    """A stretch of the host's time."""

    kind: str
    """"T1" to "T5", or "compute" if the host itself computes"""
    operator: str
    """Top-level operator, or the one before it between two"""
    us: float
    """Duration without waiting"""
    launches: int | None = None
    """Number of the kernel that it launches"""
    waits_for: int | None = None
    """Number of the kernel that the host waits for at its end"""


@dataclass(frozen=True)
class RecordedStep:
    """One step of one rank."""

    start_us: float
    """Start, on one clock for all ranks"""
    duration_us: float
    operators: int
    """Number of top-level operators"""
    calls: tuple[Call, ...]
    """Calls in order of time: the host's threads take turns"""
    kernels: tuple[Kernel, ...]
    """Kernels in order of launch"""


class _Act(NamedTuple):
    """A call of the runtime or driver."""

    name: str
    lane: str
    start_us: float
    end_us: float
    launched: list[Any]
    """Rows of what it launched: a graph of kernels has many"""


def read_step(path: Path | str) -> RecordedStep:
    """Read the first step of one rank's Kineto trace; kernels launched by the step before are omitted.

    Raises:
        TraceError: it has no step, or no kernels that the calls in it launched.
        OSError: it cannot be read.
    """
    trace = read_trace(path)
    events = trace.events
    steps = events[events["name"].astype(str).str.startswith(STEP) & (events["category"] == "user_annotation")]
    device = events[events["category"].isin(ON_THE_DEVICE)]
    if steps.empty or device.empty:
        lacks = "step: call the profiler's step() after each step" if steps.empty else "kernel: record it on a GPU"
        raise TraceError(f"{path}: this trace has no {lacks}. {trace.unused_text}".strip())
    start_us, duration_us = (float(steps[name].iloc[0]) for name in ("start_us", "duration_us"))
    inside = events[(events["start_us"] >= start_us) & (events["start_us"] < start_us + duration_us)]
    by_correlation: dict[int, list[Any]] = {}
    for row in device[device["correlation"] >= 0].itertuples():
        by_correlation.setdefault(row.correlation, []).append(row)
    acts = [
        _Act(
            VENDOR.sub("", row.name, count=1),
            row.lane,
            row.start_us,
            row.start_us + row.duration_us,
            by_correlation.pop(row.correlation, []),  # once: a call of the runtime may contain one of the driver
        )
        for row in _rows(inside[inside["category"].isin(CUDA_CALLS)])
    ]
    operators = list(_outermost(_rows(inside[inside["category"] == "cpu_op"])))
    reader = _Reader(trace.began_us)
    reader.read(operators, acts, start_us, start_us + duration_us)
    if not reader.kernels:
        raise TraceError(
            f"{path}: this trace has {len(device):,} kernels and copies, and no recorded call of its first step "
            "launched one of them: record the host's calls too (ProfilerActivity.CPU and CUDA), for whole steps."
        )
    return RecordedStep(
        trace.began_us + start_us, duration_us, len(operators), tuple(reader.calls), tuple(reader.kernels)
    )


def _rows(events: pd.DataFrame) -> Iterator[Any]:
    columns = ["name", "lane", "start_us", "duration_us", "correlation"]
    return events[columns].astype({"name": str, "lane": str}).itertuples(index=False)


def _outermost(operators: Iterable[Any]) -> Iterator[Any]:
    """Operators that no other operator of their thread encloses."""
    ends: dict[str, float] = {}
    for operator in operators:
        if operator.start_us >= ends.get(operator.lane, -1.0):
            ends[operator.lane] = operator.start_us + operator.duration_us
            yield operator


class _Reader:
    """Goes once over a step, and collects its calls and kernels."""

    def __init__(self, clock_us: float):
        self.calls: list[Call] = []
        self.kernels: list[Kernel] = []
        self._clock_us = clock_us
        self._last: dict[str, int] = {}
        """Last kernel of each stream so far"""
        self._stream: dict[str, str] = {}
        """Stream of each thread's last launch, without collectives"""
        self._pending: list[int] = []
        """Kernels that the next launched kernel must wait for"""
        self._reductions: list[int] = []
        """Reductions that nothing has waited for so far"""
        self._exchange: int | None = None
        """Latest exchange"""

    def read(self, operators: list[Any], acts: list[_Act], start_us: float, end_us: float) -> None:
        now, name, left = start_us, STEP, acts
        for operator in operators:
            ends = operator.start_us + operator.duration_us
            own = [act for act in left if act.lane == operator.lane and operator.start_us <= act.start_us < ends]
            before = [act for act in left if act.start_us < operator.start_us]
            left = [act for act in left if act not in own and act not in before]
            starts = max(now, operator.start_us)
            self._stretch(name, now, starts, before, is_operator=False)
            name = operator.name
            self._stretch(name, starts, max(starts, ends), own, is_operator=True)
            now = max(starts, ends)
        self._stretch(name, now, max(now, end_us), left, is_operator=False)

    def _stretch(self, name: str, now: float, end_us: float, acts: list[_Act], *, is_operator: bool) -> None:
        launches = [act for act in acts if act.launched]
        asks = any(made.name.startswith(COLLECTIVE) for act in launches for made in act.launched)
        kind = "T1" if not is_operator else "T2" if launches else "T5"
        for act in acts:
            ends = max(now, min(act.end_us, end_us))
            if act in launches:
                self._call(kind, name, act.start_us - now)
                for place, made in enumerate(act.launched):
                    self._launch(name, act, made, ends - max(now, act.start_us) if place == 0 else 0.0)
                now = ends
                if is_operator:
                    kind = "T3" if act is launches[-1] else "T5"
            elif act.name in SYNCHRONISES:
                self._call(kind, name, act.start_us - now)
                last = self._last.get(self._stream.get(act.lane, ""))
                self._call(kind, name, *self._waited(ends - max(now, act.start_us), last))
                now = ends
            elif act.name == LETS_WAIT and not asks:
                self._wait(is_operator)
        self._call(kind, name, end_us - now)

    def _call(self, kind: str, name: str, us: float, waits_for: int | None = None) -> None:
        if us > 0 or waits_for is not None:
            self.calls.append(Call(kind, name, us, waits_for=waits_for))

    def _waited(self, us: float, kernel: int | None) -> tuple[float, int | None]:
        """Own time of a call that may have waited for a kernel, and that kernel."""
        return (us, None) if kernel is None else (min(us, USUAL_CALL_US), kernel)

    def _launch(self, name: str, act: _Act, made: Any, us: float) -> None:
        number = len(self.kernels)
        after, collective = tuple(self._pending), None
        if made.name.startswith(COLLECTIVE):
            last = self._last.get(self._stream.get(act.lane, ""))
            after, collective = () if last is None else (last,), sum(k.collective is not None for k in self.kernels)
            if REDUCTION in made.name:
                self._reductions.append(number)
            else:
                self._exchange = number
        else:
            self._pending = []
            self._stream[act.lane] = str(made.lane)
        self._last[str(made.lane)] = number
        stream, start_us = str(made.lane), self._clock_us + made.start_us
        self.kernels.append(Kernel(str(made.name), stream, start_us, made.duration_us, after, collective))
        blocks = act.name in BLOCKING or (act.name in COPIES and "Pageable" in made.name and "DtoH" in made.name)
        own_us, waits_for = self._waited(us, number) if blocks else (us, None)
        self.calls.append(Call("T4", name, own_us, number, waits_for))

    def _wait(self, is_operator: bool) -> None:
        if is_operator:
            self._pending += [] if self._exchange is None else [self._exchange]
        elif self._reductions:
            self._pending.append(self._reductions.pop(0))
        else:
            self._pending += [last for last in self._last.values() if self.kernels[last].collective is None]


def with_overheads(step: RecordedStep, others: Iterable[RecordedStep]) -> RecordedStep:
    """The same step with the mean times of calls of the same kind and operator in other steps.

    A call whose operator the others do not have takes their mean of its kind.
    """
    rows = [(call.kind, call.operator, call.us) for other in others for call in other.calls]
    frame = pd.DataFrame(rows, columns=["kind", "operator", "us"])
    of_operator, of_kind = (frame.groupby(by)["us"].mean().to_dict() for by in (["kind", "operator"], "kind"))
    calls = (
        replace(call, us=of_operator.get((call.kind, call.operator), of_kind.get(call.kind, call.us)))
        for call in step.calls
    )
    return replace(step, calls=tuple(calls))
