"""Jobs and devices for the tests of packing."""

from labkit.jobs import DlrmJob
from labkit.launch import PlannedJob
from labkit.sharing import JobProfile, PackingDevice, QueuedJob

GIB = 2**30


def profile(memory_gib=1.0, utilisation=0.1, duration_s=None, estimate_gib=None) -> JobProfile:
    estimate_gib = memory_gib if estimate_gib is None else estimate_gib
    return JobProfile(int(estimate_gib * GIB), utilisation, duration_s, int(memory_gib * GIB))


def job(name, duration_s=None, memory_gib=1.0, utilisation=0.1, *, arrives_s=0.0, estimate_gib=None) -> QueuedJob:
    return QueuedJob(PlannedJob(name, DlrmJob()), arrives_s, profile(memory_gib, utilisation, duration_s, estimate_gib))


def devices(*memory_gib) -> list[PackingDevice]:
    return [PackingDevice(f"gpu-{number}", int(gib * GIB)) for number, gib in enumerate(memory_gib)]
