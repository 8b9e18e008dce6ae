"""Where the time of a step goes: every microsecond of its thread belongs to one phase, and to one operator or to none.

Steps are the profiler's own (`ProfilerStep#`). Phases are labkit's annotations, or those that torch itself makes for a
data loader and an optimiser. Annotations may cross each other, as those of a script and ours do: at each moment the one
counts that began last.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from labkit.errors import UserError
from labkit.profiling.traces.nesting import nest
from labkit.profiling.traces.trace import STEP, Trace, are_steps
from labkit.tracking.phases import BACKWARD, FORWARD, INPUT, OPTIMISER, SYNC, TO_DEVICE

if TYPE_CHECKING:
    import pandas as pd

OTHER, IDLE = "other", "idle"
BETWEEN = "between steps"
"""Of scripts: from the optimiser to the next forward pass, where batches are made, and results read, printed, saved."""
OWN_WAITS = (INPUT, SYNC)
"""Phases in which reading numbers is no sync."""
OWN_IDLENESS = (INPUT, BETWEEN, SYNC)
"""Phases whose waiting is their own, and no idleness."""
PHASES = (INPUT, BETWEEN, TO_DEVICE, FORWARD, BACKWARD, OPTIMISER, SYNC, OTHER)
"""In the order of a step."""
AFTER_BACKWARD = "after backward"
"""An annotation of scripts: between steps where a forward pass follows (gradients are accumulated), else other."""
OF_TORCH = {"enumerate(DataLoader)": INPUT, "Optimizer.step": OPTIMISER, "Optimizer.zero_grad": OPTIMISER}
"""Annotations that torch makes by itself, by what stands before "#"."""
READS = ("aten::item", "aten::_local_scalar_dense")
"""Operators that bring a number from a tensor to Python."""
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize",
         "hipStreamSynchronize")  # fmt: skip
"""Calls of the driver's interface that wait for the device."""
ONE_WAIT_US = 20.0
"""Two reads that are no further apart belong to one loop that reads numbers one by one."""
BACKWARD_CALL = "autograd::engine::evaluate_function"
PYTHON = "(outside of operators)"
"""Python, and what it calls that is not torch"""


@dataclass(frozen=True)
class StepTime:
    """The steps of a trace, taken apart."""

    segments: pd.DataFrame
    """The steps in pieces without gaps or overlaps: start_us, end_us, phase, step (its number)"""
    events: pd.DataFrame
    """The operators within them, in order of time: name, start_us, duration_us, self_us, parent (row in this frame, −1
    without one), phase, step, shapes, types, values; `row` is that of the trace's events"""
    steps: int

    @property
    def total_us(self) -> float:
        """Of all steps together."""
        return float((self.segments["end_us"] - self.segments["start_us"]).sum())

    @property
    def step_us(self) -> float:
        """Of one step, on average."""
        return self.total_us / self.steps

    @property
    def lengths_us(self) -> list[float]:
        """Of each step."""
        length = self.segments["end_us"] - self.segments["start_us"]
        return length.groupby(self.segments["step"]).sum().tolist()

    def phase_us(self, idle_us: float = 0.0) -> dict[str, float]:
        """Time of each phase in one step, in the order of a step; the times add up to `step_us`.

        Args:
            idle_us: of one step, in which it had no core outside of input and sync; it is taken from the phases in
                proportion, and stands beside them as "idle".
        """
        length = self.segments["end_us"] - self.segments["start_us"]
        found = (length.groupby(self.segments["phase"]).sum() / self.steps).to_dict()
        times = {phase: found.get(phase, 0.0) for phase in PHASES}
        left = 1 - self.idle_share(idle_us)
        taken = sum(times.values())
        times = {phase: us if phase in OWN_IDLENESS else us * left for phase, us in times.items()}
        times[IDLE] = taken - sum(times.values())
        return times

    def idle_share(self, idle_us: float) -> float:
        """Of the phases in which waiting is idleness, the share that was idle."""
        length = self.segments["end_us"] - self.segments["start_us"]
        busy_us = length[~self.segments["phase"].isin(OWN_IDLENESS)].sum() / self.steps
        return min(idle_us / busy_us, 1.0) if busy_us else 0.0

    def phases(self, idle_us: float = 0.0) -> pd.DataFrame:
        """`phase_us` as a frame: phase, time_us (of one step), share; without those that took no time."""
        import pandas as pd

        times = {phase: us for phase, us in self.phase_us(idle_us).items() if us > 1e-9}
        frame = pd.DataFrame({"phase": list(times), "time_us": list(times.values())})
        return frame.assign(share=frame["time_us"] / self.step_us)

    @property
    def operators(self) -> pd.DataFrame:
        """Operators by their own time within the steps, dearest first; the last row is what lies outside of them all.

        Returns:
            Columns operator, calls, self_us (both of one step), share. The times add up to `step_us`.
        """
        import pandas as pd

        grouped = self.events.groupby("name", observed=True)["self_us"].agg(["size", "sum"]) / self.steps
        frame = grouped.rename_axis("operator").rename(columns={"size": "calls", "sum": "self_us"}).reset_index()
        frame["operator"] = frame["operator"].astype(str)
        frame = frame.sort_values("self_us", ascending=False)
        rest = pd.DataFrame({"operator": [PYTHON], "calls": [0.0], "self_us": [self.step_us - frame["self_us"].sum()]})
        frame = pd.concat([frame, rest], ignore_index=True)
        frame["share"] = frame["self_us"] / self.step_us
        return frame


def step_time(trace: Trace, *, steps: int | None = None) -> StepTime:
    """Take the recorded steps apart.

    Args:
        trace: what was recorded.
        steps: how many of its steps are whole, where the recording may have ended within one.

    Raises:
        UserError: the trace has no steps.
    """
    recorded = recorded_steps(trace).iloc[:steps]
    if not recorded["duration_us"].sum():
        raise UserError(f"{trace.path}: the steps of this trace took no time, so it is damaged: record it once more.")
    lane = recorded["lane"].iloc[0]
    events = trace.events[trace.events["lane"] == lane]
    borders = _borders(recorded)
    segments = _segments(events[events["category"] == "user_annotation"], borders)
    segments = _with_waits(segments, _waits(events))
    return StepTime(_frame(segments), _operators(trace, lane, segments), len(borders))


def recorded_steps(trace: Trace) -> pd.DataFrame:
    """The profiler's annotations of whole steps.

    Raises:
        UserError: there are none.
    """
    events = trace.events
    found = events[(events["category"] == "user_annotation") & are_steps(events)]
    if found.empty:
        raise UserError(
            f"{trace.path}: this trace has no steps, so nothing can be said of one: let the profiler know them with "
            "its step(), or record it with `labkit profile`."
        )
    return found


TIMES = ("start_us", "duration_us")
Segment = tuple[float, float, str, int]
"""start_us, end_us, phase, step."""


def _borders(steps: pd.DataFrame) -> list[tuple[float, float, int]]:
    """Begin, end and number of each step; one ends where the next begins, if it has not before."""
    begin = steps["start_us"].to_numpy()
    end = begin + steps["duration_us"].to_numpy()
    end[:-1] = np.minimum(end[:-1], begin[1:])
    numbers = [int(name.removeprefix(STEP)) for name in steps["name"].astype(str)]
    return list(zip(begin.tolist(), end.tolist(), numbers, strict=True))


def _segments(notes: pd.DataFrame, borders: list[tuple[float, float, int]]) -> list[Segment]:
    """Each step cut where a phase begins or ends; of several open ones, the one that began last counts."""
    named = [
        (start, start + duration, phase)
        for name, start, duration in zip(notes["name"].astype(str), *(notes[c] for c in TIMES), strict=True)
        if (phase := _phase(name)) is not None
    ]
    named = _resolved(named)
    found: list[Segment] = []
    at = 0
    open_phases: list[tuple[float, float, str]] = []  # in the order in which they began
    for begin, end, number in borders:
        while at < len(named) and named[at][0] < end:
            open_phases.append(named[at])
            at += 1
        cuts = {begin, end}
        for start, stop, _ in open_phases:
            cuts.update(moment for moment in (start, stop) if begin < moment < end)
        for left, right in pairwise(sorted(cuts)):
            middle = (left + right) / 2
            inside = [phase for start, stop, phase in open_phases if start <= middle < stop]
            phase = inside[-1] if inside else OTHER
            if found and found[-1][1] == left and found[-1][2:] == (phase, number):
                found[-1] = (found[-1][0], right, phase, number)
            else:
                found.append((left, right, phase, number))
        open_phases = [each for each in open_phases if each[1] > end]
    return found


def _resolved(named: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """What comes after a backward pass is between steps where a forward pass is the next of the passes."""
    resolved = []
    following = ""
    for start, stop, phase in reversed(named):
        if phase == AFTER_BACKWARD:
            phase = BETWEEN if following == FORWARD else OTHER
        elif phase in (FORWARD, BACKWARD, OPTIMISER, INPUT, BETWEEN):
            following = phase
        resolved.append((start, stop, phase))
    return resolved[::-1]


def _phase(name: str) -> str | None:
    return name if name in (*PHASES, AFTER_BACKWARD) else OF_TORCH.get(name.split("#")[0])


def _waits(events: pd.DataFrame) -> list[tuple[float, float]]:
    """Begin and end of each stretch in which numbers are read or the device is waited for, close ones joined."""
    operators = events[events["category"] == "cpu_op"]
    calls = events[events["category"].isin(("cuda_runtime", "cuda_driver"))]
    reading = np.r_[operators.index[operators["name"].isin(READS)], calls.index[calls["name"].isin(WAITS)]]
    if not len(reading):
        return []
    found = events.loc[np.sort(reading)]
    begin = found["start_us"].to_numpy()
    end = np.maximum.accumulate(begin + found["duration_us"].to_numpy())
    first = np.r_[True, begin[1:] > end[:-1] + ONE_WAIT_US]
    last = np.r_[first[1:], True]
    tops = operators[~operators["parent"].isin(operators.index)]
    begin = [_from_unbind(tops, start) for start in begin[first].tolist()]
    return list(zip(begin, end[last].tolist(), strict=True))


def _from_unbind(tops: pd.DataFrame, start: float) -> float:
    """Where a loop over a tensor's elements begins: torch makes a tensor of each before Python reads the first."""
    starts, names = tops["start_us"].to_numpy(), tops["name"]
    while (row := np.searchsorted(starts, start) - 1) >= 0 and names.iat[row] == "aten::unbind":
        start = float(starts[row])
    return start


def _with_waits(segments: list[Segment], waits: list[tuple[float, float]]) -> list[Segment]:
    """The segments with what lies in a wait as sync, but for input, which may read what it likes."""
    found: list[Segment] = []
    at = 0
    for start, end, phase, number in segments:
        left = start
        while at < len(waits) and waits[at][1] <= start:
            at += 1
        place = at
        while phase not in OWN_WAITS and place < len(waits) and waits[place][0] < end:
            begin, stop = max(left, waits[place][0]), min(end, waits[place][1])
            if begin > left:
                found.append((left, begin, phase, number))
            if stop > begin:
                found.append((begin, stop, SYNC, number))
            left = max(left, stop)
            place += 1
        if end > left:
            found.append((left, end, phase, number))
    return found


def _frame(segments: list[Segment]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(segments, columns=["start_us", "end_us", "phase", "step"])


def _operators(trace: Trace, lane: str, segments: list[Segment]) -> pd.DataFrame:
    """The operators of the stepping thread, and of those that run its backward passes, each with phase and step."""
    import pandas as pd

    called = trace.events[trace.events["category"] == "cpu_op"]
    starts = np.array([segment[0] for segment in segments])
    place = np.searchsorted(starts, called["start_us"].to_numpy(), side="right") - 1
    ends = np.array([segment[1] for segment in segments])
    inside = (place >= 0) & (called["start_us"].to_numpy() < ends[place])
    called, place = called[inside], place[inside]
    frame = called.assign(
        row=called.index,
        phase=np.array([segment[2] for segment in segments], dtype=object)[place] if len(place) else [],
        step=np.array([segment[3] for segment in segments])[place] if len(place) else [],
    )
    own = frame["lane"] == lane
    backward = ~own & (frame["phase"] == BACKWARD)
    helping = frame[backward & frame["lane"].isin(_of_backward(frame[backward]))]
    frame = pd.concat([frame[own], helping])
    # callers before what they call
    frame = frame.sort_values(["start_us", "duration_us"], ascending=[True, False]).reset_index(drop=True)
    lanes = frame["lane"].cat.codes.to_numpy() if len(frame) else np.empty(0)
    parent, self_us = nest(lanes, frame["start_us"].to_numpy(), frame["duration_us"].to_numpy())
    frame["parent"], frame["self_us"] = parent, np.maximum(self_us, 0.0)
    return _fitted(frame, lane, segments)


def _of_backward(events: pd.DataFrame) -> list[str]:
    """Threads that autograd runs: with a GPU it has one of its own for each device."""
    calls = events[events["name"].astype(str).str.startswith(BACKWARD_CALL)]
    return calls["lane"].unique().tolist()


def _fitted(frame: pd.DataFrame, lane: str, segments: list[Segment]) -> pd.DataFrame:
    """Threads that work at the same time share the backward pass, which is no longer for that."""
    helps = (frame["lane"] != lane).to_numpy()
    if not helps.any():
        return frame
    room_us = sum(end - start for start, end, phase, _ in segments if phase == BACKWARD)
    room_us -= frame.loc[~helps & (frame["phase"] == BACKWARD).to_numpy(), "self_us"].sum()
    taken_us = frame.loc[helps, "self_us"].sum()
    if taken_us > room_us:
        frame.loc[helps, "self_us"] *= max(room_us, 0.0) / taken_us
    return frame
