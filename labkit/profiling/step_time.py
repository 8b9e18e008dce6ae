"""Where the time of a step goes: each microsecond of its thread belongs to one phase, and to at most one operator.

Steps are the profiler's own (`ProfilerStep#`). Phases are labkit's annotations, or those that torch itself makes for a
data loader and an optimiser; without annotations of a backward pass, autograd's own calls are it. Annotations may
overlap, as a script's and labkit's do: at each moment the one that began last counts. From the steps of several ranks
follows how long they exchange and wait, and which one is late.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labkit import UserError, runs, tracking
from labkit.profiling.tools import AFTER_BACKWARD, BETWEEN, COMMUNICATION, OTHER, PHASES
from labkit.profiling.trace import CUDA_CALLS, ON_THE_HOST, Trace, nest, read_trace

IDLE = "idle"
OWN_WAITS = (tracking.INPUT, tracking.SYNC)
"""Phases in which reading numbers does not count as sync."""
OWN_IDLENESS = (tracking.INPUT, BETWEEN, tracking.SYNC, COMMUNICATION)
"""Phases whose waiting is part of them and does not count as idle."""
OF_TORCH = {
    "enumerate(DataLoader)": tracking.INPUT,
    "Optimizer.step": tracking.OPTIMISER,
    "Optimizer.zero_grad": tracking.OPTIMISER,
}
"""Phases of the annotations that torch makes itself, by their text before "#"."""
READS = ("aten::item", "aten::_local_scalar_dense")
"""Operators that copy a number from a tensor to Python."""
WAITS = r"\w*(?:Synchronize|QueueFinish)"
"""Beginning of the names of calls that wait for the device: cudaDeviceSynchronize, aclrtSynchronizeStream and others"""
WAIT, EXCHANGE = "wait", "exchange"
"""Names of a stretch of reads and waits, and of one in which only collectives run."""
ONE_WAIT_US = 20.0
"""Largest gap between two reads that count as one loop over numbers."""
STEP = "ProfilerStep#"
BACKWARD_CALL = "autograd::engine::evaluate_function"
BACKWARD_CALLS = rf"{BACKWARD_CALL}|torch::autograd::|[A-Za-z_]\w*Backward\d*$"
"""Beginning of the names of autograd's calls; the later two are those of torch 1.8, which had no other"""
COLLECTIVES = r"(?:gloo|mpi|ucc):"
"""Beginning of the annotations that a backend on the CPU makes, on a thread of its own, of collectives"""
ONE_EXCHANGE_US = 100.0
"""Shortest stretch without an operator that counts as waiting for a collective; Python between operators is shorter"""
PYTHON = "(outside of operators)"
"""Name of the time spent in Python and in whatever it calls that is not torch"""
SMALLEST = 0.001
"""Smallest share of a step that the tree of calls shows; the rest stays blank within its caller."""
LATE_SHARE = 0.05
"""Least share of a step that the other ranks wait for a rank that is called late"""


@dataclass(frozen=True)
class StepTime:
    """The steps of a trace, taken apart."""

    segments: pd.DataFrame
    """Pieces of the steps without gaps or overlaps: start_us, end_us, phase, step (its number), us (its length)"""
    events: pd.DataFrame
    """The operators of the steps, in order of time: name, start_us, duration_us, self_us, parent (row in this frame, or
    −1), phase, step, inputs, row (of the trace's events)"""
    steps: int
    idle_us: float = 0.0
    """Time of a step without a core, outside of input and sync: a phase of its own, "idle", taken from the others in
    proportion."""

    @property
    def total_us(self) -> float:
        """Length of all steps together."""
        return float(self.segments["us"].sum())

    @property
    def step_us(self) -> float:
        """Mean length of a step."""
        return self.total_us / self.steps

    @property
    def phase_us(self) -> dict[str, float]:
        """Time of each phase in one step, in the order of a step; the times add up to `step_us`."""
        times = (self.segments.groupby("phase")["us"].sum() / self.steps).reindex(PHASES, fill_value=0.0)
        left = times.where(times.index.isin(OWN_IDLENESS), times * (1 - self.idle_share))
        return left.to_dict() | {IDLE: float(times.sum() - left.sum())}

    @property
    def idle_share(self) -> float:
        """Idle share of the phases in which waiting counts as idle."""
        busy_us = self.segments.loc[~self.segments["phase"].isin(OWN_IDLENESS), "us"].sum() / self.steps
        return min(self.idle_us / busy_us, 1.0) if busy_us else 0.0

    @property
    def phases(self) -> pd.DataFrame:
        """`phase_us` as a frame: phase, time_us (of one step), share; phases that took no time are omitted."""
        times = pd.Series(self.phase_us, name="time_us").rename_axis("phase")
        frame = times[times > 1e-9].reset_index()
        return frame.assign(share=frame["time_us"] / self.step_us)

    @property
    def operators(self) -> pd.DataFrame:
        """Operators by their own time in a step, most expensive first; the last row is the time outside of operators.

        Columns operator, calls, self_us (both per step), share. The times add up to `step_us`.
        """
        names = self.events["name"].astype(str).rename("operator")
        sums = self.events.groupby(names)["self_us"].agg(calls="size", self_us="sum") / self.steps
        sums = sums.sort_values("self_us", ascending=False)  # ty: ignore[no-matching-overload]  # a frame
        sums.loc[PYTHON] = [0.0, self.step_us - sums["self_us"].sum()]
        return sums.assign(share=sums["self_us"] / self.step_us).reset_index()


def step_time(trace: Trace, *, steps: int | None = None, idle_us: float = 0.0) -> StepTime:
    """Take the recorded steps apart; only the first `steps` of them if the recording may have ended within one.

    Raises:
        UserError: the trace has no steps.
    """
    recorded = recorded_steps(trace).iloc[:steps]
    if not recorded["duration_us"].sum():
        raise UserError(f"{trace.path}: the steps of this trace took no time, so it is damaged: record it again.")
    lane = recorded["lane"].iloc[0]
    segments = _segments(recorded, _named(trace.events, lane))
    frame = pd.DataFrame(segments, columns=["start_us", "end_us", "phase", "step"])
    frame["us"] = frame["end_us"] - frame["start_us"]
    exchange_us = float(frame.loc[frame["phase"] == COMMUNICATION, "us"].sum()) / len(recorded)
    return StepTime(frame, _operators(trace, lane, segments), len(recorded), max(0.0, idle_us - exchange_us))


def recorded_steps(trace: Trace) -> pd.DataFrame:
    """The profiler's annotations of whole steps; a UserError if there are none."""
    events = trace.events
    is_step = events["name"].astype(str).str.fullmatch(STEP + r"\d{1,9}")
    found = events[(events["category"] == "user_annotation") & is_step]
    if len(found):
        lane = found["lane"].iat[0]
        steps = found[found["lane"] == lane]  # of one thread, of one rank
        ran = events[(events["lane"] == lane) & ~events["category"].isin(("user_annotation", "python_function"))]
        # each call of step() opens one more, in which nothing ran if it was the last call
        has_run = len(ran) == 0 or ran["start_us"].max() >= steps["start_us"].iat[-1]
        if has_run or len(steps) > 1:
            return steps if has_run else steps.iloc[:-1]
    host = events[events["category"].isin((*ON_THE_HOST, *CUDA_CALLS))]
    if trace.may_lack_steps and len(host):
        of_autograd = host["lane"].isin(host.loc[_named_like(host, BACKWARD_CALLS), "lane"])
        host = host if of_autograd.all() else host[~of_autograd]
        lane = host.groupby("lane", observed=True)["self_us"].sum().idxmax()
        starts, lasts = (host.loc[host["lane"] == lane, name] for name in ("start_us", "duration_us"))
        begin, end = starts.min(), (starts + lasts).max()
        return pd.DataFrame([{"name": f"{STEP}0", "lane": lane, "start_us": begin, "duration_us": end - begin}])
    if not events["category"].isin((*ON_THE_HOST, *CUDA_CALLS)).any():
        raise UserError(
            f"{trace.path}: another tool than torch.profiler wrote this trace, without steps or operators: use "
            f"`labkit.profiling.read_trace`, which reads any calls. {trace.unused_text}".strip()
        )
    raise UserError(
        f"{trace.path}: this trace has no steps: call the profiler's step() after each one, or record it with "
        f"`labkit profile`. {trace.unused_text}".strip()
    )


def _intervals(events: pd.DataFrame) -> list[tuple[float, float]]:
    start = events["start_us"]
    return list(zip(start.tolist(), (start + events["duration_us"]).tolist(), strict=True))


def _segments(recorded: pd.DataFrame, named: list[tuple[float, float, str]]) -> list[tuple[float, float, str, int]]:
    """Each step, cut where a phase begins or ends; of several open phases, the one that began last counts.

    A step ends where the next one begins, at the latest. Time in a wait is sync, except in input, which may read
    numbers.
    """
    numbers = [int(name.removeprefix(STEP)) for name in recorded["name"].astype(str)]
    steps = _intervals(recorded)
    latest = [*recorded["start_us"].tolist()[1:], np.inf]
    start, stop = (np.array([each[place] for each in named]) for place in (0, 1))
    found: list[tuple[float, float, str, int]] = []
    for number, (begin, end), next_begin in zip(numbers, steps, latest, strict=True):
        end = min(end, next_begin)
        touching = [named[place] for place in np.flatnonzero((start < end) & (stop > begin))] if named else []
        moments = {moment for first, last, _ in touching for moment in (first, last) if begin < moment < end}
        for left, right in pairwise(sorted({begin, end, *moments})):
            inside = [phase for first, last, phase in touching if first <= left < last]
            phase = next((each for each in reversed(inside) if each not in (WAIT, EXCHANGE)), OTHER)
            if phase not in OWN_WAITS and (WAIT in inside or EXCHANGE in inside):
                phase = tracking.SYNC if WAIT in inside else COMMUNICATION
            found.append((left, right, phase, number))
    return found


def _named(every: pd.DataFrame, lane: str) -> list[tuple[float, float, str]]:
    """Begin, end and name of the phases and waits, in the order in which they begin."""
    events = every[every["lane"] == lane]
    notes = events[events["category"] == "user_annotation"]
    found, following = [], ""
    for (start, stop), name in reversed(list(zip(_intervals(notes), notes["name"].astype(str), strict=True))):
        phase = OF_TORCH.get(name.split("#")[0], name)
        if phase == AFTER_BACKWARD:
            phase = BETWEEN if following == tracking.FORWARD else OTHER
        elif phase in (tracking.FORWARD, tracking.BACKWARD, tracking.OPTIMISER, tracking.INPUT, BETWEEN):
            following = phase
        if phase in PHASES:
            found.append((start, stop, phase))
    if all(phase != tracking.BACKWARD for _, _, phase in found):  # a recording without labkit's notes
        found += [(*pass_, tracking.BACKWARD) for pass_ in _backward_passes(every, lane)]
    waits = [(*wait, WAIT) for wait in _waits(events)] + [(*wait, EXCHANGE) for wait in _exchanges(every, lane)]
    # if both begin at once, the phase comes before the wait in it
    return sorted([*found[::-1], *waits], key=lambda each: each[0])


def _of_process(events: pd.DataFrame, lane: str) -> pd.Series:
    """Whether each event is on a thread of the same process."""
    process = lane.rpartition("/")[0] + "/"
    return events["lane"].isin([each for each in events["lane"].cat.categories if each.startswith(process)])


def _named_like(events: pd.DataFrame, pattern: str) -> pd.Series:
    """Whether each event's name begins with a pattern."""
    return events["name"].isin([name for name in events["name"].cat.categories if re.match(pattern, name)])


def _backward_passes(every: pd.DataFrame, lane: str) -> list[tuple[float, float]]:
    """Begin and end of autograd's calls, on any thread; joined where the stepping thread begins nothing in between."""
    calls = every[_of_process(every, lane) & (every["category"] == "cpu_op") & _named_like(every, BACKWARD_CALLS)]
    begun = every.loc[(every["lane"] == lane) & every["category"].isin(ON_THE_HOST), "start_us"].to_numpy()
    found: list[tuple[float, float]] = []
    for begin, end in _intervals(calls):
        if found and (begin <= found[-1][1] or np.diff(np.searchsorted(begun, (found[-1][1], begin)))[0] == 0):
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _exchanges(every: pd.DataFrame, lane: str) -> list[tuple[float, float]]:
    """Begin and end of each stretch in which a collective is open and the stepping thread runs no operator."""
    notes = _of_process(every, lane) & (every["category"] == "user_annotation") & _named_like(every, COLLECTIVES)
    if not (notes := notes & (every["lane"] != lane)).any():
        return []
    own = every[(every["lane"] == lane) & (every["category"] == "cpu_op")]
    busy = own[~own.index.isin(own["parent"]) & ~_named_like(own, rf"{BACKWARD_CALL}|_?c10d")]
    begins, ends = ([*busy["start_us"], np.inf], [-np.inf, *(busy["start_us"] + busy["duration_us"])])
    found = []
    for first, last in _intervals(every[notes]):
        places = range(np.searchsorted(ends, first, "right") - 1, np.searchsorted(begins, last) + 1)
        gaps = ((max(first, ends[place]), min(last, begins[place])) for place in places if place < len(begins))
        found += [(begin, end) for begin, end in gaps if end - begin >= ONE_EXCHANGE_US]
    return found


def _waits(events: pd.DataFrame) -> list[tuple[float, float]]:
    """Begin and end of each stretch in which numbers are read or the device is waited for; close ones are joined."""
    operators = events[events["category"] == "cpu_op"]
    calls = events["category"].isin(CUDA_CALLS) & _named_like(events, WAITS)
    tops = operators[~operators["parent"].isin(operators.index)]
    starts, names = tops["start_us"].to_numpy(), tops["name"]
    found: list[tuple[float, float]] = []
    for begin, end in _intervals(events[calls | events.index.isin(operators.index[operators["name"].isin(READS)])]):
        if found and begin <= found[-1][1] + ONE_WAIT_US:
            found[-1] = found[-1][0], max(found[-1][1], end)
            continue
        # a loop over a tensor's elements begins when torch makes a tensor of each, before Python reads the first
        while (row := np.searchsorted(starts, begin) - 1) >= 0 and names.iat[row] == "aten::unbind":
            begin = float(starts[row])
        found.append((begin, end))
    return found


def _operators(trace: Trace, lane: str, segments: list[tuple[float, float, str, int]]) -> pd.DataFrame:
    """The operators of the stepping thread, and of those that run its backward passes, each with phase and step."""
    called = trace.events[trace.events["category"] == "cpu_op"]
    starts, ends, phases, numbers = (np.array(column) for column in zip(*segments, strict=True))
    place = np.searchsorted(starts, called["start_us"].to_numpy(), side="right") - 1
    inside = (place >= 0) & (called["start_us"].to_numpy() < ends[place])
    called, place = called[inside], place[inside]
    frame = called.assign(row=called.index, phase=phases[place].astype(object), step=numbers[place])
    # with a GPU, autograd has a thread of its own
    in_backward = (frame["phase"] == tracking.BACKWARD) & _of_process(frame, lane)
    runs_backward = in_backward & _named_like(frame, BACKWARD_CALLS)
    frame = frame[(frame["lane"] == lane) | (in_backward & frame["lane"].isin(frame.loc[runs_backward, "lane"]))]
    # callers before what they call
    frame = frame.sort_values(["start_us", "duration_us"], ascending=[True, False]).reset_index(drop=True)
    parent, self_us = nest(frame)
    frame["parent"], frame["self_us"] = parent, np.maximum(self_us, 0.0)
    # threads that work at once share the time, so that it counts once
    tops, elsewhere = frame[parent < 0], frame["lane"] != lane
    ends = (tops["start_us"] + tops["duration_us"]).cummax()
    alone_us = (ends - np.maximum(tops["start_us"], ends.shift(fill_value=-np.inf))).clip(lower=0).sum()
    if others_us := tops.loc[elsewhere, "duration_us"].sum():
        share = (alone_us - tops.loc[~elsewhere, "duration_us"].sum()) / others_us
        frame.loc[elsewhere, "self_us"] *= min(max(share, 0.0), 1.0)
    return frame


def call_tree(time: StepTime) -> pd.DataFrame:
    """One row for the step, for each of its phases, and for each path of calls to an operator in a phase.

    Returns:
        Columns node, parent (−1: none), name, phase, depth (0 is the step), calls, total_us, self_us (all per step),
        begin_us: its position when callees are placed side by side in the order of their first call.
    """
    sums: dict[tuple[str, ...], list[float]] = {(): [time.steps, time.total_us, 0.0]}  # calls, total and own time
    for phase, us in time.segments.groupby("phase", sort=False)["us"].sum().items():
        sums[(phase,)] = [time.steps, us, us]
    paths: list[tuple[str, ...]] = []
    columns = (time.events[name].tolist() for name in ("name", "phase", "parent", "duration_us", "self_us"))
    for name, phase, parent, total_us, own_us in zip(*columns, strict=True):
        path = (*((phase,) if parent < 0 else paths[parent]), name)
        paths.append(path)
        row = sums.setdefault(path, [0, 0.0, 0.0])
        sums[path] = [row[0] + 1, row[1] + total_us, row[2] + own_us]
        sums[path[:1]][2] -= own_us  # what is left of a phase lies outside of its operators
    number = {path: place for place, path in enumerate(sums)}
    begin, taken, rows, least_us = {}, dict.fromkeys(sums, 0.0), [], SMALLEST * time.total_us
    for path, (calls, total_us, own_us) in sums.items():
        if total_us < least_us:
            continue
        above = path[:-1]
        begin[path] = begin.get(above, 0.0) + taken[above] if path else 0.0
        taken[above] += total_us if path else 0.0
        parent, name, phase = (number[above], path[-1], path[0]) if path else (-1, "step", "other")
        rows.append((number[path], parent, name, phase, len(path), calls, total_us, own_us, begin[path]))
    columns = ["node", "parent", "name", "phase", "depth", "calls", "total_us", "self_us", "begin_us"]
    frame = pd.DataFrame(rows, columns=columns)
    frame[["calls", "total_us", "self_us", "begin_us"]] /= time.steps
    return frame


@dataclass(frozen=True)
class RankSteps:
    """What ranks do in a step, compared. The values are means per step."""

    rows: list[dict[str, Any]]
    """Of each rank: rank (the name of its trace), step_us, exchange_us, waiting_us"""
    late: tuple[str, float] | None
    """The rank for which the others wait, and how much longer than it (µs); None if that is less than 5 % of a step"""

    @property
    def headline(self) -> str:
        longest_us = max(row["step_us"] for row in self.rows)
        if self.late is None:
            return f"No rank is late: the {len(self.rows)} ranks wait for each other less than 5 % of a step."
        name, us = self.late
        return f"{name} is late: the others wait {us / 1e3:.4g} ms per step for it, {us / longest_us:.0%} of one."


def compare_ranks(paths: Sequence[Path]) -> RankSteps:
    """Compare the ranks of a training on CPUs by a trace of the same steps of each.

    In each step the rank that communicates least came last: its communication is the exchange, and what another rank
    communicates longer is waiting.

    Raises:
        UserError: the traces have other steps, or none notes a collective on a thread of its own, as gloo does.
    """
    times = [step_time(replace(read_trace(path), may_lack_steps=True)) for path in paths]
    rows: list[dict[str, Any]] = []
    for path, time in zip(paths, times, strict=True):
        us = time.segments["us"].where(time.segments["phase"] == COMMUNICATION, 0.0)
        by_step = us.groupby(time.segments["step"]).sum() / time.steps
        rows.append({"rank": path.name, "phases_s": {step: (0.0, each) for step, each in by_step.items()}})
        if by_step.index.tolist() != [*rows[0]["phases_s"]]:
            raise UserError(f"{path}: its steps are not those of {paths[0].name}: record the same steps on each rank.")
    if not any(seconds for row in rows for _, seconds in row["phases_s"].values()):
        raise UserError(f"{paths[0].parent}: no trace notes that a rank waits for others, as gloo's do: name one.")
    steps = runs.exchange_s(rows).values()
    exchange_us = sum(exchange for exchange, _ in steps)
    waiting_us = [sum(each) for each in zip(*(waits for _, waits in steps), strict=True)]
    found = [
        {"rank": row["rank"], "step_us": time.step_us, "exchange_us": exchange_us, "waiting_us": us}
        for row, time, us in zip(rows, times, waiting_us, strict=True)
    ]
    late = runs.late_rank(rows)
    is_late = late is not None and late[1] >= LATE_SHARE * max(time.step_us for time in times)
    return RankSteps(found, late if is_late else None)
