"""What the machine did under the curves of a run: its counters on the run's clock, evaluations and phases as spans."""

import functools
from typing import Any

import numpy as np

from labkit import UserError, runs
from labkit.live.answers import Asked, packed
from labkit.live.board import Board
from labkit.live.curves import Curve, coarser, extremes, within
from labkit.live.feed import DATE, SPENT, TRAIN, WALL, RunFeed, X, translated

MOST_HELD = 8
"""Runs whose telemetry is held in memory"""
MOST_SPANS = 400
LEAST_SPAN_S = 0.001

Key = tuple[str, str, str]
"""Scope, device and counter"""


class Telemetry:
    """The counters of one run, read part by part."""

    def __init__(self, feed: RunFeed):
        self.feed = feed
        self.curves: dict[Key, Curve] = {}
        """Rows of the date, in seconds since 1970, and the value"""
        self.units: dict[Key, str] = {}
        self._cursor = runs.Cursor()

    def update(self) -> None:
        """Read what is new."""
        news = runs.read_since(self.feed.folder, self._cursor, only=("telemetry",))
        self._cursor = news.cursor
        frame = news.telemetry.select(["time_ns", "device", "scope", "counter", "value", "unit"]).to_pandas()
        frame = frame[frame["value"].notna()]
        rows = np.stack([frame["time_ns"].to_numpy() / 1e9, frame["value"].to_numpy(float)], axis=1)
        for key, places in frame.groupby(["scope", "device", "counter"], observed=True).indices.items():
            own = rows[places]
            self.curves.setdefault(key, Curve(2)).append(own[np.argsort(own[:, 0], kind="stable")])
            self.units.setdefault(key, str(frame["unit"].iloc[places[0]] or ""))


class Machines:
    """The telemetry of the runs that were looked at last."""

    def __init__(self, board: Board):
        self.board = board
        self._telemetry = functools.lru_cache(MOST_HELD)(Telemetry)

    def answer(self, name: str, counter: str, asked: Asked) -> dict[str, Any]:
        """One counter of a run on the axis that is asked for, and the spans to shade.

        Args:
            name: the run.
            counter: "scope device counter", as `counters` of the answer lists them; empty for spans alone.
        """
        feed = self.board.feed(name)
        held = self._telemetry(feed)
        held.update()
        keys = {" ".join(key): key for key in sorted(held.curves)}
        with self.board.lock:
            answer: dict[str, Any] = {"counters": list(keys), "spans": _spans(feed, asked), "run": feed.name}
            if counter in keys:
                stretches = np.array(held.curves[keys[counter]].stretches)
                stretches[:, :, 0] = _on_axis(feed, asked, stretches[:, :, 0])
        if counter in keys:
            rows = extremes(coarser(within(stretches, 0, asked.start, asked.end), asked.width))
            unit, values = held.units[keys[counter]], rows[:, 1]
            if unit == "bytes":
                unit, values = "GiB", values / 2**30
            answer |= {"x": packed(rows[:, 0]), "y": packed(values), "title": f"{counter.split()[-1]} ({unit})"}
        elif counter:
            answer["missing"] = f"{feed.name} has no samples of {counter}"
        return answer


def _on_axis(feed: RunFeed, asked: Asked, dates: np.ndarray) -> np.ndarray:
    """Seconds since 1970 as places on the axis that is asked for."""
    if not len(clocks := feed.clocks()):
        raise UserError(f"{feed.name} has not begun to train: its samples have no place on this axis yet.")
    wall_s = translated(clocks, dates, DATE, WALL)
    if asked.x in SPENT:
        if (spent := feed.spending(asked.x)) is None:
            raise UserError(f"{feed.name} has no place on this axis, so its samples have none.")
        return spent.by(wall_s)
    if asked.x == "wall_s":
        return wall_s
    points = np.concatenate([np.zeros((1, len(X))), *(curve.stretches[:, 2, :-1] for curve in feed.curves.values())])
    points = points[np.argsort(points[:, 1])]
    return np.interp(wall_s, points[:, 1], points[:, asked.column])


def _spans(feed: RunFeed, asked: Asked) -> list[dict[str, Any]]:
    """Evaluations (all wall time that was no training time) and windows of `labkit.energy.window`, by wall time."""
    if asked.x != "wall_s":
        return []
    clocks, found = feed.clocks(), []
    lengths = np.diff(clocks[:, WALL]) - np.diff(clocks[:, TRAIN])
    for end, length in zip(clocks[1:, WALL].tolist(), lengths.tolist(), strict=True):
        if length > LEAST_SPAN_S:
            found.append({"kind": "evaluation", "from": end - length, "to": end})
    for event in feed.events if len(clocks) else ():
        if event["event"] == "windows" and "/" not in event["name"]:
            dates = np.array([*zip(event["begin_ns"], event["end_ns"], strict=False)], float).reshape(-1, 2) / 1e9
            ends = translated(clocks, dates, DATE, WALL).tolist()
            found += [{"kind": event["name"], "from": begin, "to": end} for begin, end in ends]
    start, end = asked.limits
    return [span for span in found if span["to"] >= start and span["from"] <= end][-MOST_SPANS:]
