"""Writes groups of runs whose every number is chosen, so that what they come to can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from labkit.collocation.launching.jobs_record import GroupRecord, JobOutcome, RoundRecord
from labkit.collocation.plan.plan import Plan, Workload
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.runs import Provenance, RunWriter
from labkit.runs.parts import TELEMETRY, PartWriter

S = 10**9
MIB = 2**20


@dataclass(frozen=True)
class Told:
    """What happened to one job in one round; all seconds since the barrier."""

    course: Sequence[tuple[int, float]] = ()
    """(step, second) of its metric rows; the last is the end of its training"""
    ends_s: float | None = None
    reached_s: float | None = None
    evaluated_s: float = 0.0
    """Its last evaluation"""
    status: str = "done"
    watts: float | None = None
    """Of the machine's processors while it trained; None where there is no counter"""
    has_run: bool = True
    memory_bytes: int = 100 * MIB
    counters: Sequence[tuple] = field(default_factory=tuple)
    """(device, scope, counter, value, unit, note) sampled once, a second after the barrier"""


class HandMadeGroup:
    """A group's folder in the making."""

    def __init__(self, folder: Path, workloads: Sequence[Workload], *, repeats: int = 1, devices: Sequence[dict] = ()):
        self.folder, self._now = folder, 1_700_000_000
        self._devices = list(devices) or [{"torch_name": "cpu"}]
        self._jobs = {(work.name, work.mode, job.name): job for work in workloads for job in work.jobs}
        folder.mkdir()
        self.record = GroupRecord(
            id=folder.name, plan=Plan("mix", tuple(workloads), repeats=repeats), host="here", status="done",
            pid=1, pid_started=0.0, started_at=_iso(self._now),
        )  # fmt: skip

    def round(self, workload: str, mode: str, repeat: int, told: dict[str, Told]) -> None:
        """Add a round that is over."""
        jobs = [self._outcome(self._jobs[workload, mode, name], each) for name, each in told.items()]
        until_s = max((each.ends_s or 0.0 for each in told.values()), default=0.0)
        status = "done" if all(each.status == "done" for each in told.values()) else "failed"
        times = {"go_at": _iso(self._now), "ended_at": _iso(self._now + until_s)}
        self.record.rounds.append(RoundRecord(workload, mode, repeat, jobs, status=status, **times))
        self._now += 1000

    def save(self) -> Path:
        self.record.save(self.folder)
        return self.folder

    def _outcome(self, job: PlannedJob, told: Told) -> JobOutcome:
        run = self._run(job, told) if told.has_run else None
        return JobOutcome(job.name, job.label, told.status, run, wall_s=told.ends_s, device="all cores")

    def _run(self, job: PlannedJob, told: Told) -> str:
        target = {} if not job.is_labkits else {"target": 0.8, "target_metric": "auc"}
        writer = RunWriter.create(
            self.folder, "job", config={"job": "job", "train": target},
            budget={"name": "t", "torch_name": self._devices[0]["torch_name"]}, tier=None, devices=self._devices,
            seed=0, provenance=Provenance.now("measured"), software={},
        )  # fmt: skip
        for step, second in told.course:
            name = "loss" if job.is_labkits else "steps"
            writer.metric(step=step, wall_s=second, train_s=second, samples=0, name=name, value=1.0)
        if told.evaluated_s:
            step = max(step for step, second in told.course if second <= told.evaluated_s)
            at = {"step": step, "wall_s": told.evaluated_s, "train_s": told.evaluated_s, "samples": 0}
            writer.metric(name="auc", value=0.7, **at)
        steps, wall_s = told.course[-1] if told.course else (0, 0.0)
        self._sample(writer.folder, told, wall_s)
        writer.finish(
            told.status if told.status in ("done", "stopped") else "failed",
            {
                "steps": steps,
                "wall_s": wall_s,
                "samples": 10 * steps,
                "target_reached": told.reached_s is not None,
                "time_to_target_s": told.reached_s,
                "peak_memory_bytes": told.memory_bytes,
            },
        )
        return writer.run_id

    def _sample(self, folder: Path, told: Told, wall_s: float) -> None:
        parts = PartWriter(folder / "telemetry", TELEMETRY)
        if told.watts is not None:
            row = {"device": "host", "scope": "host", "pid": 1, "unit": "J", "source": "RAPL"}
            for second in range(int(wall_s) + 1):
                value = 10.0 + told.watts * second
                counter = {"counter": "cpu_energy_intel-rapl:0", "value": value}
                parts.append(row | counter | {"time_ns": int((self._now + second) * S)})
        for device, scope, counter, value, unit, note in told.counters:
            row = {"device": device, "scope": scope, "counter": counter, "value": value, "unit": unit, "note": note}
            parts.append(row | {"time_ns": (self._now + 1) * S, "pid": 1, "source": "the driver"})
        parts.flush()


def even(steps: int, seconds: float) -> list[tuple[int, float]]:
    """The course of a job that takes each of its steps in the same time."""
    return [(step, step * seconds / steps) for step in range(1, steps + 1)]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
