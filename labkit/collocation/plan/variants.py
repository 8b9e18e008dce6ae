"""Plans made of plans: in other modes, for a given time, with the jobs alone first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labkit.collocation.plan.plan import Plan, Workload
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.jobs.command import as_flags
from labkit.jobs.presets import NO_TARGET

ENDLESS = 10**6
"""Epochs that no run comes to"""
ENDS = ("--target", "--max-seconds", "--max-epochs")
"""Flags by which a job says its end"""
BASELINES = ("each", "one", "none")
"""Every job alone, one of those that differ in their seed only, or none"""


def with_baseline(plan: Plan, baseline: str = "each") -> Plan:
    """The plan, with the jobs alone before it that it does not run alone itself.

    Args:
        plan: as it was asked for.
        baseline: one of BASELINES. Seeds reach a target at different times, so `each` is exact, and takes longer.
    """

    def key(job: PlannedJob) -> tuple:
        return job.likeness, job.seed if baseline == "each" else None

    if baseline == "none":
        return plan
    seen = {key(job) for each in plan.workloads if each.mode == "alone" for job in each.jobs}
    baselines = []
    for each in plan.workloads:
        missing: dict[tuple, PlannedJob] = {}
        for job in each.jobs:
            if key(job) not in seen:
                missing.setdefault(key(job), job)
        if missing:
            baselines.append(Workload(f"{each.name}-alone", "alone", tuple(missing.values())))
            seen |= missing.keys()
    return replace(plan, workloads=(*baselines, *plan.workloads)) if baselines else plan


def in_modes(plan: Plan, modes: Sequence[str]) -> Plan:
    """The plan with each of its sets of jobs in these modes instead of its own."""
    sets = list(dict.fromkeys(workload.jobs for workload in plan.workloads))
    workloads = tuple(
        Workload(mode if len(sets) == 1 else f"{number}-{mode}", mode, jobs)
        for number, jobs in enumerate(sets, 1)
        for mode in modes
    )
    return replace(plan, workloads=workloads)


def on_device(plan: Plan, device: str) -> Plan:
    """The plan with all of its jobs on one device, whatever they name; naive on the CPU is called cpu-shared."""
    workloads = tuple(
        replace(
            workload,
            mode="cpu-shared" if (workload.mode, device) == ("naive", "cpu") else workload.mode,
            jobs=tuple(replace(job, device=None) for job in workload.jobs),
        )
        for workload in plan.workloads
    )
    return replace(plan, device=device, workloads=workloads)


def with_seconds(plan: Plan, seconds: float | None) -> Plan:
    """The plan with its jobs trained for so many seconds, but for scripts and for those that say their end themselves.

    They have no target then, since all of them are to run for all of that time.

    Raises:
        UserError: that is no time.
    """
    if seconds is None:
        return plan
    if not seconds > 0:
        raise UserError(f"seconds is {seconds:g}: give a number above zero.")
    until = as_flags({"max_seconds": seconds, "max_epochs": ENDLESS, "target": NO_TARGET})

    def timed(job: PlannedJob) -> PlannedJob:
        own_end = not job.is_labkits or any(flag in job.arguments for flag in ENDS)
        return job if own_end else replace(job, arguments=job.arguments + until)

    workloads = tuple(replace(each, jobs=tuple(map(timed, each.jobs))) for each in plan.workloads)
    return replace(plan, workloads=workloads)
