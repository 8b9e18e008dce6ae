"""When each job, and the last of them, reached its target: alone in turn, alone on hardware of its own, and shared."""

from __future__ import annotations

import pandas as pd

from labkit.tta.survival import median_time

OWN_HARDWARE = "alone, own hardware"
"""Beside the modes: what as many devices as there are jobs would need."""
ALL = "all jobs"
ACCURACY_COLUMNS = ["mix", "mode", "repeat", "job", "metric", "target", "reached", "time_s", "provenance"]
SUMMARY_COLUMNS = ["mix", "mode", "job", "rounds", "reached", "median_s", "low_s", "high_s", "fastest_s", "slowest_s"]


def accuracy_table(turns: pd.DataFrame) -> pd.DataFrame:
    """Time to target, counted from when the first job of the mix may begin.

    In mode alone a job waits for those before it to end; the same runs on a device each are OWN_HARDWARE. A job that
    did not reach its target stays in the table: time_s is inf where it failed, else how long it is known to have been
    short of it, *censored*.
    Jobs without a target, such as scripts, take their turn and have no row.

    Args:
        turns: `turn_table`.

    Returns:
        ACCURACY_COLUMNS, one row a job and repeat, and one of ALL: reached when the last of them did, or censored if
        one did not.
    """
    own = turns[turns["target"].notna()]
    elsewhere = own[own["mode"] == "alone"].assign(mode=OWN_HARDWARE, starts_s=0.0)
    rows = pd.concat([own, elsewhere], keys=[0, 1], names=["elsewhere"]).reset_index("elsewhere")
    reached = rows["target_reached"].astype(bool)
    time_s = rows["starts_s"] + rows["time_to_target_s"].where(reached, rows["last_evaluated_s"])
    rows = rows.assign(reached=reached, time_s=time_s)
    everybody = rows.groupby(["turn", "elsewhere"], as_index=False).agg(
        {"mix": "first", "mode": "first", "repeat": "first", "reached": "all", "time_s": "max", "provenance": "first"}
    )
    rows = pd.concat([rows, everybody.assign(job=ALL)]).sort_values(["turn", "elsewhere"], kind="stable")
    types = {"target": float, "reached": bool, "time_s": float}
    return rows.reindex(columns=ACCURACY_COLUMNS).astype(types).reset_index(drop=True)


def accuracy_summary(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Over the repeats: Kaplan–Meier medians, in which failed and censored runs count.

    Returns:
        SUMMARY_COLUMNS. median_s is inf where half or more did not reach the target; low_s and high_s are its 95 %
        interval (NaN below five rounds: fastest_s and slowest_s, of those that did, say more).
    """
    rows = []
    for (mix, mode, job), own in accuracy.groupby(["mix", "mode", "job"], sort=False):
        median, low, high, _ = map(float, median_time(own["reached"].to_numpy(), own["time_s"].to_numpy()))
        times = own.loc[own["reached"], "time_s"]
        rows.append((mix, mode, job, len(own), int(own["reached"].sum()), median, low, high, times.min(), times.max()))
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)
