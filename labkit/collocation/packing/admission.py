"""Whether a job may join a device: memory first, then what the sharing is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.collocation.packing.device_state import DeviceState
from labkit.collocation.packing.job_profile import JobProfile, slowdown_by_utilisation
from labkit.errors import UserError
from labkit.hardware.sizes import size_text

Slowdown = Callable[[Sequence[JobProfile]], list[float]]
"""From the profiles of the jobs on one device to how many times longer each takes than alone, in the same order."""


@dataclass(frozen=True)
class Admission:
    """The preconditions that every policy shares; a policy then picks among the devices that pass.

    CARMA (arXiv 2508.19073) filters GPUs before it places: its released code skips those whose SM activity is 80 % or
    more, and those whose free memory is below the job's need (or below 5 GB where it has no estimate).
    """

    margin_bytes: int = 0
    """Kept free on every device that jobs share, for fragmentation and contexts"""
    max_utilisation: float = 0.8
    """A device this busy takes no other job; CARMA's 80 %"""
    min_gain: float = 0.05
    """By what share the predicted throughput of the device must grow for another job to join"""
    slowdown: Slowdown = slowdown_by_utilisation
    """Predicts the interference"""

    def __post_init__(self):
        if self.margin_bytes < 0:
            raise UserError(f"margin is {self.margin_bytes} bytes: give a size from zero, such as 500MiB.")
        if not self.max_utilisation > 0:
            raise UserError(f"max_utilisation is {self.max_utilisation:g}: give a number above 0; CARMA takes 0.8.")

    def refusal(self, profile: JobProfile, state: DeviceState, *, largest_bytes: int) -> str | None:
        """Why a job may not start on a device now; None if it may.

        Args:
            profile: of the job.
            state: of the device.
            largest_bytes: memory of the largest device of all. A job that is believed to need more than that gets such
                a device alone rather than nothing: published estimators miss DLRM's memory by up to 76 times (CARMA),
                and a check before the start is the place to refuse.
        """
        if state.closed:
            return "kept for a job that ran out of memory"
        need, free = profile.memory_estimate_bytes, state.free_bytes - self.margin_bytes
        if need > free:
            hopeless = need > largest_bytes - self.margin_bytes and state.device.memory_bytes == largest_bytes
            if state.profiles or not hopeless:
                return f"needs {size_text(need)}, and {size_text(max(0, free))} of it is free"
        if not state.profiles:
            return None
        if state.utilisation >= self.max_utilisation:
            return f"{state.utilisation:.0%} busy, and {self.max_utilisation:.0%} is the limit"
        gain = self._rate((*state.profiles, profile)) / self._rate(state.profiles) - 1
        if gain < self.min_gain:
            return f"sharing would change its throughput by {gain:+.0%}, and {self.min_gain:+.0%} is asked for"
        return None

    def _rate(self, profiles: tuple[JobProfile, ...]) -> float:
        """Progress of all jobs of a device together, in seconds of a job alone each second."""
        return sum(1 / slowdown for slowdown in self.slowdown(profiles))
