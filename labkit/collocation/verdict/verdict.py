"""The verdict on a group: what each way of sharing gained and cost, over its repeats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from labkit.collocation.verdict.accuracy import accuracy_summary, accuracy_table
from labkit.collocation.verdict.baseline import Baseline
from labkit.collocation.verdict.group_frames import job_table
from labkit.collocation.verdict.intervals import mean_of_repeats
from labkit.collocation.verdict.rounds import energies, joules, round_table, slowdowns

MEASURES = (
    "gain",
    "slowdown",
    "worst_slowdown",
    "fairness",
    "makespan_s",
    "makespan_gain",
    "energy_j",
    "energy_ratio",
)
"""Of `round_table`, that are averaged; each has its interval in columns that end with _low and _high."""


@dataclass(frozen=True)
class Verdict:
    """Everything that was found out about a group, in frames."""

    jobs: pd.DataFrame
    """One row a job and round (`job_table`)"""
    rounds: pd.DataFrame
    """One row a mix, mode and repeat (`round_table`)"""
    modes: pd.DataFrame
    """One row a mix and mode (`mode_table`)"""
    slowdowns: pd.DataFrame
    """One row a mix, mode and job (`slowdown_table`)"""
    accuracy: pd.DataFrame
    """One row a mix, mode, repeat and job, and all jobs (`accuracy_table`)"""
    time_to_accuracy: pd.DataFrame
    """The same over the repeats (`accuracy_summary`)"""


def verdict(group_folder: Path | str, *, undisturbed: bool = False) -> Verdict:
    """Read a group and judge it.

    Args:
        group_folder: of the group.
        undisturbed: leave out rounds in which other programs disturbed a job.

    Raises:
        UserError: the folder is no readable group, or one of its runs cannot be read.
    """
    jobs = job_table(group_folder)
    if undisturbed:
        jobs = jobs[~jobs["round"].isin(disturbed_rounds(jobs))].reset_index(drop=True)
    energy = energies(jobs)
    baseline = Baseline(jobs, joules(energy))
    rounds = round_table(jobs, baseline, energy)
    accuracy = accuracy_table(jobs, baseline)
    return Verdict(
        jobs=jobs,
        rounds=rounds,
        modes=mode_table(rounds),
        slowdowns=slowdown_table(slowdowns(jobs, baseline)),
        accuracy=accuracy,
        time_to_accuracy=accuracy_summary(accuracy),
    )


def disturbed_rounds(jobs: pd.DataFrame) -> dict[int, str]:
    """The rounds in which other programs disturbed a job, and what they did; `jobs` as from `job_table`."""
    return {row["round"]: row["disturbed"] for row in jobs[jobs["disturbed"] != ""].to_dict("records")}


def mode_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """What each mode came to for each mix, over its repeats.

    Each repeat of a mode is compared with the runs alone of the same repeat, so an interval holds the spread of both.
    The row of mode alone compares each run with the median of all, and shows how much the machine itself varies.

    Args:
        rounds: `round_table`.

    Returns:
        mix, family, mode, jobs, on, provenance; repeats that were run, and complete, in which all jobs were done;
        measured, the repeats that gain, slowdown and fairness are of; each of MEASURES as geometric mean, with _low and
        _high its 95 % interval (Student's t on logarithms; NaN where one repeat was measured); the largest
        peak_memory_bytes and peak_gpu_memory_bytes; energy_note; disturbed, the rounds in which other
        programs disturbed a job; and note, what broke or was missing.
    """
    rows = []
    for (mix, mode), own in rounds.groupby(["mix", "mode"], sort=False):
        row = {**own.iloc[0][["family", "jobs", "on", "provenance", "energy_note"]], "mix": mix, "mode": mode}
        row |= {"repeats": len(own), "complete": int(own["complete"].sum()), "measured": int(own["gain"].notna().sum())}
        for name in MEASURES:
            found = mean_of_repeats(own[name])
            row |= {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
        row |= {name: own[name].max() for name in ("peak_memory_bytes", "peak_gpu_memory_bytes")}
        row["disturbed"] = int(own["disturbed"].sum())
        row["note"] = "; ".join(dict.fromkeys(note for note in own["note"] if note))
        rows.append(row)
    known = ["mix", "family", "mode", "jobs", "on", "provenance", "repeats", "complete", "measured"]
    numbers = [f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")]
    columns = [*known, *numbers, "peak_memory_bytes", "peak_gpu_memory_bytes", "energy_note", "disturbed", "note"]
    return pd.DataFrame(rows, columns=columns)


def slowdown_table(slowed: pd.DataFrame) -> pd.DataFrame:
    """How many times as long each job takes as alone, over the repeats.

    Args:
        slowed: `slowdowns`.

    Returns:
        mix, mode, job, label, slowdown, slowdown_low, slowdown_high, repeats (that were measured), provenance.
    """
    rows = []
    for (mix, mode, job), own in slowed.groupby(["mix", "mode", "job"], sort=False):
        found = mean_of_repeats(own["slowdown"])
        first = own.iloc[0]
        rows.append((mix, mode, job, first["label"], *found, first["provenance"]))
    columns = ["mix", "mode", "job", "label", "slowdown", "slowdown_low", "slowdown_high", "repeats", "provenance"]
    return pd.DataFrame(rows, columns=columns)
