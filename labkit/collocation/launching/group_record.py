"""`group.json`: what a plan came to, round by round and job by job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from labkit.collocation.launching.jobs_record import JobsRecord
from labkit.collocation.plan.plan import Plan
from labkit.json_data import Moment, check_shape

ENDED = ("done", "failed", "stopped", "timed_out", "out_of_memory")


@dataclass
class JobOutcome:
    """One job in one round."""

    job: str
    label: str
    """What it trains: dlrm:tour, or a script's name"""
    status: str = "waiting"
    """waiting, running, or one of ENDED"""
    run: str | None = None
    """Its run folder's name, in the group's folder"""
    reason: str = ""
    wall_s: float | None = None
    """From the barrier to its end"""
    device: str = ""
    """What it had of the device, in words"""
    log: str = ""
    """File in the group's folder with what its script printed"""
    attempt: int = 1


@dataclass
class RoundRecord:
    """Jobs that ran together; in mode alone, one."""

    workload: str
    mode: str
    repeat: int
    """From 0"""
    jobs: list[JobOutcome]
    status: str = "waiting"
    """waiting, running, done (all of its jobs), failed or stopped"""
    go_at: Moment | None = None
    """When the barrier was lifted"""
    ended_at: Moment | None = None
    left: list[int] = field(default_factory=list)
    """Processes that even SIGKILL did not end, because a driver keeps them"""


@dataclass(kw_only=True)
class GroupRecord(JobsRecord):
    """The content of `group.json`."""

    KIND: ClassVar[str] = "group"

    plan: Plan
    needs: dict[str, int] = field(default_factory=dict)
    """Bytes that each job was estimated to take, by WORKLOAD/JOB"""
    quiet: bool | None = None
    """Whether other programs left the CPU alone when it began; jobs alone wait busily then"""
    rounds: list[RoundRecord] = field(default_factory=list)


def new_group(
    runs_dir: Path, plan: Plan, needs: Mapping[str, int], quiet: bool | None = None
) -> tuple[Path, GroupRecord]:
    """Make the folder of a plan; its record, not yet saved, has all rounds waiting."""
    folder = GroupRecord.new_folder(runs_dir, plan.name)
    return folder, GroupRecord(id=folder.name, plan=plan, needs=dict(needs), quiet=quiet, rounds=planned_rounds(plan))


def planned_rounds(plan: Plan) -> list[RoundRecord]:
    """The rounds of a plan, repeat by repeat, so that what drifts meets all modes alike."""
    return [
        RoundRecord(workload.name, workload.mode, repeat, [JobOutcome(job.name, job.label) for job in jobs])
        for repeat in range(plan.repeats)
        for workload in plan.workloads
        for jobs in ([(job,) for job in workload.jobs] if workload.mode == "alone" else [workload.jobs])
    ]


def read_group(folder: Path | str) -> GroupRecord:
    """Read a group's record; one whose launcher died shows as "interrupted".

    Raises:
        UserError: there is none, or it is damaged, or another version of labkit wrote it.
    """
    return GroupRecord.read(folder, _parts)


def _parts(content: dict[str, Any]) -> dict[str, Any]:
    check_shape(content, GroupRecord)
    rounds = [RoundRecord(**each | {"jobs": [JobOutcome(**job) for job in each["jobs"]]}) for each in content["rounds"]]
    return {"plan": Plan.from_dict(content["plan"]), "rounds": rounds}
