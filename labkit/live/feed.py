"""One run as it grows: its record, its events and its numbers, each read on from where the last look ended.

It also knows what it had spent by each moment of its clock: joules of its device, and dollars at the price of its tier.
"""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from labkit import UserError, runs, telemetry, tta
from labkit.live.curves import Curve

X = ("step", "wall_s", "train_s", "samples")
"""Axes of every metric: the columns of a curve before its value"""
SPENT = ("energy_j", "cost_usd")
"""Axes that follow from a run's wall time"""
MOMENTS = 1025
RENEWED_S = 10.0
"""Seconds after which the counters of a run that goes on are read again: all of them, from its beginning"""
LONGEST_TEXT = 300
"""Characters of a text that anyone wrote into a run which are kept: a setting may be a whole file"""
MOST_EVENTS = 2_000
"""Events of a run that are kept: the latest"""
JUST_NOW_NS = 10**8
"""A folder that changed less than this ago may change once more within the same tick of the file system's clock"""


DATE, WALL, TRAIN = range(3)


def translated(clocks: np.ndarray, moments: np.ndarray, clock: int, other: int) -> np.ndarray:
    """Moments by one of `RunFeed.clocks` as moments by another.

    Each counts from the last moment before it that both clocks know, because a resume leaves a gap.
    """
    before = np.clip(np.searchsorted(clocks[:, clock], moments, side="right") - 1, 0, None)
    return clocks[before, other] + moments - clocks[before, clock]


class Spending(NamedTuple):
    """What was spent by some moments of the wall time."""

    wall_s: np.ndarray
    spent: np.ndarray
    how: str
    """Whether it was measured, and by what"""

    def on(self, rows: np.ndarray) -> np.ndarray:
        """Rows of a curve with what was spent in place of the wall time."""
        placed = np.array(rows)
        placed[..., 1] = self.by(placed[..., 1])
        return placed

    def by(self, wall_s: np.ndarray) -> np.ndarray:
        return np.interp(wall_s, self.wall_s, self.spent)


class RunFeed:
    """A run folder that is looked at again and again."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.record: runs.RunRecord = None  # ty: ignore[invalid-assignment]  # until the first look
        self.events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self.version = 0
        """Raised with every change"""
        self._energy: tuple[str, float, Spending | None] = ("", 0.0, None)
        """What was last read of its energy, after its status and the moment then"""
        self._record_as_of: tuple[int, ...] = ()
        self._grown_to = (0, 0)
        self._forget()

    def _forget(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.latest = np.zeros(len(X))
        """The furthest place on each axis"""
        self.events.clear()
        self._cursor = runs.Cursor()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def metric(self) -> str | None:
        """The target's metric, else the first that was evaluated."""
        train = self.record.config.get("train", {})
        evaluated = (each.get("metrics") for each in self.events if each["event"] == "evaluated")
        return train.get("target_metric") or next((name for names in evaluated for name in names or ()), None)

    def update(self) -> bool:
        """Look again; whether anything is new.

        Raises:
            FileNotFoundError: the folder is gone.
            UserError: its record cannot be read.
        """
        is_new = self._read_record()
        if is_new or self._has_grown():
            is_new |= self._read_on()
        self.version += is_new
        return is_new

    def _read_record(self) -> bool:
        stat = (self.folder / "run.json").stat()
        as_of = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if as_of != self._record_as_of or self.record is None:
            record = runs.read_run(self.folder)
            self.record, self._record_as_of = replace(record, config=short(record.config)), as_of
            return True
        if self.record.status == "running" and not self.record.is_being_written(self.folder):
            self.record.status = "interrupted"
            return True
        return False

    def _has_grown(self) -> bool:
        """Whether events or parts came since this was asked last."""
        try:
            size = (self.folder / "events.jsonl").stat().st_size
            changed_ns = (self.folder / "metrics").stat().st_mtime_ns
        except OSError:
            return False
        if time.time_ns() - changed_ns < JUST_NOW_NS:
            changed_ns = 0
        before, self._grown_to = self._grown_to, (size, changed_ns)
        return before != self._grown_to or changed_ns == 0

    def _read_on(self) -> bool:
        news = runs.read_since(self.folder, self._cursor, only=("metrics", "events"))
        if news.kept_steps is not None and self._cursor != runs.Cursor():  # rows that were taken no longer count
            self._forget()
            news = runs.read_since(self.folder, only=("metrics", "events"))
        self._cursor = news.cursor
        self.events.extend(map(short, news.events))
        for name, rows in by_name(news.metrics).items():
            self.curves.setdefault(name, Curve(len(X) + 1)).append(rows)
            self.latest = np.fmax(self.latest, rows[-1, :-1])
        return bool(news.events) or len(news.metrics) > 0

    def described(self) -> runs.RunRecord:
        """Its record, which for a run without a result says what is known by now, so that nothing is read for it."""
        step, wall_s, train_s, samples = self.latest.tolist()
        known = {"wall_s": wall_s, "train_s": train_s, "samples": samples, "steps": step, "peak_memory_bytes": None}
        known |= {"energy_j": None, "energy_note": "known once a run has ended"}
        config = {**self.record.config, "train": {**self.record.config.get("train", {})}}
        config["train"]["target_metric"] = self.metric
        result: Any = known | (self.record.result or {})
        return replace(self.record, result=result, config=config)

    def clocks(self) -> np.ndarray:
        """(N, 3) moments in order: DATE in seconds since 1970, and seconds of the run's wall and training time."""
        found = []
        for event in self.events:
            wall_s = event.get("clock_s") if event["event"] == "began" else event.get("wall_s")
            if event["event"] in ("began", "evaluated") and wall_s is not None:
                found.append((runs.moment_ns(event["time"]) / 1e9, wall_s, event.get("train_s", wall_s)))
        return np.array(sorted(found), float).reshape(-1, 3)

    def spending(self, axis: str) -> Spending | None:
        """What it spent; None if no price, counter or power is known of it."""
        if axis == "cost_usd":
            price, wall_s = tta.price_usd_per_h(self.record.tier), np.array([0.0, self.latest[1]])
            if price.value_usd is None:
                return None
            how = f"predicted from {self.record.provenance.kind} time: {price.note}"
            return Spending(wall_s, wall_s * price.value_usd / 3600, how)
        status, read_at, known = self._energy
        if status != self.record.status or (status == "running" and time.monotonic() - read_at > RENEWED_S):
            known = self._read_energy()
            self._energy = self.record.status, time.monotonic(), known
        return known

    def _read_energy(self) -> Spending | None:
        clocks = self.clocks()
        try:
            energy, kind = tta.energy_of(telemetry.Samples(self.folder, telemetry.OF_ENERGY), True, None)
        except (UserError, OSError):
            return None
        if not len(clocks) or not energy.steps:
            return None
        wall_s = np.linspace(0, self.latest[1], MOMENTS)
        when_ns = translated(clocks, wall_s, WALL, DATE) * 1e9
        return Spending(wall_s, tta.energy_until(when_ns, energy.steps), f"{kind}: {energy.source}")


def by_name(table: pa.Table) -> dict[str, np.ndarray]:
    """The rows of each metric, each (N, len(X) + 1)."""
    if not len(table):
        return {}
    rows = np.stack([table[name].to_numpy().astype(float) for name in (*X, "value")], axis=1)
    words = table["name"].combine_chunks().dictionary_encode()
    codes = words.indices.to_numpy()
    return {name[:LONGEST_TEXT]: rows[codes == code] for code, name in enumerate(words.dictionary.to_pylist())}


def short(value: Any) -> Any:
    """Data with long texts cut."""
    if isinstance(value, Mapping):
        return {str(name)[:LONGEST_TEXT]: short(item) for name, item in value.items()}
    if isinstance(value, list):
        return [short(item) for item in value[:LONGEST_TEXT]]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}… ({len(value):,} characters)"
    return value
