"""What a policy made of a queue, simulated or real, as frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from labkit.sharing.queue import PackingDevice, TrackedJob

JOB_COLUMNS = [
    "job", "label", "status", "device", "arrives_s", "starts_s", "ends_s", "wait_s", "completion_s", "slowdown", "oom",
    "attempts",
]  # fmt: skip
ATTEMPT_COLUMNS = ["job", "label", "attempt", "device", "alone", "queued_s", "starts_s", "ends_s", "ending"]
COMPARED = ("makespan_s", "mean_completion_s", "mean_wait_s", "energy_j")


@dataclass(frozen=True)
class Schedule:
    """What a policy made of a queue."""

    policy: str
    provenance: str
    """predicted, or measured; measured, an ending can be "stopped", too"""
    jobs: pd.DataFrame
    """JOB_COLUMNS, in the order of the queue. device, starts_s and ends_s are those of a job's last attempt; wait_s is
    all its time in line, completion_s from its arrival to its end; slowdown is the time of its last attempt over the
    duration alone in its profile, NaN unless it is done; oom, whether it ever ran out of memory"""
    attempts: pd.DataFrame
    """ATTEMPT_COLUMNS, in order of time, a bar each in a Gantt figure"""
    totals: dict[str, float | int | str]
    """makespan_s is from the first arrival to the last end; means are over jobs that are done"""


def schedule_of(
    policy: str,
    provenance: str,
    jobs: Sequence[TrackedJob],
    devices: Sequence[PackingDevice],
    energy_note: str,
    energy_j: float | None = None,
) -> Schedule:
    """The frames of a queue, simulated or real."""
    job_rows, attempt_rows = [], []
    for job in jobs:
        named: dict[str, Any] = {"job": job.name, "label": job.queued.job.label}
        own: list[dict[str, Any]] = [
            named | vars(attempt) | {"attempt": attempt.number, "device": devices[attempt.device].name}
            for attempt in job.attempts
        ]
        attempt_rows += own
        row = named | {"status": job.status, "arrives_s": job.queued.arrives_s, "attempts": len(own)}
        row["oom"] = any(attempt["ending"] == "out of memory" for attempt in own)
        if own:
            last, alone_s = own[-1], job.profile.duration_s
            ends_s = np.nan if last["ends_s"] is None else last["ends_s"]
            row |= {"device": last["device"], "starts_s": last["starts_s"], "ends_s": ends_s}
            row["wait_s"] = sum(attempt["starts_s"] - attempt["queued_s"] for attempt in own)
            row["completion_s"] = ends_s - own[0]["queued_s"]
            row["slowdown"] = (ends_s - last["starts_s"]) / alone_s if job.status == "done" and alone_s else np.nan
        job_rows.append(row)
    rows = pd.DataFrame(job_rows, columns=JOB_COLUMNS)
    attempts = pd.DataFrame(attempt_rows, columns=ATTEMPT_COLUMNS).astype({"ends_s": float})
    attempts = attempts.sort_values("starts_s", kind="stable", ignore_index=True)
    done = rows[rows["status"] == "done"]
    totals = {
        "jobs": len(rows),
        "done": len(done),
        "failed": int((rows["status"] == "failed").sum()),
        "ooms": int((attempts["ending"] == "out of memory").sum()),
        "makespan_s": attempts["ends_s"].max() - rows["arrives_s"].min(),
        "mean_completion_s": done["completion_s"].mean(),
        "mean_wait_s": done["wait_s"].mean(),
        "mean_slowdown": done["slowdown"].mean(),
        "energy_j": np.nan if energy_j is None else energy_j,
        "energy_note": energy_note,
    }
    return Schedule(policy, provenance, rows, attempts, totals)


def side_by_side(schedules: Sequence[Schedule]) -> pd.DataFrame:
    """Totals of several schedules of one queue, each compared with the first.

    Returns:
        policy, provenance, the totals, and for each of COMPARED its ratio (makespan_ratio, …; below 1 is less).
    """
    frame = pd.DataFrame([{"policy": each.policy, "provenance": each.provenance, **each.totals} for each in schedules])
    for name in COMPARED:
        frame[name.rpartition("_")[0] + "_ratio"] = frame[name] / frame[name].iloc[0]
    return frame
