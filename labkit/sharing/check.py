"""Checks every row of a mix against this machine: is the mode possible, does the memory suffice, who is in the way."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from labkit import UserError, hardware, launch, runs, telemetry
from labkit.sharing.memory_need import GROWTH_BYTES, first_steps_bytes
from labkit.sharing.modes import mode_refusals, mode_shares
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
    """What it would have of it, for people; empty where nothing"""
    needs_bytes: int | None
    """Estimated, or as given; None where it is not known"""
    free_bytes: int | None
    """That it may take: its partition's, or what all jobs of the round share"""
    why_not: tuple[str, ...] = ()


@dataclass(frozen=True)
class MixCheck:
    """What came of a check."""

    rows: tuple[CheckedJob, ...] = ()
    refusals: tuple[str, ...] = ()
    """One a line; nothing may start while there is one"""
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


def check_mix(mix: launch.Mix, estimate: Estimate) -> MixCheck:
    """Check all rows of a mix, with what is estimated of each job's memory; nothing is started."""
    devices = hardware.get_devices()
    try:
        device = hardware.find_device(mix.device, devices)
    except UserError as error:
        return MixCheck(refusals=(f"{mix.name}: {error}",))
    quiet = telemetry.is_quiet()
    known: dict[tuple, int | str | None] = {}  # what an estimate is, or why there is none

    def need_of(job: launch.PlannedJob) -> int | str | None:
        if job.memory_bytes is not None:
            return job.memory_bytes
        kind = device.kind
        with contextlib.suppress(UserError):  # of a device that is not there, which the mode says
            kind = hardware.find_device(job.device or mix.device, devices).kind
        key = job.job, "cpu" if kind == "cpu" else "cuda"
        if key not in known:
            try:
                known[key] = estimate(job, key[1])
            except UserError as error:
                known[key] = str(error)
        return known[key]

    rows: list[CheckedJob] = []
    refusals: list[str] = []
    with hardware.Nvml() as nvml:
        for workload in mix.workloads:
            against: dict[str | None, list[str]] = defaultdict(list)
            found = {job.name: need_of(job) for job in workload.jobs}
            needs = {name: need for name, need in found.items() if isinstance(need, int)}
            place = Place(device, devices, nvml, needs, mix.spin, quiet)
            reasons = [(name, need) for name, need in found.items() if isinstance(need, str)]
            reasons += mode_refusals(workload.mode, workload.jobs, place)
            shares = {} if reasons else mode_shares(workload.mode, workload.jobs, place)
            free = {name: share.memory_bytes or free_bytes(_where(share), nvml) for name, share in shares.items()}
            for name, reason in reasons or _too_much(workload.mode, needs, free, shares):
                against[name].append(reason)
            of_mode = against.pop(None, [])
            place = f"{workload.where}, {workload.name}" if workload.where else workload.name
            refusals += [f"{place}: {reason}" for reason in of_mode]
            for job in workload.jobs:
                refusals += [f"{job.where or f'{workload.name}, {job.name}'}: {why}" for why in against[job.name]]
                words = shares[job.name].device if shares else ""
                why_not = tuple(why.rstrip(".") for why in (*against[job.name], *of_mode))
                of_mode = []  # what is against the mode is said once
                sizes = needs.get(job.name), free.get(job.name)
                rows.append(CheckedJob(workload.name, workload.mode, job.name, job.label, words, *sizes, why_not))
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
        notes.append(f"Who else uses {device.name} cannot be told: {why}.")
    if hardware.find_mps()["daemon_seen"]:
        notes.append("An MPS daemon of someone else runs on this machine: no job will be its client.")
    return notes


def _too_much(
    mode: str, needs: Mapping[str, int], free: Mapping[str, int | None], shares: Mapping[str, Share]
) -> Iterator[Refusal]:
    """Jobs that need more than there is: by themselves, or with those that run at once on the same device."""
    together: dict[str, int] = defaultdict(int)
    for name, need in needs.items():
        if free[name] is None:
            continue
        there = f"{hardware.size_text(free[name])} are free"
        if need > free[name]:
            yield name, f"{name} needs {hardware.size_text(need)} of memory, and {there}: make it smaller"
        elif mode != "alone" and shares[name].memory_bytes is None:
            total = together[_where(shares[name])] = together[_where(shares[name])] + need
            if total > free[name]:
                words = f"with {name} the jobs need {hardware.size_text(total)} of memory at once, and {there}"
                yield name, f"{words}: run fewer together, or smaller ones"


def _where(share: Share) -> str:
    """The device that a share is of: cpu, or the UUID of a GPU or slice, whatever it was called in the mix."""
    return "cpu" if share.torch_name == "cpu" else share.environment["CUDA_VISIBLE_DEVICES"]
