"""What the rules work on: the time of each operator in a step and what no rule has claimed yet; and their findings.

The bound on the gain from removing a bottleneck is Amdahl's (AFIPS 1967).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit import hardware
from labkit.profiling.over_time import within
from labkit.profiling.step_time import IDLE, OWN_IDLENESS, StepTime
from labkit.profiling.tools import OTHER
from labkit.profiling.work import Work, operator_work

SHORT_LAUNCHES = 10
"""A call is short, mostly overhead, if its own time is below this many times the cost of a launch."""


@dataclass(frozen=True)
class Finding:
    """One bottleneck."""

    name: str
    """One of `rules.TEXTS`"""
    evidence: str
    """What was measured, with figures"""
    advice: str
    claimed_share: float
    """Share of the step that belongs to this finding and to no other; findings are sorted by it"""
    share: float
    """Largest share of the step that fixing it can save; others may claim part of it too: larger batches, for example,
    also spread the cost of lookups"""

    @property
    def bound(self) -> float:
        """Largest possible speed-up of training: 1 / (1 − share)."""
        return 1 / (1 - self.share) if self.share < 1 else np.inf

    @property
    def bound_text(self) -> str:
        """The same as text: 1.86×."""
        return "over 100×" if self.bound > 100 else f"{self.bound:.3g}×"


@dataclass(frozen=True)
class GpuTime:
    """How a GPU spent one step, in microseconds."""

    idle_us: float
    copy_us: float
    """Time in which it only copied or communicated"""
    launched_us: np.ndarray
    """(N,): run time of the kernels that each operator, with everything it called, launched in all steps"""


@dataclass(frozen=True)
class Faults:
    """Minor page faults of one step: first touches of fresh pages of memory."""

    unprofiled: float
    """Number in an unprofiled step"""
    by_phase: dict[str, float]
    """Number in a profiled step by phase, including those that the profiler causes"""
    cost_us: float
    """Time of one fault on this machine, measured right after the steps"""

    @property
    def profiled(self) -> float:
        return sum(self.by_phase.values())

    @property
    def in_words(self) -> str:
        """The figures as text."""
        counts = f"{self.unprofiled:,.0f} page faults per step unprofiled, {self.profiled:,.0f} profiled"
        return f"{counts}, {self.cost_us:.2g} µs each (measured)"


@dataclass
class Case:
    """What the rules work on."""

    time: StepTime
    limits: "hardware.Calibration"
    device: GpuTime | None = None
    """None if the CPU computes"""
    overhead: float = 1.0
    """Time of a profiled step over that of an unprofiled one"""
    faults: Faults | None = None
    """None if they were not counted"""

    def __post_init__(self):
        events = self.time.events
        self.plain_us = self.time.step_us / max(1.0, self.overhead)
        # the profiler's own time is spread evenly over the events that it records
        self.event_us = (self.time.step_us - self.plain_us) * self.time.steps / max(1, len(events))
        self.short_us = SHORT_LAUNCHES * self.limits.launch_us
        # the median of like calls decides whether one is short: other programs interrupt some
        numbers: dict[tuple, int] = {}
        alike = [numbers.setdefault(inputs.shapes, len(numbers)) for inputs in events["inputs"]]
        groups = events.assign(shapes=alike).groupby(["name", "phase", "shapes"], observed=True)
        own_us = groups["self_us"].transform("median")
        self.short = own_us.to_numpy() < self.short_us
        self.phase = events["phase"].to_numpy()
        self.counts = ~np.isin(self.phase, OWN_IDLENESS)
        """Operators outside of phases that are a finding as a whole"""
        left = 1 - self.time.idle_share
        self.self_us = events["self_us"].to_numpy() / self.time.steps * np.where(self.counts, left, 1.0)
        """(N,) own time of each operator in one step, without idle time"""
        self.phase_us = self.time.phase_us
        self.python_us = {
            name: max(0.0, us - float(self.self_us[self.phase == name].sum()))
            for name, us in self.phase_us.items()
            if name not in (*OWN_IDLENESS, IDLE)
        }
        """Time outside of operators, by phase"""
        self.fault_us = 0.0 if self.faults is None else self._without_faults(self.faults)
        self.open = self.counts.copy()
        """Operators that no rule has claimed yet"""
        self.open_python_us = dict(self.python_us)

    def _without_faults(self, found: Faults) -> float:
        """Take the time of page faults out of the phases: from long operators first, then from Python."""
        # faults that the profiler causes are not the step's
        own = min(1.0, found.unprofiled / found.profiled) if found.profiled else 0.0
        taken_us = 0.0
        for name, faults in found.by_phase.items():
            phase = name if name in self.phase_us else OTHER
            us = min(own * faults * found.cost_us, self.phase_us[phase])
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
        """Claim operators, and return their own time in one step."""
        rows = rows & self.open
        self.open &= ~rows
        return float(self.self_us[rows].sum())

    def claim_python(self, phase: str, us: float) -> float:
        """Claim time outside of operators, at most what is left of it, and return it."""
        left = self.open_python_us.get(phase, 0.0)
        self.open_python_us[phase] = max(0.0, left - us)
        return min(us, left)

    def between_us(self, rows: np.ndarray, nearest_us: float) -> dict[str, float]:
        """Time outside of operators between operators that follow each other closely, in one step, by phase."""
        begin = self.time.events["start_us"].to_numpy()
        end = begin + self.time.events["duration_us"].to_numpy()
        self_until, places = np.r_[0.0, np.cumsum(self.self_us)], np.flatnonzero(rows)
        left, right = end[places[:-1]], begin[places[1:]]
        first, last = np.searchsorted(begin, [left, right])
        free_us = np.maximum((right - left) / self.time.steps - (self_until[last] - self_until[first]), 0.0)
        near = (right > left) & (right - left <= nearest_us)
        return pd.Series(free_us[near]).groupby(self.phase[places[1:]][near]).sum().to_dict()

    def calls(self, rows: np.ndarray) -> float:
        """Number of calls in one step."""
        return rows.sum() / self.time.steps

    def named(self, *names: str) -> np.ndarray:
        return self.time.events["name"].isin(names).to_numpy()

    def below(self, roots: np.ndarray) -> np.ndarray:
        """The roots and everything they call."""
        return roots | within(roots, self.time.events["parent"].to_numpy())

    def work(self, rows: np.ndarray) -> Work:
        """Work of operators in one step; those without a formula count as none."""
        names, inputs = self.time.events["name"], self.time.events["inputs"]
        works = [operator_work(names[row], inputs[row]) or Work(0, 0) for row in np.flatnonzero(rows)]
        return Work(*(sum(part) / self.time.steps for part in zip((0, 0), *works, strict=True)))
