"""What each job did in each turn, a round or all jobs of a mix alone one after another, beside how it does alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from labkit import launch
from labkit.sharing.frames import last_step_s

BROKEN = ("failed", "out_of_memory")
"""How a job's speed says nothing; one that was stopped or timed out had a speed until then."""
ENDS = {"out_of_memory": "ran out of memory", "timed_out": "was stopped at its timeout", "stopped": "was stopped"}


def turn_table(jobs: pd.DataFrame) -> pd.DataFrame:
    """One row a turn and job: first each mix alone in turn, repeat by repeat, then the rounds that have ended.

    Where one copy was measured alone and several are asked for, its run stands for each of them. A repeat that lacks a
    job alone has no turn alone. `jobs` is of `job_table`.

    Returns:
        The columns of `job_table`, and turn (from 0), mix and

        - starts_s: when the job may begin: alone, when the one before it has ended; else at once;
        - slowdown: its time for the steps that it took while all jobs trained, by the time of the same steps alone in
          the same repeat (in mode alone: the median over the repeats, so that its spread is that of the machine). NaN
          where the job was not measured alone, and of a turn in which a job broke: its neighbours had more room than
          the mode gives;
        - alone_s and alone_j: seconds and joules of its runs alone that came to their end,
          medians; alone: how many runs it has alone.
    """
    alone = jobs[(jobs["mode"] == "alone") & jobs["wall_s"].notna()]
    mixes = _mixes(jobs)
    turns = []
    for mix, planned in mixes.values():
        for _, runs in alone.groupby("repeat"):
            own = [_alone(job, alone).index.intersection(runs.index)[:1] for _, job in planned.iterrows()]
            if all(map(len, own)):
                together = pd.concat([runs.loc[each] for each in own], ignore_index=True)
                turns.append(together.assign(job=list(planned["job"]), mix=mix))
    for _, own in jobs[jobs["mode"] != "alone"].groupby("round"):
        if not own["status"].isin(["waiting", "running"]).any():
            turns.append(own.reset_index(drop=True).assign(mix=mixes[_job_keys(own)][0]))
    if not turns:
        return jobs.iloc[:0].assign(**dict.fromkeys(["turn", "mix", *DERIVED], None))
    return pd.concat(
        [_with_baseline(own, alone).assign(turn=turn) for turn, own in enumerate(turns)], ignore_index=True
    )


DERIVED = ("starts_s", "slowdown", "alone_s", "alone_j", "alone")


def what_broke(own: pd.DataFrame) -> str:
    """What is missing in the rows of a turn; empty where nothing is."""
    parts = [f"{job.job} {ENDS.get(job.status, job.status)}" for job in own.itertuples() if job.status != "done"]
    unknown = own.loc[own["alone"] == 0, "job"]
    return "; ".join([*parts, f"not measured alone: {', '.join(unknown)}"] if len(unknown) else parts)


def jain(values: Iterable[float]) -> float:
    """Jain's fairness index, (Σx)² / (n Σx²), from 1/n to 1; NaN of nothing (Jain, Chiu and Hawe, DEC-TR-301, 1984).

    >>> jain([2, 2, 2]), jain([1, 0, 0, 0])
    (1.0, 0.25)
    """
    x = np.asarray(list(values), float)
    return float(x.sum() ** 2 / (len(x) * (x**2).sum())) if x.any() else np.nan


def _mixes(jobs: pd.DataFrame) -> dict[tuple[str, ...], tuple[str, pd.DataFrame]]:
    """By what they train, the name of each mix and its jobs as they were planned first, those of mode alone too.

    Two mixes of one name that train differently are told apart by the name of their workload.
    """
    found: dict[tuple[str, ...], pd.DataFrame] = {}
    for _, own in jobs.groupby(["workload", "mode"], sort=False):
        first = own.drop_duplicates("job")
        found.setdefault(_job_keys(first), first)
    words = {kinds: launch.mix_words(first["label"]) for kinds, first in found.items()}
    count = Counter(words.values())
    return {
        kinds: (words[kinds] if count[words[kinds]] == 1 else f"{words[kinds]} ({first['workload'].iloc[0]})", first)
        for kinds, first in found.items()
    }


def _job_keys(own: pd.DataFrame) -> tuple[str, ...]:
    return tuple(sorted(own["job_key"]))


def _alone(job: pd.Series, alone: pd.DataFrame) -> pd.DataFrame:
    """The runs alone of a job: those of its name that train the same, else all that train the same."""
    alike = alone[alone["job_key"] == job["job_key"]]
    named = alike[alike["job"] == job["job"]]
    return alike if named.empty else named


def _with_baseline(own: pd.DataFrame, alone: pd.DataFrame) -> pd.DataFrame:
    """The jobs of one turn with DERIVED."""
    in_turn = own["mode"].iloc[0] == "alone"
    broke = own["status"].isin(BROKEN).any()
    rows = []
    for _, job in own.iterrows():
        runs = _alone(job, alone)
        whole = runs[runs["status"] == "done"]
        slowdown = np.nan if broke else _slowdown(job, runs, in_turn)
        rows.append((0.0, slowdown, whole["wall_s"].dropna().median(), whole["energy_j"].dropna().median(), len(runs)))
    own = own.assign(**{name: list(values) for name, values in zip(DERIVED, zip(*rows, strict=True), strict=True)})
    return own.assign(starts_s=own["wall_s"].cumsum().shift(fill_value=0.0)) if in_turn else own


def _slowdown(job: pd.Series, runs: pd.DataFrame, in_turn: bool) -> float:
    """Its first steps are slower than its others, and evaluations come now and then: only the same steps compare."""
    took_s = last_step_s(job["progress"]) if in_turn else job["window_s"]
    steps = float(np.interp(took_s, *job["progress"][::-1]))
    runs = runs[~runs["status"].isin(BROKEN)]
    same = runs[runs["repeat"] == job["repeat"]]
    beside = runs if in_turn or same.empty else same
    return took_s / beside["progress"].map(lambda each: _seconds(*each, steps)).median() if steps > 0 else np.nan


def _seconds(steps: np.ndarray, wall_s: np.ndarray, until: float) -> float:
    """When a job had taken so many steps; beyond its last it goes on as fast as it was."""
    if until > steps[-1]:
        return wall_s[-1] * until / steps[-1] if steps[-1] > 0 else np.nan
    return float(np.interp(until, steps, wall_s))
