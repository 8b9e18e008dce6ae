"""A step as the rules look at it: what each operator took, and what no rule has claimed yet; and what they find.

The bound of what mending a bottleneck can gain is Amdahl's (AFIPS 1967).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labkit.hardware.calibration import Calibration
from labkit.profiling.step_time import IDLE, OTHER, OWN_IDLENESS, StepTime
from labkit.profiling.work import Inputs, Work, operator_work

SHORT_LAUNCHES = 10
"""A call whose own time is shorter than so many times the cost of asking is hardly there for its arithmetic."""


@dataclass(frozen=True)
class Finding:
    """One bottleneck."""

    name: str
    """"page faults", "input", "between steps", "sync", "idle", "host-to-device", "lookups", "optimiser calls",
    "precision", "batch size", "python"."""
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
class Claim:
    """What a rule claims of a step."""

    name: str
    evidence: str
    advice: str
    us: float
    """Of one step, that no rule has claimed before"""
    most_us: float | None = None
    """Of one step, what it can save with what others claim; None where that is the same"""
    events: int = 0
    """Written down by the profiler in that time, in one step"""
    needs_idle_device: bool = False
    """Whether only the host gets quicker: then a GPU that is busy meanwhile keeps the step as long as it is"""


@dataclass(frozen=True)
class Device:
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
        """The figures in a sentence.

        >>> Faults(935, {"forward": 500.0, "": 73.0}, 1.42).in_words
        '935 page faults a step unprofiled, 573 profiled, of 1.4 µs each (measured)'
        """
        return (
            f"{self.unprofiled:,.0f} page faults a step unprofiled, {self.profiled:,.0f} profiled, of "
            f"{self.cost_us:.2g} µs each (measured)"
        )


@dataclass
class Case:
    """What the rules look at."""

    time: StepTime
    card: Calibration
    idle_us: float = 0.0
    """Of one step, outside of input and sync, in which the process had no core"""
    device: Device | None = None
    """None where the CPU computes"""
    event_cost_us: float = 0.0
    """What the profiler takes to write an event down"""
    faults: Faults | None = None
    """None where they were not counted"""

    def __post_init__(self):
        events = self.time.events
        self.short_us = SHORT_LAUNCHES * self.card.launch_us
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
        """Of one step, that its own page faults took; it is in none of the times above and below"""
        self.open = self.counts.copy()
        """Operators that no rule has claimed"""
        self.open_python_us = dict(self.python_us)
        self.short = events["self_us"].to_numpy() < self.short_us
        self._self_until = np.r_[0.0, np.cumsum(self.self_us)]

    def _without_faults(self) -> float:
        """Take the time of page faults from phases, and there from long operators, or else from Python."""
        # those of the profiler are none of the step's
        own = min(1.0, self.faults.unprofiled / self.faults.profiled) if self.faults.profiled else 0.0
        long = self.time.events["self_us"].to_numpy() >= self.short_us
        taken_us = 0.0
        for name, faults in self.faults.by_phase.items():
            phase = name if name in self.phase_us else OTHER
            us = min(own * faults * self.faults.cost_us, self.phase_us[phase])
            rows = long & (self.phase == phase)
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
        us = min(us, self.open_python_us.get(phase, 0.0))
        if us > 0:
            self.open_python_us[phase] -= us
        return max(us, 0.0)

    def between_us(self, rows: np.ndarray, nearest_us: float) -> dict[str, float]:
        """Time outside of operators between those that follow each other closely, in one step, by phase."""
        events = self.time.events
        place = np.flatnonzero(rows)
        begin = events["start_us"].to_numpy()[place]
        end = begin + events["duration_us"].to_numpy()[place]
        starts = events["start_us"].to_numpy()
        found: dict[str, float] = {}
        for left, right, row in zip(end[:-1], begin[1:], place[1:], strict=True):
            if 0 < right - left <= nearest_us:
                first, last = np.searchsorted(starts, [left, right])
                free = (right - left) / self.time.steps - (self._self_until[last] - self._self_until[first])
                found[self.phase[row]] = found.get(self.phase[row], 0.0) + max(0.0, free)
        return found

    def named(self, names: tuple[str, ...]) -> np.ndarray:
        return self.time.events["name"].isin(names).to_numpy()

    def below(self, roots: np.ndarray) -> np.ndarray:
        """The roots and all they call."""
        marked = roots.copy()
        for row, parent in enumerate(self.time.events["parent"].tolist()):
            if parent >= 0 and marked[parent]:
                marked[row] = True
        return marked

    def work(self, row: int) -> Work:
        """Of an operator; none where it is not known."""
        event = self.time.events.iloc[row]
        if not event["shapes"]:
            return Work(0, 0)
        inputs = Inputs(*(ast.literal_eval(event[column]) for column in ("shapes", "types", "values")))
        return operator_work(event["name"], inputs) or Work(0, 0)

    @cached_property
    def sizes(self) -> list[list]:
        """Of each event's inputs; empty where they were not recorded."""
        texts = self.time.events["shapes"].astype(str)
        parsed = {text: ast.literal_eval(text) if text else [] for text in texts.unique()}
        return [parsed[text] for text in texts]

    def percent(self, us: float) -> str:
        return f"{us / self.time.step_us:.0%} of the step"

    def finding(self, claim: Claim) -> Finding:
        """A claim as shares of the step.

        In a step that nobody looks at, what has few events is a larger share; the bound is that of such a step, if
        it is the larger one.
        """
        step_us = self.time.step_us
        most_us = claim.us if claim.most_us is None else max(claim.us, claim.most_us)
        plain_us = step_us - self.event_cost_us * len(self.self_us) / self.time.steps
        share = most_us / step_us
        if plain_us > 0:
            share = max(share, (most_us - self.event_cost_us * claim.events) / plain_us)
        claimed = claim.us / step_us
        if claim.needs_idle_device and self.device is not None:
            most = self.device.idle_us / step_us
            claimed, share = min(claimed, most), min(share, most)
        return Finding(claim.name, claim.evidence, claim.advice, claimed, min(share, 1.0))
