"""Five ways to choose a device for the job at the head of the queue, among those that admit it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.errors import UserError

if TYPE_CHECKING:  # the command line takes the policies' names from here, in a millisecond
    from labkit.sharing.packing.queue import JobProfile

Slowdown = Callable[[Sequence["JobProfile"]], list[float]]
"""From the profiles of the jobs on one device to how many times longer each takes than alone, in the same order."""
BUSIEST = 0.8
"""A GPU this busy takes no other job: CARMA's 80 % of SM activity."""
MIN_GAIN = 0.05
"""By what share the throughput of a device is to grow for another job to join: our choice."""


def slowdown_by_utilisation(profiles: Sequence[JobProfile]) -> list[float]:
    """How much longer each job takes beside the others, from utilisations alone: max(1, their sum) for all of them.

    The simplest model that conserves work. It knows no caches, no bandwidth and no launch gaps, so it is the most that
    sharing can give.

    >>> from labkit.sharing.packing.queue import JobProfile
    >>> light, heavy = JobProfile(2**30, 0.3), JobProfile(2**30, 0.9)
    >>> slowdown_by_utilisation([light, light]), slowdown_by_utilisation([light, heavy])
    ([1.0, 1.0], [1.2, 1.2])
    """
    demand = max(1.0, sum(profile.utilisation for profile in profiles))
    return [demand] * len(profiles)


@dataclass(frozen=True)
class PackingDevice:
    """A device as far as packing needs to know it."""

    name: str
    """Unique among the devices of a queue"""
    memory_bytes: int


@dataclass(frozen=True)
class DeviceState:
    """One device at one moment, as known to a policy: estimates, and what a monitor has seen; never the truth.

    A job that has just started is in the belief but not yet in the monitor's reading; one that was underestimated is in
    the reading but not in the belief. So the worse of the two counts.
    """

    device: PackingDevice
    profiles: tuple[JobProfile, ...] = ()
    """Of the jobs that run on it"""
    closed: bool = False
    """Whether a recovered job has it, or waits for it, alone"""
    monitored_free_bytes: float = math.inf
    """As last observed"""
    monitored_utilisation: float = 0.0

    @property
    def free_bytes(self) -> float:
        believed = self.device.memory_bytes - sum(profile.memory_estimate_bytes for profile in self.profiles)
        return min(believed, self.monitored_free_bytes)

    @property
    def utilisation(self) -> float:
        return max(sum(profile.utilisation for profile in self.profiles), self.monitored_utilisation)


@dataclass(frozen=True)
class Admission:
    """The preconditions that every policy shares; a policy then picks among the devices that pass.

    CARMA (arXiv 2508.19073) filters GPUs before it places: its released code skips those whose SM activity is 80 % or
    more, and those whose free memory is below the job's need.
    """

    margin_bytes: int = 0
    """Kept free on every device that jobs share, for fragmentation and contexts"""
    max_utilisation: float = BUSIEST
    """A device this busy takes no other job"""
    slowdown: Slowdown = slowdown_by_utilisation
    """What sharing is believed to cost"""

    def admits(self, profile: JobProfile, state: DeviceState, *, largest_bytes: int) -> bool:
        """Whether a job may start on a device now; `largest_bytes` is the memory of the largest device of all.

        A job that is believed to need more than that gets such a device alone rather than nothing: published estimators
        miss DLRM's memory by up to 76 times (CARMA), and a check before the start is the place to refuse.
        """
        if state.closed:
            return False
        need = profile.memory_estimate_bytes + self.margin_bytes
        if need > state.free_bytes:
            return not state.profiles and need > largest_bytes == state.device.memory_bytes
        if not state.profiles:
            return True
        together, before = self._rate((*state.profiles, profile)), self._rate(state.profiles)
        return state.utilisation < self.max_utilisation and together >= before * (1 + MIN_GAIN)

    def _rate(self, profiles: tuple[JobProfile, ...]) -> float:
        """Progress of all jobs of a device together, in seconds of a job alone each second."""
        return sum(1 / slowdown for slowdown in self.slowdown(profiles))


def cpu_admission(slowdown: Slowdown, margin_bytes: int = 0) -> Admission:
    """What a job must pass to join others on CPU cores: the memory, and a gain.

    A limit on utilisation, CARMA's for GPUs, would keep every core to one job: threads that take turns look busy
    whether there is something to gain or not.
    """
    return Admission(margin_bytes, math.inf, slowdown)


@dataclass(frozen=True)
class Policy:
    """A choice among the devices that admit a job."""

    name: str
    summary: str
    rank: Callable[[JobProfile, DeviceState, int], float | tuple[float, ...]]
    """From the job, a device and the number of steps from the last device chosen to a key; the smallest is chosen"""
    collocates: bool = True
    """Whether it puts a job beside another"""

    def choose(
        self, profile: JobProfile, states: Sequence[DeviceState], admission: Admission, last: int = -1
    ) -> int | None:
        """Position of the device on which the job starts now, the earlier one of equals, or None: it waits.

        `states` are those of all devices, in a fixed order; `last` is the position of the device chosen before.
        """
        largest_bytes = max(state.device.memory_bytes for state in states)
        ranks = {
            position: self.rank(profile, state, (position - last - 1) % len(states))
            for position, state in enumerate(states)
            if (self.collocates or not state.profiles) and admission.admits(profile, state, largest_bytes=largest_bytes)
        }
        return min(ranks, key=ranks.__getitem__, default=None)


@dataclass(frozen=True)
class OwnPolicy:
    """A policy that is one function of what is believed, and knows nothing of what jobs cost each other."""

    name: str
    place: Callable[[int, float, list[tuple[float, list[float]]]], int | None]
    """From the memory (bytes) and the utilisation of a job, and for each device its free bytes (none where it is
    closed) and the utilisations of its jobs, to the position of the device, or None"""

    def choose(
        self, profile: JobProfile, states: Sequence[DeviceState], admission: Admission, last: int = -1
    ) -> int | None:
        """As that of `Policy`, without its admission."""
        seen = [
            (0 if state.closed else state.free_bytes, [each.utilisation for each in state.profiles]) for state in states
        ]
        return self.place(profile.memory_estimate_bytes, profile.utilisation, seen)


_ALL = (
    Policy("exclusive", "a device for each job", lambda job, device, steps: 0, collocates=False),
    Policy("round-robin", "the next device in turn", lambda job, device, steps: steps),
    Policy(
        "most-free-memory",
        "the device with the most free memory (CARMA's MAGM)",
        lambda job, device, steps: -device.free_bytes,
    ),
    Policy(
        "least-utilised",
        "the least busy device (CARMA's LUG)",
        lambda job, device, steps: (device.utilisation, -device.free_bytes),
    ),
    Policy(
        "best-fit",
        "the device whose free memory it leaves least of",
        lambda job, device, steps: device.free_bytes - job.memory_estimate_bytes,
    ),
)
POLICIES = {policy.name: policy for policy in _ALL}
"""By name, `exclusive` first: it is what the others are held against. Names of CARMA, arXiv 2508.19073."""


def get_policy(name: str) -> Policy:
    """A policy by its name; a UserError where there is none of it."""
    if name not in POLICIES:
        raise UserError(f"policy {name!r} is unknown: choose one of {', '.join(POLICIES)}.")
    return POLICIES[name]
