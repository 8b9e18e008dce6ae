"""A bottleneck, and the bound of what mending it can gain (Amdahl, AFIPS 1967)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
