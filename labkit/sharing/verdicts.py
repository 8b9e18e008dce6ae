"""The verdict on a mix: what each way of sharing gained and cost, turn by turn and over its repeats; and advice."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from labkit import launch, runs, tta
from labkit.sharing.mix_tables import jain, job_table, turn_table, what_broke

MEASURES = [
    "gain", "slowdown", "worst_slowdown", "fairness", "makespan_s", "makespan_gain", "energy_j", "energy_ratio",
]  # fmt: skip
"""Of `round_table`, that are averaged; each has its interval in columns that end with _low and _high."""
ROUND_COLUMNS = [
    "mix", "family", "mode", "repeat", "jobs", "complete", *MEASURES, "energy_note", "on", "provenance", "disturbed",
    "note",
]  # fmt: skip
OWN_HARDWARE = "alone, own hardware"
"""A mode besides those that were run: each job on a device of its own"""
ALL = "all jobs"
ACCURACY_COLUMNS = ["mix", "mode", "repeat", "job", "metric", "target", "reached", "time_s", "provenance"]
SUMMARY_COLUMNS = ["mix", "mode", "job", "rounds", "reached", "median_s", "low_s", "high_s"]
FASTER = 0.9
"""A job that takes less than this share of its time alone hints at a baseline that was disturbed."""


@dataclass(frozen=True)
class Verdict:
    """Everything that was found out about a mix, as frames."""

    jobs: pd.DataFrame
    """One row per job and round (`job_table`)"""
    rounds: pd.DataFrame
    """One row per mix, mode and repeat (`round_table`)"""
    modes: pd.DataFrame
    """One row per mix and mode (`mode_table`)"""
    slowdowns: pd.DataFrame
    """One row per mix, mode and job (`slowdown_table`)"""
    accuracy: pd.DataFrame
    """One row per mix, mode, repeat and job, and all jobs (`accuracy_table`)"""
    time_to_accuracy: pd.DataFrame
    """The same over the repeats (`accuracy_summary`)"""


def verdict(mix_folder: Path | str, *, undisturbed: bool = False) -> Verdict:
    """Read a mix and judge it; `undisturbed` leaves out rounds in which other programs disturbed a job.

    Raises:
        UserError: the folder is not a readable mix.
    """
    jobs = job_table(mix_folder)
    if undisturbed:
        jobs = jobs[~jobs["round"].isin(disturbed_rounds(jobs))].reset_index(drop=True)
    turns = turn_table(jobs)
    rounds, accuracy = round_table(turns), accuracy_table(turns)
    modes, slowdowns = mode_table(rounds), slowdown_table(turns)
    return Verdict(jobs, rounds, modes, slowdowns, accuracy, accuracy_summary(accuracy))


def disturbed_rounds(jobs: pd.DataFrame) -> dict[int, str]:
    """The rounds in which other programs disturbed a job, and what they did; `jobs` as from `job_table`."""
    return {row["round"]: row["disturbed"] for row in jobs[jobs["disturbed"] != ""].to_dict("records")}


def round_table(turns: pd.DataFrame) -> pd.DataFrame:
    """What each round came to; in mode alone, all jobs of the mix one after another, one row a repeat.

    With s the slowdown of each of n jobs (`turn_table`) and x = 1/s its speed, of that alone:

    - gain: weighted speed-up Σ x, also called system throughput (STP; Eyerman and Eeckhout, IEEE Micro 28(3), 2008,
      section "System throughput"): the work done at once, of that of the device when it runs one job after another,
      which is 1.
    - slowdown: mean of s, their average normalised turnaround time (ANTT, same place); worst_slowdown: the largest.
    - fairness: Jain's index of the speeds: 1 where all are slowed alike, 1/n where one has everything.
    - makespan_s: from the barrier until the last job was through; makespan_gain: the sum of the jobs' durations
      alone, by it.
    - energy_j: of the devices in that time, counted once for all jobs; energy_ratio: by the sum of theirs alone.

    Returns:
        ROUND_COLUMNS. complete says whether all jobs were done; note says what broke, or what is missing.
    """
    rows = []
    for _, own in turns.groupby("turn", sort=True):
        first, slowed = own.iloc[0], own["slowdown"].to_numpy(float)
        alone, complete = first["mode"] == "alone", bool((own["status"] == "done").all())
        makespan_s = (own["wall_s"].sum() if alone else own["wall_s"].max()) if complete else np.nan
        energy_j = own["energy_j"].sum(skipna=False) if alone else first["energy_j"] if complete else np.nan
        rows.append(
            {
                **first[["mix", "mode", "repeat", "provenance"]],
                "family": " + ".join(sorted(set(own["label"]))),
                "jobs": len(own),
                "complete": complete,
                "gain": (1 / slowed).mean() if alone else (1 / slowed).sum(),
                "slowdown": slowed.mean(),
                "worst_slowdown": slowed.max(),
                "fairness": jain(1 / slowed),
                "makespan_s": makespan_s,
                "makespan_gain": own["alone_s"].sum(skipna=False) / makespan_s,
                "energy_j": energy_j,
                "energy_ratio": energy_j / own["alone_j"].sum(skipna=False),
                # where there is no sum, why
                "energy_note": own.sort_values("energy_j", na_position="first")["energy_note"].iloc[0],
                "on": "gpu" if (own["on"] == "gpu").any() else "cpu",
                "disturbed": bool((own["disturbed"] != "").any()),
                "note": what_broke(own),
            }
        )
    return pd.DataFrame(rows, columns=ROUND_COLUMNS).astype(dict.fromkeys(MEASURES, float))


def mode_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """What each mode came to for each mix, over its repeats.

    Each repeat of a mode is compared with the runs alone of the same repeat, so an interval holds the spread of both.
    The row of mode alone compares each run with the median of all, and shows how much the machine itself varies.

    Returns:
        In addition to columns of `round_table`: repeats that were run; complete, those in which all jobs were done;
        measured, those that gain, slowdown and fairness are of; disturbed, the number of such rounds. MEASURES are as
        `mean_of_repeats` has them.
    """
    rows = []
    for (mix, mode), own in rounds.groupby(["mix", "mode"], sort=False):
        row = {"mix": mix, "mode": mode, **own.iloc[0][["family", "jobs", "on", "provenance", "energy_note"]]}
        row |= {"repeats": len(own), "complete": int(own["complete"].sum()), "measured": int(own["gain"].notna().sum())}
        for name in MEASURES:
            row[name], row[f"{name}_low"], row[f"{name}_high"], _ = mean_of_repeats(own[name])
        notes = "; ".join(dict.fromkeys(note for note in own["note"] if note))
        rows.append(row | {"disturbed": int(own["disturbed"].sum()), "note": notes})
    columns = ["mix", "family", "mode", "jobs", "on", "provenance", "repeats", "complete", "measured", "disturbed"]
    columns += [f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=[*columns, "energy_note", "note"])


def slowdown_table(turns: pd.DataFrame) -> pd.DataFrame:
    """How many times as long each job takes as alone, over the repeats that were measured."""
    rows = [
        (mix, mode, job, own["label"].iloc[0], *mean_of_repeats(own["slowdown"]), own["provenance"].iloc[0])
        for (mix, mode, job), own in turns.groupby(["mix", "mode", "job"], sort=False)
    ]
    columns = ["mix", "mode", "job", "label", "slowdown", "slowdown_low", "slowdown_high", "repeats", "provenance"]
    return pd.DataFrame(rows, columns=columns)


def accuracy_table(turns: pd.DataFrame) -> pd.DataFrame:
    """Time to target, counted from when the first job of the mix may begin.

    In mode alone a job waits for those before it to end; the same runs on a device each are OWN_HARDWARE. A job that
    did not reach its target stays in the table: time_s is inf where it failed, else how long it is known to have been
    short of it, *censored*.
    Jobs without a target, such as scripts, take their turn and have no row. `turns` is of `turn_table`.

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
    how = dict.fromkeys(("mix", "mode", "repeat", "provenance"), "first") | {"reached": "all", "time_s": "max"}
    everybody = rows.groupby(["turn", "elsewhere"], as_index=False).agg(how)
    rows = pd.concat([rows, everybody.assign(job=ALL)]).sort_values(["turn", "elsewhere"], kind="stable")
    types = {"target": float, "reached": bool, "time_s": float}
    return rows.reindex(columns=ACCURACY_COLUMNS).astype(types).reset_index(drop=True)


def accuracy_summary(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Over the repeats: Kaplan–Meier medians, in which failed and censored runs count.

    Returns:
        SUMMARY_COLUMNS. median_s is inf where half or more did not reach the target; low_s and high_s are its 95 %
        interval, NaN below five rounds.
    """
    rows = []
    for (mix, mode, job), own in accuracy.groupby(["mix", "mode", "job"], sort=False):
        median, low, high, _ = map(float, tta.median_time(own["reached"].to_numpy(), own["time_s"].to_numpy()))
        rows.append((mix, mode, job, len(own), int(own["reached"].sum()), median, low, high))
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


def mean_of_repeats(values: Iterable[float]) -> tuple[float, float, float, int]:
    """The geometric mean with its 95 % interval, by Student's t on the logarithms, and how many values were measured.

    All that is averaged here is a ratio or a duration, which no interval should let go below zero. Not a bootstrap: of
    three repeats it would be far too narrow. Values that are NaN, or not above zero, were not measured; of one there
    is no interval.

    >>> [round(number, 2) for number in mean_of_repeats([1.0, 2.0, 4.0])]
    [2.0, 0.36, 11.19, 3]
    >>> mean_of_repeats([1.5])
    (1.5, nan, nan, 1)
    """
    known = np.array([value for value in values if np.isfinite(value) and value > 0], float)
    if known.size < 2:
        return float(known[0]) if known.size else np.nan, np.nan, np.nan, known.size
    return *np.exp(tta.mean_interval(np.log(known).tolist())).tolist(), known.size


@dataclass(frozen=True)
class Advice:
    """What to do with one mix of jobs."""

    mix: str
    mode: str | None
    """The mode to use; None where only alone was measured, or alone was not"""
    reason: str
    """In sentences, with the numbers it rests on"""


def advise(found: Verdict) -> list[Advice]:
    """Advice for each mix of those run that more than one job is in.

    Sharing is advised where the 95 % interval of its gain, each repeat compared with its own runs alone, lies above 1.
    Of the modes that gain so, the one that gains most is taken, or the fairer of those whose intervals meet its own.
    Where none does, running alone is advised, because sharing delays each job for nothing that was shown. One repeat
    has no interval and leads to no advice. A mode in which a job broke is never advised.
    """
    advice = []
    for mix, modes in found.modes[found.modes["jobs"] > 1].groupby("mix", sort=False):
        modes = modes.set_index("mode")
        # alone, a job that was cut short had its speed until then, and no neighbour that it could break
        whole = (modes["complete"] == modes["repeats"]) | (modes.index == "alone")
        sound = modes[whole & modes["gain"].notna()]
        mode, reason = _mode_and_reason(sound)
        advice.append(Advice(mix, mode, " ".join([reason, *_what_is_missing(modes, sound)])))
    return advice


def _what_is_missing(modes: pd.DataFrame, sound: pd.DataFrame) -> list[str]:
    notes = []
    for mode, row in modes.drop(index=sound.index).iterrows():
        broke, repeats = int(row["repeats"] - row["complete"]), int(row["repeats"])
        what = f"In {mode}, {broke} of {repeats} rounds did not come to their end" if broke else f"{mode} has no gain"
        notes.append(f"{what}: {row['note']}.")
    on_cpu = (modes["on"] == "cpu").all()
    possible = [mode for mode in launch.MODES if mode == "alone" or (mode in launch.CPU_MODES) == on_cpu]
    if missing := [mode for mode in possible if mode not in modes.index or not modes.loc[mode, "complete"]]:
        notes.append(f"Not measured: {', '.join(missing)}.")
    if disturbed := modes["disturbed"].sum():
        notes.append(f"Other programs disturbed {disturbed} of {modes['repeats'].sum()} rounds (--undisturbed).")
    once = " and ".join(sound.index[sound["gain_low"].isna() & (sound.index != "alone")])
    if once:
        notes.append(f"One repeat, as of {once}, proves nothing: repeat it 3 times or more (--repeats 3).")
    return notes


def _mode_and_reason(sound: pd.DataFrame) -> tuple[str | None, str]:
    shared = sound.drop(index="alone", errors="ignore")
    if "alone" not in sound.index:
        return None, "Without the jobs' runs alone there is nothing to compare with: add mode alone."
    if shared.empty:
        return None, "Only alone was measured whole."
    if sound["slowdown"].min() < FASTER:
        return None, (
            f"No advice: in {sound['slowdown'].idxmin()} each job was faster than alone ({sound['slowdown'].min():.2f} "
            "times its time), which sharing cannot do. Other programs kept the machine busy during the runs alone, or "
            "the jobs lose by having more threads: measure again while nothing else runs."
        )
    gains = " and ".join(f"{mode} gets {_gain_text(row)} as much work done" for mode, row in shared.iterrows())
    if shared["gain_low"].isna().all():
        return None, f"No advice: {gains}."
    gaining = shared[shared["gain_low"] > 1]
    if gaining.empty:
        loses = (shared["gain_high"] < 1).all()
        so = ": sharing loses" if loses else f", which is no gain that {_repeats(shared)} can show"
        return "alone", f"Run the jobs one after another: {gains}{so}."
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
    return mode, f"{why} {_price(sound.loc[mode])}"


def _gain_text(row: pd.Series) -> str:
    """A row's gain with its interval, where there is one."""
    if not np.isfinite(row["gain_low"]):
        return f"{row['gain']:.2f} times"
    return f"{row['gain']:.2f} times (95 % interval {row['gain_low']:.2f} to {row['gain_high']:.2f})"


def _repeats(rows: pd.DataFrame) -> str:
    counts = sorted({int(count) for count in rows["measured"]})
    return f"{' and '.join(map(str, counts))} repeat{'' if counts == [1] else 's'}"


def _price(row: pd.Series) -> str:
    price = f"Each job takes {row['slowdown']:.2f} times as long as alone, "
    price += f"the slowest {row['worst_slowdown']:.2f} times (fairness {row['fairness']:.2f}, 1 being even)"
    if np.isfinite(row["makespan_gain"]):
        price += f", and all are done {row['makespan_gain']:.2f} times as fast"
    if np.isfinite(row["energy_ratio"]):
        price += f", for {row['energy_ratio']:.2f} times the energy"
    return f"{price}."


def not_attributed(jobs: pd.DataFrame) -> str:
    """In sentences, which counters of shared devices are of all their jobs, and not divided; empty where none is.

    `jobs` is of `job_table`. A counter is a job's own where the driver reports it by process, or by MIG slice.
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
