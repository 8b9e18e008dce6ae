"""A packing policy that a student writes as one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.sharing import Admission, DeviceState, JobProfile


@dataclass(frozen=True)
class OwnPolicy:
    """A policy that is one function of what is believed, and knows nothing of what jobs cost each other."""

    name: str
    place: Callable[[int, float, list[tuple[float, list[float]]]], int | None]
    """From the memory (bytes) and the utilisation of a job, and for each device its free bytes (none where it is
    closed) and the utilisations of its jobs, to the position of the device, or None"""

    def choose(self, profile: JobProfile, states: Sequence[DeviceState], admission: Admission) -> int | None:
        """Like that of `labkit.sharing.packing.Policy`, without its admission."""
        seen = [
            (0 if state.closed else state.free_bytes, [each.utilisation for each in state.profiles]) for state in states
        ]
        return self.place(profile.memory_estimate_bytes, profile.utilisation, seen)
