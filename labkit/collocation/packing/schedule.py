"""What became of a queue, as frames: one row a job, one row an attempt, and the totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit.collocation.packing.policy import PackingDevice
from labkit.collocation.packing.queued_job import TrackedJob

JOB_COLUMNS = [
    "job", "label", "status", "device", "arrives_s", "starts_s", "ends_s", "wait_s", "completion_s", "slowdown", "oom",
    "attempts",
]  # fmt: skip
ATTEMPT_COLUMNS = ["job", "label", "attempt", "device", "alone", "queued_s", "starts_s", "ends_s", "ending"]
TOTAL_COLUMNS = [
    "jobs", "done", "failed", "ooms", "makespan_s", "mean_completion_s", "mean_wait_s", "mean_slowdown", "energy_j",
    "energy_note",
]  # fmt: skip
COMPARED = ("makespan_s", "mean_completion_s", "mean_wait_s", "energy_j")


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


def schedule_of(
    policy: str,
    provenance: str,
    jobs: Sequence[TrackedJob],
    devices: Sequence[PackingDevice],
    energy_note: str,
    energy_j: float | None = None,
) -> Schedule:
    """The frames of a queue, simulated or real.

    Returns:
        jobs: in the order of the queue. device, starts_s and ends_s are those of a job's last attempt. wait_s is all
            its time in line, that after an out-of-memory end included; completion_s is from its arrival to its end.
            slowdown is the time of its last attempt over the duration alone in its profile, NaN unless it is done. oom
            says whether it ever ran out of memory.
        attempts: in order of time, a bar each in a Gantt figure.
        totals: makespan_s is from the first arrival to the last end; means are over jobs that are done.
    """
    rows = pd.DataFrame([_job_row(job, devices) for job in jobs], columns=JOB_COLUMNS)
    attempts = pd.DataFrame([row for job in jobs for row in _attempt_rows(job, devices)], columns=ATTEMPT_COLUMNS)
    attempts = attempts.astype({"ends_s": float}).sort_values("starts_s", kind="stable").reset_index(drop=True)
    done = rows[rows["status"] == "done"]
    totals = {
        "jobs": len(rows),
        "done": len(done),
        "failed": int((rows["status"] == "failed").sum()),
        "ooms": sum(attempt.ending == "out of memory" for job in jobs for attempt in job.attempts),
        "makespan_s": attempts["ends_s"].max() - rows["arrives_s"].min(),
        "mean_completion_s": done["completion_s"].mean(),
        "mean_wait_s": done["wait_s"].mean(),
        "mean_slowdown": done["slowdown"].mean(),
        "energy_j": np.nan if energy_j is None else energy_j,
        "energy_note": energy_note,
    }
    return Schedule(policy, provenance, rows, attempts, totals)


def side_by_side(schedules: Sequence[Schedule]) -> pd.DataFrame:
    """Totals of several schedules of one queue, each beside the first of its own provenance.

    Returns:
        policy, provenance, TOTAL_COLUMNS, and for each of COMPARED its ratio (makespan_ratio, …; below 1 is less).
    """
    frame = pd.DataFrame([each.totals for each in schedules], columns=TOTAL_COLUMNS)
    frame.insert(0, "policy", [each.policy for each in schedules])
    frame.insert(1, "provenance", [each.provenance for each in schedules])
    for name in COMPARED:
        first = frame.groupby("provenance", sort=False)[name].transform(lambda own: own.iloc[0])
        frame[name.rpartition("_")[0] + "_ratio"] = frame[name] / first
    return frame


def _job_row(job: TrackedJob, devices: Sequence[PackingDevice]) -> dict[str, object]:
    row = {
        "job": job.name,
        "label": job.queued.job.label,
        "status": job.status,
        "arrives_s": job.queued.arrives_s,
        "oom": job.ran_out_of_memory,
        "attempts": len(job.attempts),
    }
    if not job.attempts:
        return row
    last, alone_s = job.attempts[-1], job.profile.duration_s
    ends_s = np.nan if last.ends_s is None else last.ends_s
    return row | {
        "device": devices[last.device].name,
        "starts_s": last.starts_s,
        "ends_s": ends_s,
        "wait_s": sum(attempt.starts_s - attempt.queued_s for attempt in job.attempts),
        "completion_s": ends_s - job.attempts[0].queued_s,
        "slowdown": (ends_s - last.starts_s) / alone_s if job.status == "done" and alone_s else np.nan,
    }


def _attempt_rows(job: TrackedJob, devices: Sequence[PackingDevice]) -> list[dict[str, object]]:
    return [
        {"job": job.name, "label": job.queued.job.label, "attempt": attempt.number} | vars(attempt)
        | {"device": devices[attempt.device].name}
        for attempt in job.attempts
    ]  # fmt: skip
