"""Checks every row of a plan against this machine: is the mode possible, does the memory suffice, who is in the way."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from labkit.collocation.launching.worker_process import script_command
from labkit.collocation.modes.choice import mode_refusals, mode_shares
from labkit.collocation.modes.place import Place, Share
from labkit.collocation.plan.plan import Plan, Workload
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.hardware.device_choice import find_device
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.occupants import occupants
from labkit.hardware.sizes import size_text
from labkit.hardware.tools import find_mps
from labkit.runs.others import in_words
from labkit.telemetry.others import is_quiet, others_now

Estimate = Callable[[PlannedJob, str], int | None]
"""Bytes that a job takes on "cpu" or "cuda"; None where nobody knows."""


@dataclass(frozen=True)
class CheckedJob:
    """One row of the table before the start."""

    workload: str
    mode: str
    job: str
    label: str
    device: str
    """What it would have of the device, in words; empty where nothing"""
    needs_bytes: int | None
    """Estimated, or as given; None where it is not known"""
    free_bytes: int | None
    """That it may take: its partition's, or what all jobs of the round share"""
    why_not: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanCheck:
    """What came of a check."""

    rows: tuple[CheckedJob, ...] = ()
    refusals: tuple[str, ...] = ()
    """One a line; nothing may start while there is one"""
    warnings: tuple[str, ...] = ()
    quiet: bool = True
    """Whether other programs leave the CPU alone"""

    @property
    def lacks_slices_only(self) -> bool:
        """Whether all that is against it is of mode mig, which slices made for it could mend."""
        against = {row.mode for row in self.rows if row.why_not}
        return against == {"mig"}

    @property
    def needs(self) -> dict[str, int]:
        """Bytes that each job takes, by WORKLOAD/JOB, where that is known."""
        return {f"{row.workload}/{row.job}": row.needs_bytes for row in self.rows if row.needs_bytes is not None}


def job_memory(job: PlannedJob, kind: str) -> int | None:
    """The usual `Estimate`: where it was never measured here, the job is tried for its first steps.

    Raises:
        UserError: it was refused, or failed.
    """
    from labkit.collocation.memory.need import memory_need

    return memory_need(script_command(job), kind).bytes


def check_plan(plan: Plan, estimate: Estimate) -> PlanCheck:
    """Check all rows of a plan; nothing is started.

    Args:
        plan: what shares what.
        estimate: of a job's memory.
    """
    devices = get_devices()
    try:
        device = find_device(plan.device, devices)
    except UserError as error:
        return PlanCheck(refusals=(f"{plan.name}: {error}",))
    quiet = is_quiet()
    known: dict[tuple, int | str | None] = {}  # what an estimate is, or why there is none

    def need_of(job: PlannedJob) -> int | str | None:
        kind = _kind(job, device, devices)
        if job.memory_bytes is None and (job.job_key, kind) not in known:
            try:
                known[job.job_key, kind] = estimate(job, kind)
            except UserError as error:
                known[job.job_key, kind] = str(error)
        return job.memory_bytes or known[job.job_key, kind]

    rows: list[CheckedJob] = []
    refusals: list[str] = []
    with Nvml() as nvml:
        for workload in plan.workloads:
            against: dict[str | None, list[str]] = defaultdict(list)
            found = {job.name: need_of(job) for job in workload.jobs}
            needs = {name: need for name, need in found.items() if isinstance(need, int)}
            place = Place(device, devices, nvml, needs, plan.spin, quiet)
            for name, need in found.items():
                if isinstance(need, str):
                    against[name].append(need)
            for name, reason in mode_refusals(workload.mode, workload.jobs, place):
                against[name].append(reason)
            shares = {} if against else mode_shares(workload.mode, workload.jobs, place)
            free = {name: share.memory_bytes or _free_bytes(share, place) for name, share in shares.items()}
            for name, reason in _too_much(workload, needs, free, shares):
                against[name].append(reason)
            of_mode = against.pop(None, [])
            refusals += [f"{workload.name}: {reason}" for reason in of_mode]
            for job in workload.jobs:
                refusals += [f"{job.where or f'{workload.name}, {job.name}'}: {why}" for why in against[job.name]]
                words = shares[job.name].device if shares else ""
                why_not, of_mode = (*against[job.name], *of_mode), []  # what is against the mode is told once
                sizes = needs.get(job.name), free.get(job.name)
                rows.append(CheckedJob(workload.name, workload.mode, job.name, job.label, words, *sizes, why_not))
    return PlanCheck(tuple(rows), tuple(dict.fromkeys(refusals)), tuple(device_warnings(device)), quiet)


def device_warnings(device: Device, nvml: Nvml | None = None) -> list[str]:
    """What else runs on a device and may disturb what is measured, in sentences; takes a moment on a CPU."""
    if device.kind == "cpu":
        found = in_words(others_now())
        return [f"In the last moment {found}: close what you can, or expect noisy numbers."] if found else []
    with nvml or Nvml() as session:
        found, why = occupants(device, session)
    drawing = [str(each) for each in found if each.kind == "graphics"]
    notes = [f"{device.name} also draws, for {', '.join(drawing)}: numbers may be noisy."] if drawing else []
    if why is not None:
        notes.append(f"Who else uses {device.name} cannot be told: {why}.")
    if find_mps()["daemon_seen"]:
        notes.append("An MPS daemon of someone else runs on this machine: no job will be its client.")
    return notes


def _kind(job: PlannedJob, device: Device, devices: Sequence[Device]) -> str:
    """What a job computes on; on the plan's kind of device where its own cannot be found, which the mode tells."""
    with contextlib.suppress(UserError):
        device = device if job.device is None else find_device(job.device, devices)
    return "cpu" if device.kind == "cpu" else "cuda"


def _too_much(
    workload: Workload, needs: Mapping[str, int], free: Mapping[str, int | None], shares: Mapping[str, Share]
) -> list[tuple[str, str]]:
    """Jobs that need more than there is: each by itself, then those that run at once on one device together."""
    found = [
        (name, f"{name} needs {size_text(need)} of memory, and {size_text(free[name])} are free: make it smaller")
        for name, need in needs.items()
        if free.get(name) is not None and need > free[name]
    ]
    if found or workload.mode == "alone":
        return found
    together: dict[str, int] = defaultdict(int)
    for name, share in shares.items():
        if share.memory_bytes is None and free[name] is not None and name in needs:
            together[_place(share)] += needs[name]
            if (total := together[_place(share)]) > free[name]:
                why = f"with {name} the jobs need {size_text(total)} of memory at once, and {size_text(free[name])} are"
                found.append((name, f"{why} free: run fewer together, or smaller ones"))
    return found


def _place(share: Share) -> str:
    """The device that a share is of: cpu, or the UUID of a GPU or slice, whatever it was called in the plan."""
    return "cpu" if share.torch_name == "cpu" else share.environment["CUDA_VISIBLE_DEVICES"]


def _free_bytes(share: Share, place: Place) -> int | None:
    if share.torch_name == "cpu":
        available = psutil.virtual_memory().available
        return min(place.devices[0].memory_bytes or available, available)  # a container's limit, or what others left
    handle = place.nvml.read("nvmlDeviceGetHandleByUUID", _place(share))
    memory = place.nvml.read("nvmlDeviceGetMemoryInfo", handle.value) if handle.reason is None else handle
    return None if memory.reason else memory.value.free
