"""A plan: which jobs share which device, in which modes, how often; and plans made of plans."""

from __future__ import annotations

from dataclasses import dataclass, replace

from labkit.errors import UserError
from labkit.jobs import ENDLESS, NO_TARGET, as_flags
from labkit.sharing.plan.planned_job import PlannedJob

MODES = ("alone", "naive", "mps", "mig", "cpu-shared", "cpu-pinned")
"""`alone` runs the jobs one after another; `naive` and `cpu-shared` are plain processes, on a GPU and on a CPU."""
CPU_MODES = ("cpu-shared", "cpu-pinned")
"""Epochs that no run comes to"""
ENDS = ("--target", "--max-seconds", "--max-epochs")
"""Flags by which a job says its end"""


@dataclass(frozen=True)
class Workload:
    """Jobs that run together in one mode, started at one barrier; in mode alone, one after another."""

    name: str
    mode: str
    jobs: tuple[PlannedJob, ...]
    where: str | None = None
    """Where its mode was asked for, for messages"""

    def __post_init__(self):
        if self.mode not in MODES:
            raise UserError(f"{self.name}: mode {self.mode!r} is unknown: choose one of {', '.join(MODES)}.")
        if not self.jobs:
            raise UserError(f"{self.name}: there is no job in it: name at least one.")
        if len({job.name for job in self.jobs}) < len(self.jobs):
            raise UserError(f"{self.name}: two of its jobs have one name: give each a name of its own.")


@dataclass(frozen=True)
class Plan:
    """Workloads that run one after another, each so many times."""

    name: str
    workloads: tuple[Workload, ...]
    device: str | None = None
    """cpu, or a GPU's number or UUID; None takes the first GPU where there is one"""
    repeats: int = 1
    timeout_s: float = 3600.0
    """For each round, counted from its start"""
    spin: bool = False
    """Whether idle CPU threads of a job wait busily, as OpenMP's do by default, or give their core to its neighbours"""

    def __post_init__(self):
        if self.repeats < 1:
            raise UserError(f"repeats is {self.repeats}: give a whole number from 1.")
        if not self.timeout_s > 0:
            raise UserError(f"timeout is {self.timeout_s:g}: give a number of seconds above zero.")
        if not self.workloads:
            raise UserError(f"the plan {self.name!r} has no workload: name at least one job and one mode.")
        names = [(workload.mode, workload.name) for workload in self.workloads]
        for mode, name in names:
            if names.count((mode, name)) > 1:
                raise UserError(f"two workloads of mode {mode} are called {name!r}: give each a name of its own.")


def with_baseline(plan: Plan, baseline: str = "each") -> Plan:
    """The plan, with the jobs alone before it that it does not run alone itself.

    `baseline` is each; one of those that differ in their seed only, which is shorter, and not exact, as seeds reach a
    target at different times; or none.
    """

    def key(job: PlannedJob) -> tuple:
        return job.job_key, job.seed if baseline == "each" else None

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
