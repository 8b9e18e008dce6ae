"""What came of one fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

SUMMARY_COLUMNS = [
    "mode", "fault", "neighbours", "died", "rate_during", "rate_after", "gone_s", "ended_by", "fresh_before_s",
    "fresh_after_s", "attempts", "left", "device", "provenance",
]  # fmt: skip


@dataclass(frozen=True)
class FaultReport:
    """One faulty client and its neighbours, measured."""

    fault: str
    mode: str
    device: str
    """What the faulty client had of it, in words"""
    jobs: pd.DataFrame
    """A row a client: job, faulty, status (alive, or how it ended), reason, provenance, and its steps per second before
    the fault, during it (until the client is gone; NaN where that is too short to tell) and after it"""
    steps: pd.DataFrame
    """job, at_s (since the fault), steps_per_s, provenance: how fast each client was over time"""
    gone_s: float
    """From the fault until the client was gone"""
    ended_by: str
    """What it took: itself, SIGTERM or SIGKILL"""
    fresh_before_s: float | None
    """From its start to the first step of a fresh client, beside the neighbours, before the fault"""
    fresh_after_s: float | None
    """From the fault to the first step of a fresh client"""
    attempts: int
    """Fresh clients that it took"""
    left: int = 0
    """Processes that were left behind when all was over"""
    provenance: str = "measured"

    @property
    def neighbours(self) -> pd.DataFrame:
        """The rows of `jobs` without a fault."""
        return self.jobs[~self.jobs["faulty"]]

    @property
    def died(self) -> int:
        """Neighbours that ended with the faulty client."""
        return int((self.neighbours["status"] != "alive").sum())

    def rate_ratio(self, when: str) -> float:
        """The neighbours' steps per second, all together, "during" or "after", of those before the fault.

        A neighbour that has ended takes no steps; NaN where the time was too short to tell.
        """
        own = self.neighbours
        return float(own[when].sum(min_count=1) / own["before"].sum())


def fault_table(reports: Iterable[FaultReport]) -> pd.DataFrame:
    """One row a report: SUMMARY_COLUMNS; rates are those of all neighbours, of what they were before the fault."""
    rows = []
    for each in reports:
        rates = {"rate_during": each.rate_ratio("during"), "rate_after": each.rate_ratio("after")}
        rows.append(vars(each) | {"neighbours": len(each.neighbours), "died": each.died} | rates)
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)
