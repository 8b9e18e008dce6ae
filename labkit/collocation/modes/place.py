"""Where a workload is to run: its device, what else this machine has, and what is known of its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labkit.collocation.modes.device_choice import find_device
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml

Refusal = tuple[str | None, str]
"""The job that cannot run so, or None where the mode itself cannot be had, and why."""


@dataclass(frozen=True)
class Place:
    """What every mode looks at."""

    device: Device
    """The plan's"""
    devices: Sequence[Device]
    """All that there are, the CPU first"""
    nvml: Nvml
    """An open session"""
    needs: Mapping[str, int] = field(default_factory=dict)
    """Bytes that each job is estimated to take, by its name"""
    spin: bool = False
    """Whether idle CPU threads wait busily"""
    quiet: bool | None = None
    """Whether other programs leave the CPU alone; None looks"""

    def need(self, job: PlannedJob) -> int | None:
        """Bytes of memory that count for a job: what was asked for, else the estimate; None where neither is known."""
        return job.memory_bytes or self.needs.get(job.name)

    def device_of(self, job: PlannedJob) -> Device:
        """The device that a job asks for, else the plan's.

        Raises:
            UserError: there is no such device.
        """
        return self.device if job.device is None else find_device(job.device, self.devices)

    def devices_of(self, jobs: Sequence[PlannedJob]) -> tuple[dict[str, Device], list[Refusal]]:
        """The device of each job by its name, and a refusal for each job whose device there is not."""
        found, refused = {}, []
        for job in jobs:
            try:
                found[job.name] = self.device_of(job)
            except UserError as error:
                refused.append((job.name, str(error)))
        return found, refused
