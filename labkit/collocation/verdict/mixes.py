"""What runs together, in words that do not depend on mode or plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pandas as pd

from labkit.collocation.plan.job_names import mix_words


def family_of(jobs: pd.DataFrame) -> str:
    """What a mix is of, whatever the number of copies.

    >>> family_of(pd.DataFrame({"label": ["speech:tour", "dlrm:tour", "dlrm:tour"]}))
    'dlrm:tour + speech:tour'
    """
    return " + ".join(sorted(set(jobs["label"])))


def by_mix(jobs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """By mix, its jobs as they were planned first: one row a job; those of mode alone as if they ran together.

    Two mixes of one name that train differently are told apart by the name of their workload.
    """
    found: dict[tuple[str, ...], tuple[str, str, pd.DataFrame]] = {}
    for (workload, _), own in jobs.groupby(["workload", "mode"], sort=False):
        first = own.drop_duplicates("job")
        found.setdefault(tuple(sorted(first["likeness"])), (mix_words(first["label"]), workload, first))
    names = Counter(mix for mix, _, _ in found.values())
    return {
        mix if names[mix] == 1 else f"{mix} ({workload})": rows.reset_index(drop=True)
        for mix, workload, rows in found.values()
    }


def shared_rounds(jobs: pd.DataFrame) -> Iterator[tuple[str, str, int, pd.DataFrame]]:
    """(mix, mode, repeat, its jobs) of each round in which jobs shared something and which has ended."""
    names = {tuple(sorted(rows["likeness"])): mix for mix, rows in by_mix(jobs).items()}
    for _, own in jobs[jobs["mode"] != "alone"].groupby("round", sort=True):
        if not own["status"].isin(["waiting", "running"]).any():
            first = own.iloc[0]
            mix = names[tuple(sorted(own["likeness"]))]
            yield mix, first["mode"], int(first["repeat"]), own.reset_index(drop=True)
