"""A step as the rules look at it: what each operator took, and what no rule has claimed yet; and what they find.

The bound of what mending a bottleneck can gain is Amdahl's (AFIPS 1967).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from labkit.hardware import Calibration
from labkit.profiling.step_time import IDLE, OTHER, OWN_IDLENESS, StepTime
from labkit.profiling.traces.nesting import within
from labkit.profiling.work import Inputs, Work, operator_work

SHORT_LAUNCHES = 10
"""A call whose own time is shorter than so many times the cost of asking is hardly there for its arithmetic."""


@dataclass(frozen=True)
class Finding:
    """One bottleneck."""

    name: str
    """One of those in `rules.TEXTS`"""
    evidence: str
    """What was seen, with its figures"""
    advice: str
    claimed_share: float
    """Of the step: what belongs to this finding and to no other; findings are sorted by it"""
    share: float
    """Of the step: what mending it can save at most, which may be what others claim, too: larger batches, say, also
    spread the cost of lookups"""

    @property
    def bound(self) -> float:
        """How many times as fast training becomes at most: 1 / (1 − share)."""
        return 1 / (1 - self.share) if self.share < 1 else np.inf

    @property
    def bound_text(self) -> str:
        """The same in figures: 1.86×."""
        return "over 100×" if self.bound > 100 else f"{self.bound:.3g}×"


@dataclass(frozen=True)
class GpuTime:
    """How a GPU spent one step, in microseconds."""

    idle_us: float
    copy_us: float
    """Only copied and communicated"""
    launched_us: np.ndarray
    """(N,): of the kernels that each operator and what it called launched, over all steps"""


@dataclass(frozen=True)
class Faults:
    """Minor page faults of one step: pages of fresh memory that were touched for the first time."""

    unprofiled: float
    """In a step that nobody looked at"""
    by_phase: dict[str, float]
    """In one that was profiled, by the clock's name of its phase; the profiler's own are among them"""
    cost_us: float
    """What one takes on this machine, measured right after the steps"""

    @property
    def profiled(self) -> float:
        return sum(self.by_phase.values())

    @property
    def in_words(self) -> str:
        """The figures in a sentence."""
        counts = f"{self.unprofiled:,.0f} page faults a step unprofiled, {self.profiled:,.0f} profiled"
        return f"{counts}, of {self.cost_us:.2g} µs each (measured)"


@dataclass
class Case:
    """What the rules look at."""

    time: StepTime
    card: Calibration
    idle_us: float = 0.0
    """Of one step, outside of input and sync, in which the process had no core"""
    device: GpuTime | None = None
    """None where the CPU computes"""
    overhead: float = 1.0
    """A step's time over that of one that nobody looks at"""
    faults: Faults | None = None
    """None where they were not counted"""

    def __post_init__(self):
        events = self.time.events
        self.plain_us = self.time.step_us / max(1.0, self.overhead)
        # what looking makes a step longer is spread over the events that are written down
        self.event_us = (self.time.step_us - self.plain_us) * self.time.steps / max(1, len(events))
        self.short_us = SHORT_LAUNCHES * self.card.launch_us
        # a call is as short as most of its kind are: other programs interrupt some
        own_us = events.groupby(["name", "phase", "shapes"], observed=True)["self_us"].transform("median")
        self.short = own_us.to_numpy() < self.short_us
        self.phase = events["phase"].to_numpy()
        self.counts = ~np.isin(self.phase, OWN_IDLENESS)
        """Operators that are not part of a finding of their own phase"""
        left = 1 - self.time.idle_share(self.idle_us)
        self.self_us = events["self_us"].to_numpy() / self.time.steps * np.where(self.counts, left, 1.0)
        """(N,) of each operator in one step, without what was idle"""
        self.phase_us = self.time.phase_us(self.idle_us)
        self.python_us = {
            name: max(0.0, us - float(self.self_us[self.phase == name].sum()))
            for name, us in self.phase_us.items()
            if name not in (*OWN_IDLENESS, IDLE)
        }
        """Time outside of operators, by phase"""
        self.fault_us = self._without_faults() if self.faults is not None else 0.0
        self.open = self.counts.copy()
        """Operators that no rule has claimed"""
        self.open_python_us = dict(self.python_us)

    def _without_faults(self) -> float:
        """Take the time of page faults from phases, and there from long operators, or else from Python."""
        # those of the profiler are none of the step's
        own = min(1.0, self.faults.unprofiled / self.faults.profiled) if self.faults.profiled else 0.0
        taken_us = 0.0
        for name, faults in self.faults.by_phase.items():
            phase = name if name in self.phase_us else OTHER
            us = min(own * faults * self.faults.cost_us, self.phase_us[phase])
            rows = ~self.short & (self.phase == phase)
            long_us = float(self.self_us[rows].sum())
            from_long_us = min(us, long_us)
            self.self_us[rows] *= 1 - from_long_us / long_us if long_us else 1.0
            if phase in self.python_us:
                us = from_long_us + min(us - from_long_us, self.python_us[phase])
                self.python_us[phase] -= us - from_long_us
            self.phase_us[phase] -= us
            taken_us += us
        return taken_us

    def claim(self, rows: np.ndarray) -> float:
        """Claim operators; their own time in one step."""
        rows = rows & self.open
        self.open &= ~rows
        return float(self.self_us[rows].sum())

    def claim_python(self, phase: str, us: float) -> float:
        """Claim time outside of operators, as far as it is there."""
        left = self.open_python_us.get(phase, 0.0)
        self.open_python_us[phase] = max(0.0, left - us)
        return min(us, left)

    def between_us(self, rows: np.ndarray, nearest_us: float) -> dict[str, float]:
        """Time outside of operators between those that follow each other closely, in one step, by phase."""
        begin = self.time.events["start_us"].to_numpy()
        end = begin + self.time.events["duration_us"].to_numpy()
        self_until = np.r_[0.0, np.cumsum(self.self_us)]
        found: dict[str, float] = {}
        for before, row in pairwise(np.flatnonzero(rows)):
            left, right = end[before], begin[row]
            if 0 < right - left <= nearest_us:
                first, last = np.searchsorted(begin, [left, right])
                free_us = (right - left) / self.time.steps - (self_until[last] - self_until[first])
                found[self.phase[row]] = found.get(self.phase[row], 0.0) + max(0.0, free_us)
        return found

    def calls(self, rows: np.ndarray) -> float:
        """In one step."""
        return rows.sum() / self.time.steps

    def named(self, *names: str) -> np.ndarray:
        return self.time.events["name"].isin(names).to_numpy()

    def below(self, roots: np.ndarray) -> np.ndarray:
        """The roots and all they call."""
        return roots | within(roots, self.time.events["parent"].to_numpy())

    @cached_property
    def inputs(self) -> list[Inputs]:
        """Of each event; empty where they were not recorded."""
        columns = (self.time.events[name].astype(str) for name in ("shapes", "types", "values"))
        kinds = list(zip(*columns, strict=True))
        parsed = {kind: Inputs(*(ast.literal_eval(text or "[]") for text in kind)) for kind in set(kinds)}
        return [parsed[kind] for kind in kinds]

    def work(self, rows: np.ndarray) -> Work:
        """Of operators, in one step; none of those of which it is not known."""
        names = self.time.events["name"]
        works = [operator_work(names[row], self.inputs[row]) or Work(0, 0) for row in np.flatnonzero(rows)]
        return Work(*(sum(part) / self.time.steps for part in zip((0, 0), *works, strict=True)))
