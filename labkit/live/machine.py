"""What the machine did under the curves of a run: its counters on the run's clock, evaluations and phases as spans."""

import itertools
from collections import OrderedDict
from typing import Any

import numpy as np

from labkit import UserError, runs
from labkit.live.answers import Asked, packed
from labkit.live.board import Board
from labkit.live.curves import Curve, coarser, extremes, within
from labkit.live.feed import RunFeed, X
from labkit.live.spending import SPENT, spending

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
        """Rows of the date, in seconds since the first sample, and the value"""
        self.units: dict[Key, str] = {}
        self.first_ns: int | None = None
        self._cursor = runs.Cursor()

    def update(self) -> None:
        """Read what is new."""
        news = runs.read_since(self.feed.folder, self._cursor, only=("telemetry",))
        self._cursor = news.cursor
        frame = news.telemetry.select(["time_ns", "device", "scope", "counter", "value", "unit"]).to_pandas()
        frame = frame[frame["value"].notna()]
        if frame.empty:
            return
        self.first_ns = int(frame["time_ns"].min()) if self.first_ns is None else self.first_ns
        seconds = (frame["time_ns"].to_numpy() - self.first_ns) / 1e9
        rows = np.stack([seconds, frame["value"].to_numpy(float)], axis=1)
        for key, places in frame.groupby(["scope", "device", "counter"], observed=True).indices.items():
            own = rows[places]
            self.curves.setdefault(key, Curve(2)).append(own[np.argsort(own[:, 0], kind="stable")])
            self.units.setdefault(key, str(frame["unit"].iloc[places[0]] or ""))


class Machines:
    """The telemetry of the runs that were looked at last."""

    def __init__(self, board: Board):
        self.board = board
        self._held: OrderedDict[str, Telemetry] = OrderedDict()

    def answer(self, name: str, counter: str, asked: Asked) -> dict[str, Any]:
        """One counter of a run on the axis that is asked for, and the spans to shade.

        Args:
            name: the run.
            counter: "scope device counter", as `counters` of the answer lists them; empty for spans alone.
        """
        feed = self.board.feed(name)
        if (held := self._held.pop(name, None)) is None or held.feed is not feed:
            held = Telemetry(feed)
        self._held[name] = held
        while len(self._held) > MOST_HELD:
            self._held.popitem(last=False)
        held.update()
        with self.board.lock:
            return self._answer(feed, held, counter, asked)

    def _answer(self, feed: RunFeed, held: Telemetry, counter: str, asked: Asked) -> dict[str, Any]:
        keys = {" ".join(key): key for key in sorted(held.curves)}
        answer: dict[str, Any] = {"counters": list(keys), "spans": _spans(feed, asked), "run": feed.name}
        if counter and counter in keys:
            curve = held.curves[keys[counter]]
            places = self._on_axis(feed, asked, held)
            stretches = np.array(curve.stretches)
            stretches[:, :, 0] = places(stretches[:, :, 0])
            seen = coarser(within(stretches, 0, asked.start, asked.end), asked.width)
            rows = extremes(seen)
            unit, values = held.units[keys[counter]], rows[:, 1]
            if unit == "bytes":
                unit, values = "GiB", values / 2**30
            answer |= {"x": packed(rows[:, 0]), "y": packed(values), "title": f"{counter.split()[-1]} ({unit})"}
        elif counter:
            answer["missing"] = f"{feed.name} has no samples of {counter}"
        return answer

    def _on_axis(self, feed: RunFeed, asked: Asked, held: Telemetry) -> Any:
        clocks = feed.clocks()
        if not clocks:
            raise UserError(f"{feed.name} has not begun to train: its samples have no place on this axis yet.")
        times, walls = (np.array([each[place] for each in clocks], float) for place in (0, 1))
        times = (times - held.first_ns) / 1e9
        points = np.concatenate(
            [np.zeros((1, len(X))), *(curve.stretches[:, 2, :-1] for curve in feed.curves.values())]
        )
        points = points[np.argsort(points[:, 1])]

        def places(seconds: np.ndarray) -> np.ndarray:
            # from the last moment before that is known on both clocks: a resume leaves a gap
            before = np.clip(np.searchsorted(times, seconds, side="right") - 1, 0, None)
            wall = walls[before] + seconds - times[before]
            if spent is not None:
                return np.interp(wall, spent.wall_s, spent.spent)
            return wall if asked.x == "wall_s" else np.interp(wall, points[:, 1], points[:, asked.column])

        spent = spending(feed, asked.x) if asked.x in SPENT else None
        if asked.x in SPENT and spent is None:
            raise UserError(f"{feed.name} has no place on this axis, so its samples have none.")
        return places


def _spans(feed: RunFeed, asked: Asked) -> list[dict[str, Any]]:
    """Evaluations (all wall time that was no training time) and windows of `labkit.energy.window`, by wall time."""
    if asked.x != "wall_s":
        return []
    clocks, found = feed.clocks(), []
    for before, now in itertools.pairwise(clocks):
        length = (now.wall_s - before.wall_s) - (now.train_s - before.train_s)
        if length > LEAST_SPAN_S:
            found.append({"kind": "evaluation", "from": now.wall_s - length, "to": now.wall_s})
    if clocks:
        for event in feed.events:
            if event["event"] != "windows" or "/" in str(event.get("name")):
                continue
            for begin_ns, end_ns in zip(event.get("begin_ns", ()), event.get("end_ns", ()), strict=False):
                ends = [_wall_s(clocks, moment) for moment in (begin_ns, end_ns)]
                found.append({"kind": str(event["name"]), "from": ends[0], "to": ends[1]})
    start, end = asked.limits
    return [span for span in found if span["to"] >= start and span["from"] <= end][-MOST_SPANS:]


def _wall_s(clocks: list, time_ns: float) -> float:
    before = next((clock for clock in reversed(clocks) if clock.time_ns <= time_ns), clocks[0])
    return before.wall_s + (time_ns - before.time_ns) / 1e9
