"""Checks every row of a plan against this machine: is the mode possible, does the memory suffice, who is in the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from labkit.collocation.modes.choice import mode_refusals, mode_shares
from labkit.collocation.modes.device_choice import find_device
from labkit.collocation.modes.occupants import warnings
from labkit.collocation.modes.share import Share
from labkit.collocation.plan.plan import Plan, Workload
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.sizes import size_text
from labkit.telemetry.others import is_quiet

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
    where: str = ""
    """Where the plan asks for it"""


@dataclass(frozen=True)
class PlanCheck:
    """What came of a check."""

    rows: tuple[CheckedJob, ...]
    refusals: tuple[str, ...]
    """One a line; nothing may start while there is one"""
    warnings: tuple[str, ...]
    lacks_slices_only: bool = False
    """Whether all that is against it is of mode mig, which slices made for it could mend"""
    quiet: bool = True
    """Whether other programs leave the CPU alone"""

    @property
    def needs(self) -> dict[str, int]:
        """Bytes that each job takes, by WORKLOAD/JOB, where that is known."""
        return {f"{row.workload}/{row.job}": row.needs_bytes for row in self.rows if row.needs_bytes is not None}


def job_memory(job: PlannedJob, kind: str) -> int | None:
    """The usual `Estimate`: where it was never measured here, the job is tried for its first steps.

    Raises:
        UserError: it was refused, or failed.
    """
    from labkit.collocation.launching.worker_process import script_command
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
        return PlanCheck((), (f"{plan.name}: {error}",), ())
    rows: list[CheckedJob] = []
    refusals: list[str] = []
    mig_only, quiet = True, is_quiet()
    known: dict[tuple[tuple, str], int | None] = {}
    for workload in plan.workloads:
        needs: dict[str, int] = {}
        for job in workload.jobs:
            key = (job.likeness, _kind(job, device, devices))
            if job.memory_bytes is None and key not in known:
                try:
                    known[key] = estimate(job, key[1])
                except UserError as error:
                    known[key] = None
                    refusals.append(f"{_named(workload, job)}: {error}")
                    mig_only = False
            if need := job.memory_bytes or known[key]:
                needs[job.name] = need
        checked, against = _checked(workload, plan, device, devices, needs, quiet)
        rows += checked
        refusals += against
        mig_only = mig_only and (workload.mode == "mig" or not against)
    with Nvml() as session:
        notes = warnings(device, session)
    return PlanCheck(tuple(rows), tuple(dict.fromkeys(refusals)), tuple(notes), bool(refusals) and mig_only, quiet)


def _kind(job: PlannedJob, device: Device, devices: Sequence[Device]) -> str:
    """What a job computes on; on the plan's kind of device where its own cannot be found, which is told elsewhere."""
    with contextlib.suppress(UserError):
        device = device if job.device is None else find_device(job.device, devices)
    return "cpu" if device.kind == "cpu" else "cuda"


def _checked(
    workload: Workload,
    plan: Plan,
    device: Device,
    devices: Sequence[Device],
    needs: Mapping[str, int],
    quiet: bool,
) -> tuple[list[CheckedJob], list[str]]:
    by_job: dict[str | None, list[str]] = {}
    for name, reason in mode_refusals(workload.mode, workload.jobs, device, devices, needs=needs):
        by_job.setdefault(name, []).append(reason)
    shares, free = {}, {}
    if not by_job:
        shares = mode_shares(workload.mode, workload.jobs, device, devices, needs=needs, spin=plan.spin, quiet=quiet)
        for name, share in shares.items():
            free[name] = share.memory_bytes or _free_bytes(share, devices[0])
        for name, reason in _too_much(workload, needs, free, shares):
            by_job.setdefault(name, []).append(reason)
    refusals = [f"{workload.name}: {reason}" for reason in by_job.get(None, [])]
    rows = []
    for job in workload.jobs:
        reasons = list(by_job.get(job.name, []))
        refusals += [f"{_named(workload, job)}: {reason}" for reason in reasons]
        rows.append(
            CheckedJob(
                workload.name,
                workload.mode,
                job.name,
                job.label,
                shares[job.name].device if job.name in shares else "",
                needs.get(job.name),
                free.get(job.name),
                (*reasons, *(by_job.pop(None, ()))),  # what is against the mode is told once
                job.where,
            )
        )
    return rows, refusals


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
    together: dict[str, int] = {}
    for job in workload.jobs:
        share, room = shares[job.name], free[job.name]
        if share.memory_bytes is not None or room is None or job.name not in needs:
            continue
        place = _place(share)
        together[place] = together.get(place, 0) + needs[job.name]
        if together[place] > room:
            found.append(
                (
                    job.name,
                    f"with {job.name} the jobs need {size_text(together[place])} of memory at once, and "
                    f"{size_text(room)} are free: run fewer together, or smaller ones",
                )
            )
    return found


def _place(share: Share) -> str:
    """The device that a share is of: cpu, or the UUID of a GPU or slice, whatever it was called in the plan."""
    return "cpu" if share.torch_name == "cpu" else share.environment["CUDA_VISIBLE_DEVICES"]


def _free_bytes(share: Share, cpu: Device) -> int | None:
    if _place(share) == "cpu":
        # a container's limit, or what others left of the machine
        return min(cpu.memory_bytes or psutil.virtual_memory().available, psutil.virtual_memory().available)
    with Nvml() as session:
        handle = session.read("nvmlDeviceGetHandleByUUID", _place(share))
        memory = session.read("nvmlDeviceGetMemoryInfo", handle.value) if handle.reason is None else handle
    return None if memory.reason else memory.value.free


def _named(workload: Workload, job: PlannedJob) -> str:
    return job.where or f"{workload.name}, {job.name}"
