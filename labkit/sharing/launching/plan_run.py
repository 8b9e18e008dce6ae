"""Runs a plan round by round into a group's folder, and goes on with one that was cut short."""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock

from labkit.errors import UserError
from labkit.hardware import Nvml, find_device, get_devices
from labkit.process import JobProcess, SupervisedJobs
from labkit.runs import HIDDEN, temporary_of, timestamp
from labkit.sharing.launching.job import JobEvent, worker_process
from labkit.sharing.launching.jobs_record import GroupRecord, JobOutcome, RoundRecord, planned_rounds
from labkit.sharing.launching.round import Round
from labkit.sharing.modes.choice import mode_shares
from labkit.sharing.modes.place import Place, Share
from labkit.sharing.plan.plan import Plan
from labkit.sharing.plan.planned_job import PlannedJob, told_of_mix
from labkit.tracking import StopRequest

FREE_AGAIN_S = 10.0
"""How long a GPU may still be told as in use after a round"""


@dataclass(frozen=True)
class RoundEvent:
    """A round begins, or is over and recorded."""

    record: RoundRecord
    number: int
    """From 1"""
    of: int

    @property
    def words(self) -> str:
        """Which round it is, and what became of its jobs."""
        head = f"round {self.number} of {self.of}, {self.record.mode}"
        if self.record.ended_at is None:
            return head
        ends = [(each.job, each.status.replace("_", " "), each.wall_s or 0) for each in self.record.jobs]
        return f"{head}: {', '.join(f'{job} {status} after {wall_s:.1f} s' for job, status, wall_s in ends)}"


OnPlanEvent = Callable[[RoundEvent | JobEvent], None]


def run_plan(
    plan: Plan,
    *,
    runs_dir: Path,
    on_event: OnPlanEvent,
    stop: StopRequest,
    needs: Mapping[str, int] | None = None,
    quiet: bool | None = None,
) -> Path:
    """Run a plan, which has been checked, to its end; `stop` ends it politely, and `resume_plan` goes on with the rest.

    Args:
        plan: what shares what.
        runs_dir: the folder that the group's folder, which is returned, is made in.
        on_event: called with what happens.
        stop: looked at between events.
        needs: bytes that each job is estimated to take, by WORKLOAD/JOB.
        quiet: whether other programs leave the CPU alone; None looks before each round.
    """
    known = {"plan": plan, "needs": dict(needs or {}), "quiet": quiet, "rounds": planned_rounds(plan)}
    folder, record = GroupRecord.new(runs_dir, plan.name, **known)
    with filelock.FileLock(folder / ".lock"):
        _run_rounds(folder, record, on_event, stop)
    return folder


def resume_plan(folder: Path, *, on_event: OnPlanEvent, stop: StopRequest) -> None:
    """Go on with a group that was cut short: rounds that are done stay, the others run again as a whole.

    Raises:
        UserError: it is still running, or ran on another machine, or its record does not have all that its jobs need.
    """
    try:
        with filelock.FileLock(folder / ".lock", timeout=0):
            record = GroupRecord.read(folder)
            if HIDDEN in json.dumps(asdict(record)):
                raise UserError(
                    f"{folder}: arguments of its jobs look like secrets, and group.json has {HIDDEN} in their place: "
                    "run it anew. LABKIT_VERBATIM=1 makes new ones keep such values."
                )
            if record.host != platform.node():
                raise UserError(
                    f"{folder}: this group ran on {record.host}, and times of two machines cannot be compared: run it "
                    "anew here."
                )
            for each in record.rounds:
                if each.status != "done":
                    each.status, each.go_at, each.ended_at = "waiting", None, None
                    attempts = {job.job: job.attempt + (job.status != "waiting") for job in each.jobs}
                    each.jobs = [JobOutcome(job.job, job.label, attempt=attempts[job.job]) for job in each.jobs]
            _run_rounds(folder, record, on_event, stop)
    except filelock.Timeout:
        raise UserError(f"{folder}: another process is still running this group: wait for it, or stop it.") from None


def _run_rounds(folder: Path, record: GroupRecord, on_event: OnPlanEvent, stop: StopRequest) -> None:
    with contextlib.ExitStack() as stack, record.kept(folder):
        supervised = None
        for number, each in enumerate(record.rounds, 1):
            if stop or each.status == "done":
                continue
            if supervised is None or not supervised.alive:
                supervised = stack.enter_context(SupervisedJobs())
                supervised.remove_at_end(temporary_of(GroupRecord.file(folder)))
                record.save(folder)
            on_event(RoundEvent(each, number, len(record.rounds)))
            try:
                processes, mps_gpus = _processes(folder, record, each)
            except UserError as error:  # what was possible at the check is so no longer
                each.status, each.ended_at = "failed", timestamp()
                for job in each.jobs:
                    job.status, job.reason = "failed", str(error)
            else:
                ways = {"timeout_s": record.plan.timeout_s, "on_event": on_event, "stop": stop, "mps_gpus": mps_gpus}
                Round(each, processes, supervised, **ways, save=lambda: record.save(folder)).run()
            on_event(RoundEvent(each, number, len(record.rounds)))
        statuses = {each.status for each in record.rounds}
        record.status = "done" if statuses == {"done"} else "stopped" if stop else "failed"


def _processes(folder: Path, record: GroupRecord, each: RoundRecord) -> tuple[list[JobProcess], list[str] | None]:
    """What is started for a round, and the GPUs of its MPS daemon."""
    (workload,) = [own for own in record.plan.workloads if (own.name, own.mode) == (each.workload, each.mode)]
    jobs = {job.name: job for job in workload.jobs}
    own = [jobs[outcome.job] for outcome in each.jobs]
    shares = _shares(record, each, own)
    told = told_of_mix(each.mode, own)
    processes = []
    for job, outcome in zip(own, each.jobs, strict=True):
        outcome.device = shares[job.name].device
        outcome.log = f"logs/{each.workload}-{each.mode}-{each.repeat}-{job.name}.log"
        processes.append(worker_process(job, shares[job.name], folder, outcome.log, told))
    gpus = sorted({share.environment["CUDA_VISIBLE_DEVICES"] for share in shares.values()})
    return processes, gpus if each.mode == "mps" else None


def _shares(record: GroupRecord, each: RoundRecord, jobs: list[PlannedJob]) -> dict[str, Share]:
    """What each job gets; a driver may list a process of the round before for a moment after it has ended."""
    needs = {job.name: record.needs[key] for job in jobs if (key := f"{each.workload}/{job.name}") in record.needs}
    until = time.monotonic() + FREE_AGAIN_S
    while True:
        devices = get_devices()
        device = find_device(record.plan.device, devices)
        try:
            with Nvml() as nvml:
                place = Place(device, devices, nvml, needs, record.plan.spin, record.quiet)
                return mode_shares(each.mode, jobs, place)
        except UserError:
            if device.kind == "cpu" or time.monotonic() > until:
                raise
            time.sleep(0.5)
