"""What one job asks of a device when it has it for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.errors import UserError
from labkit.runs.record import KINDS


@dataclass(frozen=True)
class JobProfile:
    """A job alone on one device. The scheduler decides on the estimate; the simulator also knows the truth.

    Sharing changes how long a job takes, not what it computes: its accuracy is the same in every schedule.
    """

    memory_estimate_bytes: int
    """Peak memory as believed before the job runs; a policy sees this one only"""
    utilisation: float
    """Share of the device that it keeps busy, above 0 and up to 1: SM activity on a GPU, share of the cores on a CPU"""
    duration_s: float | None = None
    """Wall time; None where it never ran"""
    memory_bytes: int | None = None
    """Peak memory in truth; None where it never ran"""
    provenance: str = "predicted"
    """measured, recorded, emulated or predicted"""
    note: str = ""
    """Where the numbers are from"""
    solo: SoloProfile | None = None
    """What the interference model needs to know; None leaves it with the utilisation"""

    def __post_init__(self):
        if not 0 < self.utilisation <= 1:
            raise UserError(f"utilisation is {self.utilisation:g}: give a share of the device above 0 and up to 1.")
        if self.duration_s is not None and not 0 < self.duration_s < float("inf"):
            raise UserError(f"duration is {self.duration_s:g}: give a number of seconds above zero.")
        for name in ("memory_bytes", "memory_estimate_bytes"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise UserError(f"{name} is {getattr(self, name)}: give a size above zero, such as 2GiB.")
        if self.provenance not in KINDS:
            raise UserError(f"provenance {self.provenance!r} is unknown: choose one of {', '.join(KINDS)}.")


def slowdown_by_utilisation(profiles: Sequence[JobProfile]) -> list[float]:
    """How much longer each job takes beside the others, from utilisations alone: max(1, their sum) for all of them.

    The simplest model that conserves work: a device does one second of work a second, jobs that want no more than that
    do not feel each other, and jobs that want more are held back in the same proportion. It knows no caches, no
    bandwidth and no launch gaps, so it is the most that sharing can give; a fitted model takes its place where there
    is one.

    >>> light, heavy = JobProfile(2**30, 0.3), JobProfile(2**30, 0.9)
    >>> slowdown_by_utilisation([light, light]), slowdown_by_utilisation([light, heavy])
    ([1.0, 1.0], [1.2, 1.2])
    """
    demand = max(1.0, sum(profile.utilisation for profile in profiles))
    return [demand] * len(profiles)
