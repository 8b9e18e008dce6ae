"""What a queue that really ran came to, in the frames of a simulated one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from labkit.collocation.packing.queue_record import QueueRecord
from labkit.collocation.packing.report import COMPARED
from labkit.collocation.packing.schedule import TOTAL_COLUMNS, attempt_frame, job_frame, totals


@dataclass(frozen=True)
class MeasuredSchedule:
    """What a policy made of a queue; its times are measured."""

    policy: str
    jobs: pd.DataFrame
    """JOB_COLUMNS; slowdown is against the duration alone in the job's profile, NaN where it has none"""
    attempts: pd.DataFrame
    """ATTEMPT_COLUMNS; an ending can be "stopped", too"""
    totals: dict[str, float | int | str]
    """TOTAL_COLUMNS; energy is measured or unknown, utilisation is unknown"""


def measured_schedule(record: QueueRecord) -> MeasuredSchedule:
    """The frames of a record."""
    found = totals(record.jobs, record.devices) | {
        "energy_j": math.nan if record.energy_j is None else record.energy_j,
        "energy_note": record.energy_note,
        "utilisation": math.nan,  # of work that profiles predict, which is not measured
    }
    return MeasuredSchedule(
        record.policy, job_frame(record.jobs, record.devices), attempt_frame(record.jobs, record.devices), found
    )


def side_by_side(rows: Sequence[tuple[str, str, dict]]) -> pd.DataFrame:
    """Totals of several schedules of one queue, each beside the first of its own provenance.

    Args:
        rows: policy, provenance and totals of each; of each provenance, what the others are held against comes first.

    Returns:
        policy, provenance, TOTAL_COLUMNS, and for each of COMPARED its ratio (makespan_ratio, ...; below 1 is less).
    """
    frame = pd.DataFrame([found for _, _, found in rows], columns=TOTAL_COLUMNS)
    frame.insert(0, "policy", [policy for policy, _, _ in rows])
    frame.insert(1, "provenance", [provenance for _, provenance, _ in rows])
    for name in COMPARED:
        column = name.removesuffix("_s").removesuffix("_j").removesuffix("_h") + "_ratio"
        first = frame.groupby("provenance", sort=False)[name].transform(lambda own: own.iloc[0])
        frame[column] = frame[name] / first
    return frame
