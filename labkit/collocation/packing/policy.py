"""Five ways to choose a device for the job at the head of the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.collocation.packing.admission import Admission
from labkit.collocation.packing.device_state import DeviceState
from labkit.collocation.packing.job_profile import JobProfile
from labkit.errors import UserError

Rank = Callable[[JobProfile, DeviceState, int], tuple[float, ...]]
"""From the job, a device and the number of steps from the last device chosen to a key; the smallest is chosen."""


@dataclass(frozen=True)
class Policy:
    """A choice among the devices that admit a job."""

    name: str
    summary: str
    """One line, for tables"""
    collocates: bool
    """Whether it puts a job beside another"""
    rank: Rank

    def choose(
        self, profile: JobProfile, states: Sequence[DeviceState], *, last: int = -1, admission: Admission | None = None
    ) -> int | None:
        """Position of the device on which the job starts now, or None: it waits.

        Args:
            profile: of the job.
            states: of all devices, in a fixed order; the earlier one wins a tie.
            last: position of the device chosen before; -1 at the beginning.
            admission: the preconditions.
        """
        admission = admission or Admission()
        largest_bytes = max(state.device.memory_bytes for state in states)
        open_to_it = [
            position
            for position, state in enumerate(states)
            if (self.collocates or not state.profiles)
            and admission.refusal(profile, state, largest_bytes=largest_bytes) is None
        ]
        steps = {position: (position - last - 1) % len(states) for position in open_to_it}
        return min(
            open_to_it,
            key=lambda position: (*self.rank(profile, states[position], steps[position]), position),
            default=None,
        )


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("exclusive", "a device for each job", False, lambda profile, state, steps: ()),
        Policy("round-robin", "the next device in turn", True, lambda profile, state, steps: (steps,)),
        Policy(
            "most-free-memory",
            "the device with the most free memory (CARMA's MAGM)",
            True,
            lambda profile, state, steps: (-state.free_bytes,),
        ),
        Policy(
            "least-utilised",
            "the least busy device (CARMA's LUG)",
            True,
            lambda profile, state, steps: (state.utilisation, -state.free_bytes),
        ),
        Policy(
            "best-fit",
            "the device whose free memory it leaves least of",
            True,
            lambda profile, state, steps: (state.free_bytes - profile.memory_estimate_bytes,),
        ),
    )
}
"""By name, `exclusive` first: it is what the others are held against. Names of CARMA, arXiv 2508.19073."""


def get_policy(name: str) -> Policy:
    """A policy by its name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in POLICIES:
        raise UserError(f"policy {name!r} is unknown: choose one of {', '.join(POLICIES)}.")
    return POLICIES[name]
