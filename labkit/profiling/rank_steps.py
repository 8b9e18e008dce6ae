"""The steps of several ranks, from a trace of each: how long they exchange and wait, and which one is late."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit import UserError, runs
from labkit.profiling.step_time import step_time
from labkit.profiling.tools import COMMUNICATION
from labkit.profiling.trace import read_trace

WORTH_SHARE = 0.05
"""Least share of a step that the others wait for a rank that is called late"""


@dataclass(frozen=True)
class RankSteps:
    """What ranks do in a step, compared. The values are means per step."""

    rows: list[dict[str, Any]]
    """Of each rank: rank (the name of its trace), step_us, exchange_us, waiting_us"""
    late: tuple[str, float] | None
    """The rank for which the others wait, and how much longer than it (µs); None if that is less than 5 % of a step"""

    @property
    def headline(self) -> str:
        longest_us = max(row["step_us"] for row in self.rows)
        if self.late is None:
            return f"No rank is late: the {len(self.rows)} ranks wait for each other less than 5 % of a step."
        name, us = self.late
        return f"{name} is late: the others wait {us / 1e3:.4g} ms per step for it, {us / longest_us:.0%} of one."


def compare_ranks(paths: Sequence[Path]) -> RankSteps:
    """Compare the ranks of a training on CPUs by a trace of the same steps of each.

    In each step the rank that communicates least came last: its communication is the exchange, and what another rank
    communicates longer is waiting.

    Raises:
        UserError: the traces have other steps, or none notes a collective on a thread of its own, as gloo does.
    """
    times = [step_time(replace(read_trace(path), may_lack_steps=True)) for path in paths]
    rows: list[dict[str, Any]] = []
    for path, time in zip(paths, times, strict=True):
        us = time.segments["us"].where(time.segments["phase"] == COMMUNICATION, 0.0)
        by_step = us.groupby(time.segments["step"]).sum() / time.steps
        rows.append({"rank": path.name, "phases_s": {step: (0.0, each) for step, each in by_step.items()}})
        if by_step.index.tolist() != [*rows[0]["phases_s"]]:
            raise UserError(f"{path}: its steps are not those of {paths[0].name}: record the same steps on each rank.")
    if not any(seconds for row in rows for _, seconds in row["phases_s"].values()):
        raise UserError(f"{paths[0].parent}: no trace notes that a rank waits for others, as gloo's do: name one.")
    steps = runs.exchange_s(rows).values()
    exchange_us = sum(exchange for exchange, _ in steps)
    waiting_us = [sum(each) for each in zip(*(waits for _, waits in steps), strict=True)]
    found = [
        {"rank": row["rank"], "step_us": time.step_us, "exchange_us": exchange_us, "waiting_us": us}
        for row, time, us in zip(rows, times, waiting_us, strict=True)
    ]
    late = runs.late_rank(rows)
    is_late = late is not None and late[1] >= WORTH_SHARE * max(time.step_us for time in times)
    return RankSteps(found, late if is_late else None)
