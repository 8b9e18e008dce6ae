"""When each job of a mix ran, in turn and at once, on one axis of time."""

from __future__ import annotations

import pandas as pd

from labkit.collocation.verdict.baseline import Baseline, starts_s

TIMELINE_COLUMNS = ["mode", "job", "starts_s", "ends_s", "reached_s", "has_target", "status", "provenance"]


def timelines(jobs: pd.DataFrame, *, mix: str, repeat: int = 0) -> pd.DataFrame:
    """One row a job and mode, of one repeat.

    Time counts from the barrier of a round; in mode alone each job begins when the one before it has ended. What it
    takes to start a process and to prepare its data is not in it, in no mode.

    Args:
        jobs: `job_table`.
        mix: as `mode_table` names it.
        repeat: from 0.

    Returns:
        TIMELINE_COLUMNS; reached_s is NaN where a job has no target (has_target) or did not reach it.
    """
    rows = []
    for of, mode, number, own in Baseline(jobs, {}).rounds(jobs):
        if (of, number) != (mix, repeat):
            continue
        for (_, job), start_s in zip(own.iterrows(), starts_s(mode, own), strict=True):
            rows.append(
                {
                    **job[["job", "status", "provenance"]],
                    "mode": mode,
                    "starts_s": start_s,
                    "ends_s": start_s + job["wall_s"],
                    "reached_s": start_s + job["time_to_target_s"],
                    "has_target": bool(pd.notna(job["target"])),
                }
            )
    return pd.DataFrame(rows, columns=TIMELINE_COLUMNS)
