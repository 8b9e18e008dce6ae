"""Where a workload is to run: its device, what else this machine has, and what one job gets of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from labkit.errors import UserError
from labkit.hardware import Device, Nvml, find_device, read_cpu
from labkit.sharing.plan.planned_job import PlannedJob

Refusal = tuple[str | None, str]
"""The job that cannot run so, or None where the mode itself cannot be had, and why."""


@dataclass(frozen=True)
class Share:
    """What binds the process of one job."""

    device: str
    """In words: the GPU, the slice, or the cores"""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that bind it, CUDA_VISIBLE_DEVICES for one; an empty value takes a variable away"""
    cores: tuple[int, ...] | None = None
    """CPU cores that it is bound to; None leaves it all"""
    memory_bytes: int | None = None
    """Cap on its memory, or None"""
    torch_name: str = "cpu"
    """What torch calls the device in the job's process"""


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
        """The device that a job asks for, else the plan's; a UserError where there is no such device."""
        return self.device if job.device is None else find_device(job.device, self.devices)

    def refusals(self, jobs: Sequence[PlannedJob], against: Callable[[Device, int], list[str]]) -> list[Refusal]:
        """Jobs whose device there is not, and what is against each device, given how many of them it would have.

        Without jobs it is the plan's device that is looked at.
        """
        count, refused = Counter(), []
        for job in jobs:
            try:
                count[self.device_of(job)] += 1
            except UserError as error:
                refused.append((job.name, str(error)))
        for device in count or [self.device]:
            refused += [(None, reason) for reason in against(device, count[device])]
        return refused


def free_bytes(where: str, nvml: Nvml) -> int | None:
    """Free memory of the CPU, "cpu", or of a GPU or slice, its UUID; None where it is not known."""
    if where == "cpu":
        return read_cpu().memory_available_bytes
    handle = nvml.read("nvmlDeviceGetHandleByUUID", where)
    memory = handle if handle.reason else nvml.read("nvmlDeviceGetMemoryInfo", handle.value)
    return None if memory.reason else memory.value.free
