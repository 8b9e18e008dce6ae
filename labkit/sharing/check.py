"""Checks before the start: every row of a mix or queue against this machine, and who else uses it."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labkit import UserError, hardware, launch, runs, telemetry
from labkit.sharing.memory_probe import GROWTH_BYTES, first_steps_bytes
from labkit.sharing.modes import kind_refusals, mode_refusals, mode_shares
from labkit.sharing.queue import JobProfile, PackingDevice, QueuedJob, RecordedProfiles
from labkit.sharing.shares import Place, Refusal, Share, free_bytes

Estimate = Callable[[launch.PlannedJob, str], int | None]
"""Bytes that a job takes on "cpu" or "cuda"; None where that is unknown."""


@dataclass(frozen=True)
class CheckedJob:
    """One row of the table before the start."""

    workload: str
    mode: str
    job: str
    label: str
    device: str
    """Its share of the device, for people; empty where it has none"""
    needs_bytes: int | None
    """Estimated or given memory; None where it is not known"""
    free_bytes: int | None
    """Memory that it may take: its partition's, or what all jobs of the round share"""
    why_not: tuple[str, ...] = ()


@dataclass(frozen=True)
class MixCheck:
    """Result of a check."""

    rows: tuple[CheckedJob, ...] = ()
    refusals: tuple[str, ...] = ()
    """One reason per line; nothing may start while there is one"""
    warnings: tuple[str, ...] = ()
    quiet: bool = True
    """Whether other programs leave the CPU alone"""

    @property
    def needs(self) -> dict[str, int]:
        """Bytes that each job takes, by WORKLOAD/JOB, where that is known."""
        return {f"{row.workload}/{row.job}": row.needs_bytes for row in self.rows if row.needs_bytes is not None}


def job_memory(job: launch.PlannedJob, kind: str) -> int | None:
    """The usual `Estimate`, room to grow included; a job that was never measured here is tried for its first steps."""
    peak = first_steps_bytes(job.job.command(folder=job.folder), kind)
    return peak and peak + (GROWTH_BYTES if kind == "cpu" else 0)


def _once(estimate: Estimate) -> Callable[[launch.PlannedJob, str], int | str | None]:
    """The estimate, made once for jobs that are alike; a text says why there is none."""
    known: dict[tuple, int | str | None] = {}

    def need_of(job: launch.PlannedJob, kind: str) -> int | str | None:
        if (job.job, kind) not in known:
            try:
                known[job.job, kind] = estimate(job, kind)
            except UserError as error:
                known[job.job, kind] = str(error)
        return known[job.job, kind]

    return need_of


def check_mix(mix: launch.Mix, estimate: Estimate) -> MixCheck:
    """Check all rows of a mix, with what is estimated of each job's memory; nothing is started."""
    devices = hardware.get_devices()
    try:
        device = hardware.find_device(mix.device, devices)
    except UserError as error:
        return MixCheck(refusals=(f"{mix.name}: {error}",))
    quiet, estimated = telemetry.is_quiet(), _once(estimate)

    def need_of(job: launch.PlannedJob) -> int | str | None:
        kind = device.kind
        with contextlib.suppress(UserError):  # of a device that is not there, which the mode reports
            kind = hardware.find_device(job.device or mix.device, devices).kind
        return job.memory_bytes or estimated(job, "cpu" if kind == "cpu" else "cuda")

    rows: list[CheckedJob] = []
    refusals: list[str] = []
    with hardware.Nvml() as nvml:
        for workload in mix.workloads:
            # no job is tried for its memory where the device has no such mode
            impossible = kind_refusals(workload.mode, workload.jobs, Place(device, devices, nvml))
            found = {job.name: job.memory_bytes if impossible else need_of(job) for job in workload.jobs}
            needs = {name: need for name, need in found.items() if isinstance(need, int)}
            place = Place(device, devices, nvml, needs, mix.spin, quiet)
            reasons: list[Refusal] = [(name, need) for name, need in found.items() if isinstance(need, str)]
            reasons += impossible or mode_refusals(workload.mode, workload.jobs, place)
            shares = {} if reasons else mode_shares(workload.mode, workload.jobs, place)
            free = {name: share.memory_bytes or free_bytes(_where(share), nvml) for name, share in shares.items()}
            reasons += _too_much(workload.mode, needs, free, shares) if shares else ()
            where = f"{workload.where}, {workload.name}" if workload.where else workload.name
            # what is against the mode is reported once, in the row of its first job
            of_mode = [reason for name, reason in reasons if name is None]
            refusals += [f"{where}: {reason}" for reason in of_mode]
            for job in workload.jobs:
                own = [reason for name, reason in reasons if name == job.name]
                refusals += [f"{job.where or f'{workload.name}, {job.name}'}: {reason}" for reason in own]
                why_not = tuple(reason.rstrip(".") for reason in (*own, *of_mode))
                of_mode = []
                gets = shares[job.name].device if shares else ""
                sizes = needs.get(job.name), free.get(job.name)
                rows.append(CheckedJob(workload.name, workload.mode, job.name, job.label, gets, *sizes, why_not))
    return MixCheck(tuple(rows), tuple(dict.fromkeys(refusals)), tuple(device_warnings(device)), quiet)


def device_warnings(device: hardware.Device, nvml: hardware.Nvml | None = None) -> list[str]:
    """What else runs on a device and may disturb what is measured, in sentences; takes a moment on a CPU."""
    if device.kind == "cpu":
        found = runs.disturbance_text(telemetry.others_now())
        return [f"In the last moment {found}: close what you can, or expect noisy numbers."] if found else []
    with nvml or hardware.Nvml() as session:
        found, why = hardware.occupants(device, session)
    drawing = [str(each) for each in found if each.kind == "graphics"]
    notes = [f"{device.name} also draws, for {', '.join(drawing)}: numbers may be noisy."] if drawing else []
    if why is not None:
        notes.append(f"Who else uses {device.name} is unknown: {why}.")
    if hardware.find_mps()["daemon_seen"]:
        notes.append("An MPS daemon of someone else runs on this machine: no job will be its client.")
    return notes


def _too_much(
    mode: str, needs: Mapping[str, int], free: Mapping[str, int | None], shares: Mapping[str, Share]
) -> Iterator[Refusal]:
    """Jobs that need more than there is: by themselves, or with those that run at once on the same device."""
    together: dict[str, int] = defaultdict(int)
    for name, need in needs.items():
        if (most := free[name]) is None:
            continue
        there = f"{hardware.size_text(most)} are free"
        if need > most:
            yield name, f"{name} needs {hardware.size_text(need)} of memory, and {there}: make it smaller"
        elif mode != "alone" and shares[name].memory_bytes is None:
            total = together[_where(shares[name])] = together[_where(shares[name])] + need
            if total > most:
                all_of_them = f"with {name} the jobs need {hardware.size_text(total)} of memory at once"
                yield name, f"{all_of_them}, and {there}: run fewer together, or smaller ones"


def _where(share: Share) -> str:
    """The device that a share is of: cpu, or the UUID of a GPU or slice, whatever it was called in the mix."""
    return "cpu" if share.torch_name == "cpu" else share.environment["CUDA_VISIBLE_DEVICES"]


@dataclass(frozen=True)
class CheckedQueueJob:
    """One row of the table before the start."""

    queued: QueuedJob
    """The job with its profile, where there can be one"""
    source: str
    """Sources of its memory and its utilisation, for people"""
    fits: tuple[str, ...] = ()
    """Names of the devices that have its memory"""
    why_not: tuple[str, ...] = ()
    """Reasons against it; nothing may start while any row has one"""


def check_queue(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    estimate: Estimate,
    recorded: RecordedProfiles | None = None,
) -> list[CheckedQueueJob]:
    """Find what each job asks for, and which devices have it; nothing is started.

    What a row says itself counts first. Otherwise its memory is estimated, and how busy it keeps a device is what was
    recorded of such a job, or all of it. `recorded` is of the CPU, and None on GPUs.
    """
    estimated, kind = _once(estimate), "cuda" if recorded is None else "cpu"
    largest = max(devices, key=lambda device: device.memory_bytes)
    rows = []
    for queued in queue:
        job, own, why_not = queued.job, queued.profile, []
        like = recorded.of(job) if recorded else None
        if any(each is not None for each in (job.device, job.cores, job.gpu_percent, job.mig_profile)):
            why_not.append("the packer chooses devices: remove device, cores, gpu_percent and mig_profile")
        needs: Any = own.memory_estimate_bytes if own else job.memory_bytes
        source = "needs by its first steps" if needs is None else "needs by the queue"
        needs = estimated(job, kind) if needs is None else needs
        if not isinstance(needs, int):
            unknown = f"memory and utilisation of {job.label} are unknown: give both, for example 2GiB and 0.5"
            rows.append(CheckedQueueJob(queued, source, why_not=(*why_not, (needs or unknown).rstrip("."))))
            continue
        known = f"recorded on {recorded.device}" if recorded and like else "unknown: taken as all"
        busy = "by the queue" if own else known
        # times and true memory of a recorded job are those of the machine where it was recorded
        profile = own or JobProfile(needs, like.utilisation if like else 1.0)
        fits = tuple(device.name for device in devices if device.memory_bytes >= needs)
        if not fits:
            why_not.append(
                f"{queued.name} needs {hardware.size_text(needs)} of memory, and {largest.name}, which has most, has "
                f"{hardware.size_text(largest.memory_bytes)} free: make its batch smaller, or write the memory that it "
                "was measured to need"
            )
        queued = replace(queued, profile=replace(profile, like=like and like.like))
        rows.append(CheckedQueueJob(queued, f"{source}, busy {busy}", fits, tuple(why_not)))
    return rows


def refuse_if_any(rows: Sequence[CheckedQueueJob], nothing: str = "nothing was started:") -> list[QueuedJob]:
    """The jobs with their profiles; a UserError with one line for each row that something is against."""
    lines = [f"  {row.queued.place}: {'; '.join(row.why_not)}" for row in rows if row.why_not]
    if lines:
        raise UserError("\n".join([nothing, *lines]))
    return [row.queued for row in rows]
