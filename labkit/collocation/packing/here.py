"""What a queue finds on this machine: what is recorded of jobs on its devices, and what decides who may join whom."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.collocation.checking.memory_need import job_memory
from labkit.collocation.packing.admission import Admission
from labkit.collocation.packing.live_device import LiveDevice
from labkit.collocation.packing.queue_check import QueueCheck, check_queue_here
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.recorded_profiles import (
    RecordedProfiles,
    cpu_admission,
    read_recorded,
    shared_slowdown,
)


def on_cpu(live: Sequence[LiveDevice]) -> bool:
    """Whether the devices of a queue are the CPU or its partitions; they are all of one kind."""
    return live[0].device.kind == "cpu"


def recorded_of(live: Sequence[LiveDevice]) -> RecordedProfiles | None:
    """The profiles that ship with labkit, which are of a CPU; None for GPUs."""
    return read_recorded() if on_cpu(live) else None


def is_recorded_here(recorded: RecordedProfiles | None, live: Sequence[LiveDevice]) -> bool:
    """Whether profiles were recorded on such a machine as this one, so that all of their numbers hold here."""
    cpu = live[0].device
    return recorded is not None and (recorded.machine.device, recorded.machine.cores) == (cpu.name, cpu.cores)


def check_here(queue: Sequence[QueuedJob], live: Sequence[LiveDevice]) -> QueueCheck:
    """Check a queue against these devices, with the memory of their first steps and what ships of recorded profiles."""
    kind = "cpu" if on_cpu(live) else "cuda"
    recorded = recorded_of(live)
    return check_queue_here(
        queue,
        [each.packing for each in live],
        lambda job: job_memory(job, kind),
        recorded,
        here=is_recorded_here(recorded, live),
    )


def admission_here(live: Sequence[LiveDevice], mode: str, margin_bytes: int = 0) -> Admission:
    """Who may join whom: by the interference model where jobs were profiled on such a machine, else by utilisations."""
    if not on_cpu(live):
        return Admission(margin_bytes)
    recorded = recorded_of(live)
    machine = recorded.machine if is_recorded_here(recorded, live) else None
    return cpu_admission(shared_slowdown(machine, mode, live[0].cores / live[0].device.cores), margin_bytes)
