"""The devices that a queue is packed onto, and what a policy sees of each."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.collocation.packing.job_profile import JobProfile
from labkit.errors import UserError
from labkit.hardware.device import Device


@dataclass(frozen=True)
class PackingDevice:
    """A device as far as packing needs to know it."""

    name: str
    """A UUID, or what torch calls it; unique among the devices of a queue"""
    memory_bytes: int

    def __post_init__(self):
        if self.memory_bytes <= 0:
            raise UserError(f"device {self.name}: its memory is {self.memory_bytes} bytes: give a size above zero.")

    @classmethod
    def of(cls, device: Device) -> PackingDevice:
        """A device of this machine: a CPU, a GPU or a MIG slice.

        Raises:
            UserError: its memory could not be read.
        """
        name = device.uuid or device.torch_name or device.kind
        if device.memory_bytes is None:
            why = device.missing.get("memory_bytes", "its driver does not say")
            raise UserError(
                f"device {name}: its memory is unknown ({why}), so no job can be fitted to it: leave it out."
            )
        return cls(name, device.memory_bytes)


@dataclass(frozen=True)
class DeviceState:
    """One device at one moment, as known to a policy: estimates, and what a monitor has seen; never the truth."""

    device: PackingDevice
    profiles: tuple[JobProfile, ...] = ()
    """Of the jobs that run on it"""
    closed: bool = False
    """Whether a recovered job has it, or waits for it, alone"""
    monitored_free_bytes: int | None = None
    """As last observed; None where nobody looks"""
    monitored_utilisation: float | None = None

    @property
    def free_bytes(self) -> int:
        """Free memory as believed or as monitored, whichever is less.

        A job that has just started is in the belief but not yet in the monitor's reading; one that was underestimated
        is in the reading but not in the belief.
        """
        believed = self.device.memory_bytes - sum(profile.memory_estimate_bytes for profile in self.profiles)
        return believed if self.monitored_free_bytes is None else min(believed, self.monitored_free_bytes)

    @property
    def utilisation(self) -> float:
        """Sum of the jobs' shares, or as monitored, whichever is more, for the same reason."""
        believed = sum(profile.utilisation for profile in self.profiles)
        return max(believed, self.monitored_utilisation or 0.0)
