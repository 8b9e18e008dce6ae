"""The rounds alone that a plan needs, so that sharing can be counted against something."""

from __future__ import annotations

from dataclasses import replace

from labkit.collocation.plan.plan import Plan, Workload
from labkit.collocation.plan.planned_job import PlannedJob

BASELINES = ("each", "one", "none")
"""Every job alone, one of those that differ in their seed only, or none"""


def with_baseline(plan: Plan, baseline: str = "each") -> Plan:
    """The plan, with the jobs alone before it that it does not run alone itself.

    Args:
        plan: as it was asked for.
        baseline: one of BASELINES. Seeds reach a target at different times, so `each` is exact, and takes longer.
    """
    if baseline == "none":
        return plan
    alone = [job for workload in plan.workloads if workload.mode == "alone" for job in workload.jobs]
    seen = {_key(job, baseline) for job in alone}
    missing: dict[str, PlannedJob] = {}
    for workload in plan.workloads:
        for job in workload.jobs:
            key = _key(job, baseline)
            if workload.mode != "alone" and key not in seen:
                seen.add(key)
                missing[_free_name(job.name, missing)] = job
    if not missing:
        return plan
    jobs = tuple(replace(job, name=name) for name, job in missing.items())
    return replace(plan, workloads=(Workload("baseline", "alone", jobs), *plan.workloads))


def _key(job: PlannedJob, baseline: str) -> tuple:
    return (job.likeness, job.request.get("seed", 0) if baseline == "each" else None)


def _free_name(name: str, taken: dict[str, PlannedJob]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
