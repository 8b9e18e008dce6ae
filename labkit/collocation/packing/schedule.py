"""What became of a queue, as frames: one row a job, one row an attempt, and the totals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.queued_job import TrackedJob
from labkit.collocation.verdict.turns import jain

if TYPE_CHECKING:
    from labkit.collocation.packing.queue_record import QueueRecord

JOB_COLUMNS = [
    "job", "label", "status", "device", "arrives_s", "starts_s", "ends_s", "wait_s", "completion_s", "slowdown", "oom",
    "attempts",
]  # fmt: skip
ATTEMPT_COLUMNS = [
    "job", "label", "attempt", "device", "alone", "queued_s", "starts_s", "ends_s", "ending", "work_s",
]  # fmt: skip
TOTAL_COLUMNS = [
    "jobs", "done", "failed", "ooms", "makespan_s", "mean_completion_s", "mean_wait_s", "mean_slowdown", "fairness",
    "device_h", "utilisation", "energy_j", "energy_note",
]  # fmt: skip
COMPARED = ("makespan_s", "mean_completion_s", "mean_wait_s", "device_h", "utilisation", "energy_j")


@dataclass(frozen=True)
class Schedule:
    """What a policy made of a queue."""

    policy: str
    provenance: str
    """predicted, or measured; measured, an ending can be "stopped", too"""
    jobs: pd.DataFrame
    """JOB_COLUMNS, one row a job"""
    attempts: pd.DataFrame
    """ATTEMPT_COLUMNS, one row a start"""
    totals: dict[str, float | int | str]
    """TOTAL_COLUMNS"""


def predicted_schedule(policy: str, jobs: Sequence[TrackedJob], devices: Sequence[PackingDevice]) -> Schedule:
    """The frames of a simulated queue."""
    return Schedule(policy, "predicted", job_frame(jobs, devices), attempt_frame(jobs, devices), totals(jobs, devices))


def measured_schedule(record: QueueRecord) -> Schedule:
    """The frames of a queue that really ran.

    Slowdowns are against the duration alone in a job's profile, NaN where it has none.
    """
    found = totals(record.jobs, record.devices) | {
        "energy_j": np.nan if record.energy_j is None else record.energy_j,
        "energy_note": record.energy_note,
        "utilisation": np.nan,  # of work that profiles predict, which is not measured
    }
    frames = job_frame(record.jobs, record.devices), attempt_frame(record.jobs, record.devices)
    return Schedule(record.policy, "measured", *frames, found)


def side_by_side(schedules: Sequence[Schedule]) -> pd.DataFrame:
    """Totals of several schedules of one queue, each beside the first of its own provenance.

    Returns:
        policy, provenance, TOTAL_COLUMNS, and for each of COMPARED its ratio (makespan_ratio, …; below 1 is less).
    """
    frame = pd.DataFrame([each.totals for each in schedules], columns=TOTAL_COLUMNS)
    frame.insert(0, "policy", [each.policy for each in schedules])
    frame.insert(1, "provenance", [each.provenance for each in schedules])
    for name in COMPARED:
        column = name.removesuffix("_s").removesuffix("_j").removesuffix("_h") + "_ratio"
        frame[column] = frame[name] / frame.groupby("provenance", sort=False)[name].transform(lambda own: own.iloc[0])
    return frame


def job_frame(jobs: Iterable[TrackedJob], devices: Sequence[PackingDevice]) -> pd.DataFrame:
    """One row a job, in the order of the queue.

    Returns:
        JOB_COLUMNS. device, starts_s and ends_s are those of its last attempt (None and NaN where there is none).
        wait_s is all its time in line, that after an out-of-memory end included; completion_s is from its arrival to
        its end. slowdown is the time of its last attempt over that of the job alone, NaN unless it is done. oom says
        whether it ever ran out of memory.
    """
    rows = []
    for job in jobs:
        last = job.attempts[-1] if job.attempts else None
        ends_s = last.ends_s if last and last.ends_s is not None else np.nan
        alone_s = job.queued.profile.duration_s
        done = job.status == "done" and alone_s
        rows.append(
            {
                "job": job.name,
                "label": job.queued.job.label,
                "status": job.status,
                "device": devices[last.device].name if last else None,
                "arrives_s": job.queued.arrives_s,
                "starts_s": last.starts_s if last else np.nan,
                "ends_s": ends_s,
                "wait_s": sum(attempt.starts_s - attempt.queued_s for attempt in job.attempts) if last else np.nan,
                "completion_s": ends_s - job.attempts[0].queued_s if last else np.nan,
                "slowdown": (ends_s - last.starts_s) / alone_s if done else np.nan,
                "oom": job.ran_out_of_memory,
                "attempts": len(job.attempts),
            }
        )
    return pd.DataFrame(rows, columns=JOB_COLUMNS)


def attempt_frame(jobs: Iterable[TrackedJob], devices: Sequence[PackingDevice]) -> pd.DataFrame:
    """One row a start of a job, in order of time: ATTEMPT_COLUMNS, a bar each in a Gantt figure.

    Returns:
        work_s is how many seconds of the job alone the attempt got done; NaN where unknown.
    """
    rows = [
        {
            "job": job.name,
            "label": job.queued.job.label,
            "attempt": attempt.number,
            "device": devices[attempt.device].name,
            "alone": attempt.alone,
            "queued_s": attempt.queued_s,
            "starts_s": attempt.starts_s,
            "ends_s": np.nan if attempt.ends_s is None else attempt.ends_s,
            "ending": attempt.ending,
            "work_s": np.nan if attempt.work_s is None else attempt.work_s,
        }
        for job in jobs
        for attempt in job.attempts
    ]
    frame = pd.DataFrame(rows, columns=ATTEMPT_COLUMNS)
    return frame.sort_values("starts_s", kind="stable").reset_index(drop=True)


def totals(jobs: Sequence[TrackedJob], devices: Sequence[PackingDevice]) -> dict[str, float | int | str]:
    """The whole queue in TOTAL_COLUMNS, as good as the attempts' times; without its energy, which only a run tells.

    makespan_s is from the first arrival to the last end. device_h is the time in which a device has a job, over all
    devices, in hours: what a pool that takes idle devices back would bill. utilisation is the work done times the
    jobs' utilisation, over makespan times devices. fairness is Jain's index (Jain, Chiu, Hawe 1984) of the slowdowns
    of the jobs that are done: 1 where all are slowed alike, 1/n where one has it all. Means are over jobs that are
    done.
    """
    frame = job_frame(jobs, devices)
    done = frame[frame["status"] == "done"]
    started = [(job, attempt) for job in jobs for attempt in job.attempts if attempt.ends_s is not None]
    makespan_s = max((attempt.ends_s for _, attempt in started), default=np.nan) - frame["arrives_s"].min()
    busy_s = sum(
        _covered_s([(a.starts_s, a.ends_s) for _, a in started if a.device == position])
        for position in range(len(devices))
    )
    work = sum(job.queued.profile.utilisation * (attempt.work_s or 0.0) for job, attempt in started)
    return {
        "jobs": len(frame),
        "done": len(done),
        "failed": int((frame["status"] == "failed").sum()),
        "ooms": sum(attempt.ending == "out of memory" for _, attempt in started),
        "makespan_s": makespan_s,
        "mean_completion_s": done["completion_s"].mean(),
        "mean_wait_s": done["wait_s"].mean(),
        "mean_slowdown": done["slowdown"].mean(),
        "fairness": jain(done["slowdown"].dropna()),
        "device_h": busy_s / 3600,
        "utilisation": work / (makespan_s * len(devices)),
        "energy_j": np.nan,
        "energy_note": "a simulation knows no power",
    }


def _covered_s(spans: list[tuple[float, float]]) -> float:
    """Length of the union of spans."""
    covered_s, reach_s = 0.0, -np.inf
    for start_s, end_s in sorted(spans):
        covered_s += max(0.0, end_s - max(start_s, reach_s))
        reach_s = max(reach_s, end_s)
    return covered_s
