"""Where the time of a step goes: every microsecond of its thread belongs to one operator and one phase.

Steps are the profiler's own (`ProfilerStep#`). Phases are labkit's annotations, or those that torch itself makes for a
data loader and an optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from labkit.errors import UserError
from labkit.profiling.trace import ON_THE_HOST, STEP, Trace
from labkit.training.phases import BACKWARD, FORWARD, INPUT, OPTIMISER, SYNC, TO_DEVICE

if TYPE_CHECKING:
    import pandas as pd

OTHER, IDLE = "other", "idle"
OUTSIDE_WAITS = (INPUT, SYNC)
"""Phases whose waiting is their own, and no idleness."""
PHASES = (INPUT, TO_DEVICE, FORWARD, BACKWARD, OPTIMISER, SYNC)
OF_TORCH = {"enumerate(DataLoader)": INPUT, "Optimizer.step": OPTIMISER, "Optimizer.zero_grad": OPTIMISER}
"""Annotations that torch makes by itself, by what stands before "#"."""
WAITS = ("aten::item", "aten::_local_scalar_dense", "cudaDeviceSynchronize", "cudaStreamSynchronize",
         "cudaEventSynchronize", "hipDeviceSynchronize", "hipStreamSynchronize")  # fmt: skip
"""Calls that bring a number from the device to Python, or wait for the device."""
ONE_WAIT_US = 20.0
"""Two of these that are no further apart belong to one loop that reads numbers one by one."""


@dataclass(frozen=True)
class StepTime:
    """The events of the thread that takes the steps, with what they belong to."""

    events: pd.DataFrame
    """Of the trace: name, category, start_us, duration_us, self_us, parent (row in this frame, −1 without one), phase,
    step (its number), top (row of the outermost operator that it is part of, −1 where it is an annotation)"""
    steps: int
    total_us: float
    """Of all steps together"""
    waits: np.ndarray
    """(N, 2): begin and end of each stretch in which numbers are read from the device, in microseconds"""

    @property
    def step_us(self) -> float:
        """Of one step, on average."""
        return self.total_us / self.steps

    def phases(self, idle_us: float = 0.0) -> pd.DataFrame:
        """Time of each phase.

        Args:
            idle_us: of one step, in which its thread had no core outside of input and sync; it is taken from the
                phases in proportion, and stands beside them as "idle".

        Returns:
            Columns phase, time_us (of one step), share; in the order of a step. The times add up to `step_us`.
        """
        import pandas as pd

        times = self.events.groupby("phase", observed=True)["self_us"].sum() / self.steps
        inside = self._waiting_us()
        times = times.reindex([*PHASES[:-1], SYNC, OTHER], fill_value=0.0)
        for name, waited in inside.items():
            times[name] -= waited
            times[SYNC] += waited
        busy = times.drop([INPUT, SYNC])
        idle_us = min(idle_us, busy.sum())
        if idle_us:
            times[busy.index] -= busy * (idle_us / busy.sum())
        times = pd.concat([times, pd.Series({IDLE: idle_us})])
        times = times[times > 0]
        return pd.DataFrame({"phase": times.index, "time_us": times.values, "share": times.values / self.step_us})

    def _waiting_us(self) -> dict[str, float]:
        """Of one step, per phase other than input and sync, the stretches in which numbers are read."""
        begin = self.events["start_us"].to_numpy()
        found: dict[str, float] = {}
        for start, end in self.waits:
            phase = self.events["phase"].iat[np.searchsorted(begin, start, side="right") - 1]
            if phase not in (INPUT, SYNC):
                found[phase] = found.get(phase, 0.0) + (end - start) / self.steps
        return found

    @property
    def operators(self) -> pd.DataFrame:
        """Operators by their own time within the steps, dearest first; the last row is Python, outside of them all.

        Returns:
            Columns operator, calls, self_us (both of one step), share. The times add up to `step_us`.
        """
        import pandas as pd

        called = self.events[self.events["category"] == "cpu_op"]
        grouped = called.groupby("name", observed=True)["self_us"].agg(["size", "sum"]) / self.steps
        frame = grouped.rename_axis("operator").rename(columns={"size": "calls", "sum": "self_us"}).reset_index()
        frame["operator"] = frame["operator"].astype(str)
        frame = frame.sort_values("self_us", ascending=False)
        rest = pd.DataFrame({"operator": [PYTHON], "calls": [0.0], "self_us": [self.step_us - frame["self_us"].sum()]})
        frame = pd.concat([frame, rest], ignore_index=True)
        frame["share"] = frame["self_us"] / self.step_us
        return frame


PYTHON = "(outside of operators)"
"""Python, and what it calls that is not torch"""


def step_time(trace: Trace, *, steps: int | None = None) -> StepTime:
    """Attribute the time of the recorded steps.

    Args:
        trace: what was recorded.
        steps: how many of its steps are whole, where the recording may have ended within one.

    Raises:
        UserError: the trace has no steps.
    """
    events = trace.events
    host = events[events["category"].isin(ON_THE_HOST)]
    whole = host[(host["category"] == "user_annotation") & host["name"].astype(str).str.startswith(STEP)].iloc[:steps]
    if whole.empty:
        raise UserError(
            f"{trace.path}: this trace has no steps, so nothing can be said of one: let the profiler know them with "
            "its step(), or record it with `labkit profile`."
        )
    frame = _with_workers(host, whole["lane"].iloc[0], whole)
    last = int(str(whole["name"].iloc[-1]).removeprefix(STEP))
    names, phases = frame["name"].astype(str).to_numpy(), np.full(len(frame), "", dtype=object)
    noted = (frame["category"] == "user_annotation").to_numpy()
    number = np.full(len(frame), -1)
    top = np.full(len(frame), -1)
    parents, operator = frame["parent"].to_numpy(), (frame["category"] == "cpu_op").to_numpy()
    for row, (name, parent) in enumerate(zip(names, parents, strict=True)):  # parents come before their children
        if noted[row] and name.startswith(STEP):
            number[row], phases[row] = int(name.removeprefix(STEP)), OTHER
        elif parent >= 0:
            number[row] = number[parent]
            phases[row] = (_phase(name) if noted[row] else None) or phases[parent]
            if operator[row]:
                top[row] = top[parent] if top[parent] >= 0 else row
    frame["phase"], frame["step"], frame["top"] = phases, number, top
    inside = (number >= 0) & (number <= last)
    place = np.cumsum(inside) - 1
    frame = frame[inside].reset_index(drop=True)
    for column in ("parent", "top"):
        rows = frame[column].to_numpy()
        frame[column] = np.where(rows >= 0, place[rows], -1)
    # a step is the parent of what it holds, not a child
    total = float(whole["duration_us"].sum())
    return StepTime(frame, len(whole), total, _waits(frame))


def _with_workers(host: pd.DataFrame, lane: str, steps: pd.DataFrame) -> pd.DataFrame:
    """The events of the stepping thread, and below them those of the one that runs backward passes for it.

    With a GPU, torch's autograd has a thread of its own, for which the stepping one waits.
    """
    own = host[host["lane"] == lane]
    others = host[(host["lane"] != lane) & (host["category"] == "cpu_op")]
    begin, end = steps["start_us"].min(), (steps["start_us"] + steps["duration_us"]).max()
    others = others[(others["start_us"] >= begin) & (others["start_us"] < end)]
    if len(others):
        busiest = others.groupby("lane", observed=True)["self_us"].sum().idxmax()
        others = others[others["lane"] == busiest]
    both = _renumbered([own, others])
    rows = np.flatnonzero((both["lane"] != lane).to_numpy() & (both["parent"].to_numpy() < 0))
    parent, self_us = both["parent"].to_numpy().copy(), both["self_us"].to_numpy().copy()
    backward = np.flatnonzero((both["name"] == BACKWARD).to_numpy() & (both["lane"] == lane).to_numpy())
    starts = both["start_us"].to_numpy()
    ends = starts + both["duration_us"].to_numpy()
    for row in rows:
        before = backward[np.searchsorted(starts[backward], starts[row], side="right") - 1] if len(backward) else -1
        if before >= 0 and starts[before] <= starts[row] < ends[before]:
            parent[row] = before
            self_us[before] -= both["duration_us"].iat[row]
    kept = (both["lane"] == lane).to_numpy() | _below(parent, set(rows[parent[rows] >= 0]))
    both["parent"], both["self_us"] = parent, self_us
    return _renumbered([both[kept]])


def _renumbered(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Frames whose parents are labels of their rows, as one in order of time whose parents are places."""
    import pandas as pd

    frame = pd.concat(parts)
    # a parent begins no later than its child, and lasts longer where both begin together
    frame = frame.iloc[np.lexsort((-frame["duration_us"].to_numpy(), frame["start_us"].to_numpy()))]
    places = pd.Series(np.arange(len(frame)), index=frame.index)
    parent = places.reindex(frame["parent"]).fillna(-1).astype(int).to_numpy()
    frame = frame.reset_index(drop=True)
    frame["parent"] = parent
    return frame


def _below(parent: np.ndarray, roots: set[int]) -> np.ndarray:
    marked = np.zeros(len(parent), dtype=bool)
    for row, above in enumerate(parent):
        marked[row] = row in roots or (above >= 0 and marked[above])
    return marked


def _phase(name: str) -> str | None:
    return name if name in PHASES else OF_TORCH.get(name.split("#")[0])


def _waits(frame: pd.DataFrame) -> np.ndarray:
    """Stretches in which numbers are read, joined where they are close."""
    reading = frame[frame["name"].isin(WAITS)]
    if reading.empty:
        return np.empty((0, 2))
    begin = reading["start_us"].to_numpy()
    end = np.maximum.accumulate(begin + reading["duration_us"].to_numpy())
    first = np.r_[True, begin[1:] > end[:-1] + ONE_WAIT_US]
    last = np.r_[first[1:], True]
    starts = frame["start_us"].to_numpy()
    begin = [_from_unbind(frame, starts, start) for start in begin[first]]
    return np.column_stack([begin, end[last]])


def _from_unbind(frame: pd.DataFrame, starts: np.ndarray, start: float) -> float:
    """Where a loop over a tensor's elements begins: torch makes a tensor of each before Python reads the first."""
    while (row := np.searchsorted(starts, start) - 1) >= 0:
        top = frame["top"].iat[row]
        if top < 0 or frame["name"].iat[top] != "aten::unbind":
            break
        start = starts[top]
    return start
