"""How each job does alone, which all that sharing costs or gains is counted against."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from labkit.collocation.verdict.mixes import by_mix, shared_rounds


class Baseline:
    """The runs of mode alone, found by what they train."""

    def __init__(self, jobs: pd.DataFrame, energies: dict[int, float]):
        """Take `job_table`'s rows, and the joules of each round by its number (NaN where not known)."""
        alone = jobs[(jobs["mode"] == "alone") & jobs["wall_s"].notna()]
        self.runs = alone.assign(energy_j=alone["round"].map(energies).astype(float))

    def of(self, job: pd.Series) -> pd.DataFrame:
        """The runs alone of a job: those of its name that train the same, else all that train the same."""
        alike = self.runs[self.runs["likeness"] == job["likeness"]]
        named = alike[alike["job"] == job["job"]]
        return alike if named.empty else named

    def seconds(self, job: pd.Series, steps: float, repeat: int | None = None) -> float:
        """Seconds that the job alone takes for its first steps; NaN where it did not run alone.

        Its first steps are slower than its others, and evaluations come now and then: only the same steps compare.

        Args:
            job: a row of `job_table`.
            steps: so many.
            repeat: in which it ran alone; None takes the median over all, and so does one in which it did not.
        """
        runs = self.of(job)
        runs = runs[~runs["status"].isin(BROKEN)]
        of_repeat = runs[runs["repeat"] == repeat]
        courses = (runs if of_repeat.empty else of_repeat)["course"]
        return _median(courses.map(lambda course: _seconds(*course, steps)))

    def duration(self, job: pd.Series) -> float:
        """Seconds from the barrier until it was through, median of the runs alone that came to their end."""
        runs = self.of(job)
        return _median(runs.loc[runs["status"] == "done", "wall_s"])

    def energy(self, job: pd.Series) -> float:
        """Joules, median of the runs alone that came to their end."""
        runs = self.of(job)
        return _median(runs.loc[runs["status"] == "done", "energy_j"])

    def in_turn(self, jobs: pd.DataFrame) -> dict[int, pd.DataFrame]:
        """By repeat: the run alone of each of these jobs, in their order; repeats that lack one are left out.

        Where one copy was measured and several are asked for, its run stands for each of them.
        """
        turns = {}
        for repeat in sorted(self.runs["repeat"].unique()):
            runs = self.runs[self.runs["repeat"] == repeat]
            found = [runs.loc[self.of(job).index.intersection(runs.index)].head(1) for _, job in jobs.iterrows()]
            if all(len(run) for run in found):
                turns[int(repeat)] = pd.concat(found, ignore_index=True).assign(job=list(jobs["job"]))
        return turns

    def rounds(self, jobs: pd.DataFrame) -> Iterator[tuple[str, str, int, pd.DataFrame]]:
        """(mix, mode, repeat, its jobs): first each mix alone in turn, then the rounds that have ended."""
        for mix, planned in by_mix(jobs).items():
            for repeat, own in self.in_turn(planned).items():
                yield mix, "alone", repeat, own
        yield from shared_rounds(jobs)


BROKEN = ("failed", "out_of_memory")
"""How a job's speed says nothing; one that was stopped or timed out had a speed until then."""


def starts_s(mode: str, own: pd.DataFrame) -> list[float]:
    """When each job of a round may begin: alone, when the one before it has ended; else at once."""
    return own["wall_s"].cumsum().shift(fill_value=0.0).to_list() if mode == "alone" else [0.0] * len(own)


def _seconds(steps: np.ndarray, wall_s: np.ndarray, until: float) -> float:
    """When a course came to a number of steps; beyond its end it goes on as fast as it was."""
    if until > steps[-1]:
        return wall_s[-1] * until / steps[-1] if steps[-1] > 0 else np.nan
    return float(np.interp(until, steps, wall_s))


def _median(values: pd.Series) -> float:
    known = values.dropna().to_numpy(float)
    return float(np.median(known)) if known.size else np.nan
