"""Which mode to use for a mix, and why, in words that say no more than was measured; and whose the counters are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit import launch, runs
from labkit.sharing.verdicts import Verdict

FASTER = 0.9
"""A job that takes less than this share of its time alone hints at a baseline that was disturbed."""


@dataclass(frozen=True)
class Advice:
    """What to do with one mix of jobs."""

    mix: str
    mode: str | None
    """The mode to use; None where no mode was measured beside alone, or alone was not"""
    reason: str
    """In sentences, with the numbers it rests on"""


def advise(found: Verdict) -> list[Advice]:
    """Advice for each mix of those run that more than one job is in.

    Sharing is advised where the 95 % interval of its gain, each repeat beside its own runs alone, lies above 1. Of the
    modes that gain so, the one that gains most is taken, or the fairer of those whose intervals meet its own. Where
    none does, running alone is advised, because sharing delays each job for nothing that was shown. One repeat has no
    interval and leads to no advice. A mode in which a job broke is never advised.
    """
    advice = []
    for mix, modes in found.modes[found.modes["jobs"] > 1].groupby("mix", sort=False):
        modes = modes.set_index("mode")
        # alone, a job that was cut short had its speed until then, and no neighbour that it could break
        whole = (modes["complete"] == modes["repeats"]) | (modes.index == "alone")
        sound = modes[whole & modes["gain"].notna()]
        advice.append(Advice(mix, *_mode_and_reason(sound, " ".join(["", *_what_is_missing(modes, sound)]))))
    return advice


def _what_is_missing(modes: pd.DataFrame, sound: pd.DataFrame) -> list[str]:
    said = []
    for mode, row in modes.drop(index=sound.index).iterrows():
        broke, repeats = int(row["repeats"] - row["complete"]), int(row["repeats"])
        what = f"In {mode}, {broke} of {repeats} rounds did not come to their end" if broke else f"{mode} has no gain"
        said.append(f"{what}: {row['note']}.")
    on_cpu = (modes["on"] == "cpu").all()
    possible = [mode for mode in launch.MODES if mode == "alone" or (mode in launch.CPU_MODES) == on_cpu]
    if missing := [mode for mode in possible if mode not in modes.index or not modes.loc[mode, "complete"]]:
        said.append(f"Not measured: {', '.join(missing)}.")
    if disturbed := modes["disturbed"].sum():
        said.append(f"Other programs disturbed {disturbed} of {modes['repeats'].sum()} rounds (--undisturbed).")
    once = sound.index[sound["gain_low"].isna() & (sound.index != "alone")]
    if len(once):
        said.append(f"One repeat, as of {' and '.join(once)}, proves nothing: repeat it 3 times or more (--repeats 3).")
    return said


def _mode_and_reason(sound: pd.DataFrame, tail: str) -> tuple[str | None, str]:
    shared = sound.drop(index="alone", errors="ignore")
    if "alone" not in sound.index:
        return None, f"Without the jobs' runs alone there is nothing to compare with: add mode alone.{tail}"
    if shared.empty:
        return None, f"Only alone was measured whole.{tail}"
    if sound["slowdown"].min() < FASTER:
        return None, (
            f"No advice: in {sound['slowdown'].idxmin()} each job was faster than alone ({sound['slowdown'].min():.2f} "
            "times its time), which sharing cannot do. Other programs kept the machine busy during the runs alone, or "
            f"the jobs lose by having more threads: measure again while nothing else runs.{tail}"
        )
    gains = " and ".join(f"{mode} gets {_gain_text(row)} as much work done" for mode, row in shared.iterrows())
    if shared["gain_low"].isna().all():
        return None, f"No advice: {gains}.{tail}"
    gaining = shared[shared["gain_low"] > 1]
    if gaining.empty:
        loses = (shared["gain_high"] < 1).all()
        so = ": sharing loses" if loses else f", which is no gain that {_repeats(shared)} can show"
        return "alone", f"Run the jobs one after another: {gains}{so}.{tail}"
    best = gaining.loc[gaining["gain"].idxmax()]
    tied = gaining[(gaining["gain_low"] <= best["gain_high"]) & (best["gain_low"] <= gaining["gain_high"])]
    mode = tied["fairness"].idxmax()
    did = f"{_gain_text(best)} as much work done in the same time as one after another"
    why = f"Use {mode}: it gets {did}."
    if mode != best.name:
        why = f"Use {mode}, the fairer one: it gets {_gain_text(gaining.loc[mode])}, and {best.name} {did}."
    if len(tied) > 1:
        names = " and ".join([mode, *tied.index.drop(mode)])
        why += f" Between {names} there is no difference that {_repeats(tied)} can show."
    return mode, f"{why} {_price(sound.loc[mode])}{tail}"


def _gain_text(row: pd.Series) -> str:
    """A row's gain with its interval, where there is one."""
    if not np.isfinite(row["gain_low"]):
        return f"{row['gain']:.2f} times"
    return f"{row['gain']:.2f} times (95 % interval {row['gain_low']:.2f} to {row['gain_high']:.2f})"


def _repeats(rows: pd.DataFrame) -> str:
    counts = sorted({int(count) for count in rows["measured"]})
    return f"{' and '.join(map(str, counts))} repeat{'' if counts == [1] else 's'}"


def _price(row: pd.Series) -> str:
    words = (
        f"Each job takes {row['slowdown']:.2f} times as long as alone, the slowest {row['worst_slowdown']:.2f} times"
    )
    words += f" (fairness {row['fairness']:.2f}, 1 being even)"
    if np.isfinite(row["makespan_gain"]):
        words += f", and all are done {row['makespan_gain']:.2f} times as fast"
    return (
        f"{words}, for {row['energy_ratio']:.2f} times the energy." if np.isfinite(row["energy_ratio"]) else f"{words}."
    )


def not_attributed(jobs: pd.DataFrame) -> str:
    """In sentences, which counters of shared devices are of all their jobs, and not divided; empty where none is.

    `jobs` is of `job_table`. A counter is a job's own where it is told by process, or by MIG slice.
    """
    shared = jobs[jobs["folder"].notna() & (jobs["mode"] != "alone")]
    samples = runs.read_telemetry(shared["folder"]).dropna(subset="value")
    sentences = []
    for mode, rounds in shared.groupby("mode", sort=False):
        by_scope = samples[samples["run"].isin(rounds["run"])].groupby("scope", observed=True)["counter"].agg(set)
        own = by_scope.get("process", set()) | by_scope.get("mig", set())
        if of_all := sorted(by_scope.get("device", set()) - own):
            sentences.append(f"In mode {mode}, no job's own, but of all that the device did: {', '.join(of_all)}.")
    return " ".join(sentences)
