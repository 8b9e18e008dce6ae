"""The report's sections over the runs that are shown, calculated again as they grow; energy once a run has ended."""

import json
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from labkit import plots, report, runs
from labkit.live.answers import frames
from labkit.live.board import Board

MOST_EVALUATIONS = 20_000
"""Evaluations that the sections draw: a browser holds each of them once for every axis"""
MOST_SERIES = 40
"""Groups that a section can show apart"""
MOST_WITH_ENERGY = 60
"""Runs whose telemetry is read for their energy over time"""


class Sections:
    """Sections by job and metric, which keep their place on the page."""

    def __init__(self, board: Board):
        self.board = board
        self._ids: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def answer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """A section per job and metric of these runs: its HTML, and what the page's script reads.

        A section that cannot be made says why as `problem`, and the others stay.
        """
        with self._lock:  # two pages may ask at once
            found, curves = frames(self.board, names, MOST_EVALUATIONS)
            curves = self._with_energy(curves, found)
            sections = []
            for (job, metric), own in found.groupby(["job", "metric"], sort=False, dropna=False):
                identifier = self._ids.setdefault((str(job), str(metric)), f"job{len(self._ids)}")
                series = own.groupby(runs.SERIES, sort=False, dropna=False).ngroup()
                latest = own[series > series.max() - MOST_SERIES]
                try:
                    section = report.build_section(identifier, curves[curves["run"].isin(latest["run"])], latest)
                except Exception as error:  # whatever the numbers of one job do, the others stay
                    sections.append({"id": identifier, "problem": f"{job}: {error}"})
                    continue
                payload = section.pop("payload")
                if left_out := len(own) - len(latest):
                    older = f"{plots.counted(left_out, 'run')} of {series.max() + 1 - MOST_SERIES} older groups"
                    why = f"are not in this section, which shows {MOST_SERIES}: filter the runs to choose others."
                    section["notes"].insert(0, f"{older} {why}")
                html = report.render("job.html", job=section, headings=report.HEADINGS)
                sections.append({"id": identifier, "html": html, "payload": payload})
            return sections

    def _with_energy(self, curves: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
        measured = found.loc[found["energy_j"].notna(), "run"]
        if measured.empty or len(measured) > MOST_WITH_ENERGY:
            return curves
        curves = curves.assign(energy_j=np.nan)
        feeds = [feed for run in measured if (feed := self.board.feeds.get(run)) is not None]
        for feed, spent in ((feed, feed.spending("energy_j")) for feed in feeds):
            if spent is not None:
                own = curves["run"] == feed.name
                curves.loc[own, "energy_j"] = spent.by(curves.loc[own, "wall_s"])
        return curves


def as_json(value: Any) -> str:
    """JSON, with null for what is no number."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(runs.without_nan(value), separators=(",", ":"), allow_nan=False)
