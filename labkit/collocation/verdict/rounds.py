"""One row a round: how much the device got done, what it cost each job, and how evenly."""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.collocation.verdict.baseline import BROKEN, Baseline
from labkit.collocation.verdict.group_frames import last_step_s
from labkit.collocation.verdict.mixes import family_of
from labkit.collocation.verdict.round_energy import round_energy
from labkit.telemetry import Energy

ROUND_COLUMNS = [
    "mix", "family", "mode", "repeat", "jobs", "complete", "gain", "slowdown", "worst_slowdown", "fairness",
    "makespan_s", "makespan_gain", "energy_j", "energy_ratio", "energy_note", "peak_memory_bytes",
    "peak_gpu_memory_bytes", "on", "provenance", "disturbed", "note",
]  # fmt: skip
NUMBERS = [
    name for name in ROUND_COLUMNS[ROUND_COLUMNS.index("gain") : ROUND_COLUMNS.index("on")] if name != "energy_note"
]
SLOWDOWN_COLUMNS = ["mix", "mode", "repeat", "job", "label", "slowdown", "provenance"]


def energies(jobs: pd.DataFrame) -> dict[int, Energy]:
    """By number, the energy of each round of which a job was through."""
    ended = jobs[jobs["go_at"].notna() & jobs["wall_s"].notna()]
    return {
        int(number): round_energy(own["folder"].dropna(), own["go_at"].iloc[0], own["wall_s"].max())
        for number, own in ended.groupby("round", sort=True)
    }


def joules(found: dict[int, Energy]) -> dict[int, float]:
    """By number of the round, its joules; NaN where they are not known."""
    return {number: np.nan if energy.value_j is None else energy.value_j for number, energy in found.items()}


def slowdowns(jobs: pd.DataFrame, baseline: Baseline) -> pd.DataFrame:
    """How many times as long each job takes as alone, one row a job and round.

    It is the time in the round for the steps that the job took while all of its jobs trained, by the time of the same
    steps alone in the same repeat (in mode alone: the median over the repeats). Of a round in which a job broke there
    is none: its neighbours had more room than the mode gives. In mode alone it is about 1, and its spread is that of
    the machine.

    Returns:
        SLOWDOWN_COLUMNS; NaN where the job was not measured alone.
    """
    rows = []
    for mix, mode, repeat, own in baseline.rounds(jobs):
        known = own[["job", "label", "provenance"]].assign(mix=mix, mode=mode, repeat=repeat)
        rows.append(known.assign(slowdown=_slowdowns(own, mode, baseline)))
    return pd.concat(rows, ignore_index=True)[SLOWDOWN_COLUMNS] if rows else pd.DataFrame(columns=SLOWDOWN_COLUMNS)


def round_table(jobs: pd.DataFrame, baseline: Baseline, energy: dict[int, Energy]) -> pd.DataFrame:
    """What each round came to; in mode alone, all jobs of the mix one after another, one row a repeat.

    With s the slowdown of each of n jobs (`slowdowns`) and x = 1/s its speed, of that alone:

    - gain: weighted speed-up Σ x, also called system throughput (STP; Eyerman and Eeckhout, IEEE Micro 28(3), 2008,
      section "System throughput"): the work done at once, of that of the device when it runs one job after another,
      which is 1.
    - slowdown: mean of s, their average normalised turnaround time (ANTT, same place); worst_slowdown: the largest.
    - fairness: Jain's index of the speeds, (Σ x)² / (n Σ x²) (Jain, Chiu and Hawe, DEC-TR-301, 1984): 1 where all are
      slowed alike, 1/n where one has everything.
    - makespan_s: from the barrier until the last job was through; makespan_gain: the sum of the jobs' durations
      alone, by it.
    - energy_j: of the devices in that time, counted once for all jobs; energy_ratio: by the sum of theirs alone.

    Returns:
        ROUND_COLUMNS. complete says whether all jobs were done; note says what broke, or what is missing.
        peak_memory_bytes and peak_gpu_memory_bytes are sums of the jobs' peaks where they ran at once, the largest of
        them in mode alone.
    """
    rows = []
    joules_of = joules(energy)
    for mix, mode, repeat, own in baseline.rounds(jobs):
        alone, complete = mode == "alone", bool((own["status"] == "done").all())
        slowed = _slowdowns(own, mode, baseline)
        speeds = 1 / slowed
        if alone:
            makespan_s = own["wall_s"].sum() if complete else np.nan
            total_j = sum(joules_of.get(number, np.nan) for number in own["round"])
        else:
            makespan_s = own["wall_s"].max() if complete else np.nan
            total_j = joules_of.get(int(own["round"].iloc[0]), np.nan) if complete else np.nan
        # the one that says why there is no sum, if one does
        notes = sorted((energy[n] for n in own["round"] if n in energy), key=lambda each: each.value_j is not None)
        at_once = "max" if alone else "sum"
        rows.append(
            {
                "mix": mix,
                "family": family_of(own),
                "mode": mode,
                "repeat": repeat,
                "jobs": len(own),
                "complete": complete,
                "gain": speeds.mean() if alone else speeds.sum(),
                "slowdown": slowed.mean(),
                "worst_slowdown": slowed.max(),
                "fairness": speeds.sum() ** 2 / (len(speeds) * (speeds**2).sum()),
                "makespan_s": makespan_s,
                "makespan_gain": sum(baseline.duration(job) for _, job in own.iterrows()) / makespan_s,
                "energy_j": total_j,
                "energy_ratio": total_j / sum(baseline.energy(job) for _, job in own.iterrows()),
                "energy_note": notes[0].note if notes else "the round has not ended",
                "peak_memory_bytes": own["peak_memory_bytes"].agg(at_once, skipna=False),
                "peak_gpu_memory_bytes": own["peak_gpu_memory_bytes"].agg(at_once, skipna=False),
                "on": "gpu" if (own["on"] == "gpu").any() else "cpu",
                "provenance": own["provenance"].iloc[0],
                "disturbed": bool((own["disturbed"] != "").any()),
                "note": _note(own, baseline),
            }
        )
    return pd.DataFrame(rows, columns=ROUND_COLUMNS).astype(dict.fromkeys(NUMBERS, float))


def _slowdowns(own: pd.DataFrame, mode: str, baseline: Baseline) -> np.ndarray:
    """(J,) of the jobs of one round."""
    if own["status"].isin(BROKEN).any():
        return np.full(len(own), np.nan)
    slowed = []
    for _, job in own.iterrows():
        took_s = last_step_s(job["course"]) if mode == "alone" else job["window_s"]
        steps = float(np.interp(took_s, *job["course"][::-1]))
        repeat = None if mode == "alone" else job["repeat"]
        slowed.append(took_s / baseline.seconds(job, steps, repeat) if steps > 0 else np.nan)
    return np.array(slowed, float)


def _note(own: pd.DataFrame, baseline: Baseline) -> str:
    ends = {"out_of_memory": "ran out of memory", "timed_out": "was stopped at its timeout", "stopped": "was stopped"}
    parts = [f"{job.job} {ends.get(job.status, job.status)}" for job in own.itertuples() if job.status != "done"]
    unknown = [job["job"] for _, job in own.iterrows() if not len(baseline.of(job))]
    if unknown:
        parts.append(f"not measured alone: {', '.join(unknown)}")
    return "; ".join(parts)
