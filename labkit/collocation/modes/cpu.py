"""Mode cpu-shared, plain processes on all cores; and what all modes on a CPU have in common."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

from labkit.collocation.modes.place import Place, Refusal
from labkit.collocation.modes.share import Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.device import Device
from labkit.hardware.leases import leased_cores


def why_no_cpu(device: Device, mode: str, instead: str) -> list[str]:
    """Why no job can run on a device as on a CPU."""
    if device.kind == "cpu":
        return []
    return [
        f"mode {mode} shares the CPU, and the device is {device.name}: use mode {instead}, or choose the device cpu"
    ]


def leased_cpu(
    device: Device,
    *,
    waits: bool = True,
    say: Callable[[str], None] = lambda words: print(words, file=sys.stderr),
    stopped: Callable[[], bool] = lambda: False,
) -> contextlib.AbstractContextManager[list[int]]:
    """Holds all cores of this process while jobs share them, as `lease_cores` takes them; of a GPU's jobs, none."""
    return leased_cores(device.cores if device.kind == "cpu" else 0, waits=waits, say=say, stopped=stopped)


def cpu_environment(spin: bool) -> dict[str, str]:
    """Variables of every job on a CPU: it sees no GPU, and its idle threads give their core to the neighbours.

    OpenMP's threads wait busily for their next loop, which is best alone and ruinous together: on two cores, two
    DLRM jobs of two threads each reached 0.19 of one job's throughput together so, and 1.25 with PASSIVE (measured).

    Args:
        spin: keep what OpenMP does by default, or what this process' user has set.
    """
    return {"CUDA_VISIBLE_DEVICES": "-1"} | ({} if spin else {"OMP_WAIT_POLICY": "PASSIVE"})


def cpu_share(device: Device, spin: bool) -> Share:
    """A share of all cores, which nothing binds."""
    cores = f"{device.cores} core{'s' * (device.cores != 1)}"
    waits = ", threads that wait busily" if spin else ""
    return Share(f"{device.name}, all {cores}{waits}", cpu_environment(spin))


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot share the CPU."""
    used, refused = place.devices_of(jobs)
    for device in dict.fromkeys(used.values()) or [place.device]:
        refused += [(None, reason) for reason in why_no_cpu(device, "cpu-shared", "naive")]
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """All cores for each job."""
    return {job.name: cpu_share(place.device_of(job), place.spin) for job in jobs}
