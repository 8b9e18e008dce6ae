"""The runs of some folders as they go on: who runs, who belongs together, and what has changed since a version."""

import math
import statistics
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from labkit import UserError, plots, runs, tracking, tta
from labkit.live.feed import LONGEST_TEXT, RunFeed

AT_ONCE_S = 0.4
"""Seconds after which a look at many new runs is shown before it goes on"""
MOST_NOTES = 100
GROUPED_AFTER_S = 1.0
"""Shortest time between two looks at which runs belong together"""


class Board:
    """All runs below some folders. One thread calls `look`; others read what it found, under `lock`."""

    def __init__(self, places: Sequence[Path | str]):
        self.places = [Path(place) for place in places]
        self.lock = threading.RLock()
        self.feeds: dict[str, RunFeed] = {}
        """By the name of the run's folder"""
        self.table = pd.DataFrame(columns=runs.RUN_COLUMNS)
        """`labkit.tta.table_of` of them"""
        self.varying: dict[str, dict[str, str]] = {}
        """Settings that differ among the runs: by name, then by run"""
        self.same: dict[str, str] = {}
        """Settings that are the same in all runs"""
        self.version, self.unread = 0, 0
        self.notes: list[str] = []
        self.rows: dict[str, dict[str, Any]] = {}
        """What the page's table says of each run"""
        self._row_version: dict[str, int] = {}
        self._refused: dict[Path, int] = {}
        self._groups: dict[str, str] = {}
        """What the page calls the group of each run that counts"""
        self._unread: list[Path] = []
        self._group_at, self._is_grouped = -math.inf, True

    def look(self) -> bool:
        """Look at every folder once, or until many new runs have taken `AT_ONCE_S`; whether anything is new."""
        began, changed, gone = time.monotonic(), set(), set()
        with warnings.catch_warnings(), runs.notes_kept() as notes:
            warnings.simplefilter("ignore")
            known = []
            if not self._unread:  # else the runs of the last list are not all read yet
                folders = self._folders()
                known = [folder for folder in folders if folder.name in self.feeds]
                self._unread = [folder for folder in folders if folder.name not in self.feeds][::-1]  # the latest last
                gone = self.feeds.keys() - {folder.name for folder in known}
            while known or (self._unread and time.monotonic() - began < AT_ONCE_S):
                folder = (known or self._unread).pop()
                try:
                    changed |= {folder.name} if self._look_at(folder) else set()
                except OSError:  # it was deleted, or cannot be reached now: the run is gone until it is back
                    gone |= self.feeds.keys() & {folder.name}
                except Exception as error:  # whatever one folder holds, the others are shown
                    runs.note_left_out(folder, f"it cannot be shown ({error})")
        with self.lock:
            before = self.version, self.unread, len(self.notes)
            self.unread = len(self._unread)
            self.notes += [note[:LONGEST_TEXT] for note in notes if note[:LONGEST_TEXT] not in self.notes]
            del self.notes[MOST_NOTES:]
            for name in gone:
                del self.feeds[name]
                self.rows.pop(name, None)
                self._row_version[name] = self.version + 1
            self._is_grouped &= not (gone or any(self._needs_grouping(name) for name in changed))
            if not self._is_grouped and (not self._unread or time.monotonic() > self._group_at):
                self._group()
                changed |= self.feeds.keys()
            self._renew(changed, is_later=bool(gone))
            return before != (self.version, self.unread, len(self.notes))

    def _folders(self) -> list[Path]:
        found: dict[str, Path] = {}
        for place in self.places:
            for folder in reversed(runs.run_folders(place)):
                if found.setdefault(folder.name, folder) != folder:
                    runs.note_left_out(folder, "another run of this name is shown")
        return list(found.values())

    def _look_at(self, folder: Path) -> bool:
        feed = self.feeds.get(folder.name) or RunFeed(folder)
        as_of = (folder / "run.json").stat().st_mtime_ns
        if self._refused.get(folder) == as_of:
            return False
        try:
            with self.lock:
                is_new = feed.update()
                self.feeds.setdefault(folder.name, feed)
        except UserError as error:
            self._refused[folder] = as_of
            runs.note_left_out(folder, str(error))
            if folder.name in self.feeds:
                raise FileNotFoundError from None
            return False
        return is_new

    def _needs_grouping(self, name: str) -> bool:
        record, row = self.feeds[name].record, self.rows.get(name)
        return row is None or (record.status, self.feeds[name].metric) != (row["status"], row["metric"])

    def _group(self) -> None:
        """Find out which runs differ by seed only, and in what the others differ."""
        began, self._is_grouped = time.monotonic(), True
        records = [(feed.folder, feed.described()) for feed in self.feeds.values()]
        table = tta.table_of(sorted(records, key=lambda each: each[0].name))
        self.table = table.set_index("run", drop=False)
        self._groups = {
            row["run"]: f"{row['job']} · {runs.Series.of(row).label} · {row['provenance']}"
            for row in table[["run", *runs.SERIES]].to_dict("records")
        }
        settings = pd.DataFrame(list(table["settings"]), index=table["run"], dtype=object)
        settings["job"], settings["provenance"] = table["job"].to_numpy(), table["provenance"].to_numpy()
        self.varying, self.same = {}, {}
        for name in settings:
            texts = {run: _text(value) for run, value in settings[name].items()}
            different = set(texts.values())
            if len(different) > 1:
                self.varying[str(name)] = texts
            elif different and different != {""}:
                self.same[str(name)] = different.pop()
        self.varying = dict(sorted(self.varying.items(), key=lambda each: len(set(each[1].values()))))
        self._group_at = time.monotonic() + max(GROUPED_AFTER_S, 5 * (time.monotonic() - began))

    def _renew(self, changed: set[str], *, is_later: bool) -> None:
        ended: dict[str, list[float]] = {}
        for name, feed in self.feeds.items():
            if feed.record.status == "done" and name in self._groups:
                ended.setdefault(self._groups[name], []).append(feed.latest[1])
        rows = {name: self._row(self.feeds[name], ended) for name in changed if name in self.feeds}
        new = {name: row for name, row in rows.items() if row != self.rows.get(name)}
        if new or is_later:
            self.version += 1
        for name, row in new.items():
            self.rows[name], self._row_version[name] = row, self.version

    def _row(self, feed: RunFeed, ended: dict[str, list[float]]) -> dict[str, Any]:
        record, metric = feed.record, feed.metric
        curve = feed.curves.get(metric or "")
        group = self._groups.get(feed.name, "not grouped yet")
        if record.profiled or record.is_trial:
            group = "profiled" if record.profiled else "energy trial"
        return runs.list_row(feed.folder, record) | {
            "run": feed.name,
            "group": group,
            "seed": str(record.told_seed),
            "metric": metric,
            "value": None if curve is None or not math.isfinite(curve.last[-1]) else float(curve.last[-1]),
            "wall_s": float(feed.latest[1]),
            "step": float(feed.latest[0]),
            "points": sum(each.count for each in feed.curves.values()),
            "left": self._left(feed, ended.get(group, [])) if record.status == "running" else "",
            "reason": str((record.result or {}).get("reason") or ""),
            "counted": feed.name in self._groups,
            "metrics": list(feed.curves)[:LONGEST_TEXT],
            "settings": {name: own[feed.name] for name, own in self.varying.items() if feed.name in own},
            "version": feed.version,
        }

    def _left(self, feed: RunFeed, ended: list[float]) -> str:
        """How long a run will still take: as the other seeds did, or until its nearest limit."""
        wall_s, samples = feed.latest[1], feed.latest[3]
        if ended and (left_s := statistics.median(ended) - wall_s) > 0:
            return f"about {plots.seconds_text(left_s)}, as {plots.counted(len(ended), 'seed')} took"
        config: Any = feed.record.config
        config = {**config, "train": {"max_seconds": None, **config.get("train", {})}}
        try:
            left_s = tracking.time_left_s(config, wall_s, samples)
        except TypeError:  # a script's own setting of that name, which is no number
            left_s = None
        return "not known" if left_s is None else f"at most {plots.seconds_text(left_s)}"

    def since(self, version: int) -> dict[str, Any]:
        """What has changed after a version, for the page; everything after version -1."""
        with self.lock:
            later = [name for name, changed in self._row_version.items() if changed > version]
            feeds = self.feeds.values()
            names = dict.fromkeys(feed.metric for feed in feeds if feed.metric)
            names |= dict.fromkeys(name for feed in feeds for name in feed.curves)
            return {
                "version": self.version,
                "rows": [self.rows[name] for name in later if name in self.rows],
                "gone": [name for name in later if name not in self.rows],
                "metrics": list(names)[:LONGEST_TEXT],
                "varying": {name: len(set(own.values())) for name, own in self.varying.items()},
                "same": self.same,
                "unread": self.unread,
                "notes": self.notes,
            }

    def feed(self, name: str) -> RunFeed:
        """The feed of a run.

        Raises:
            UserError: it is not on the page, or no longer.
        """
        if name not in self.feeds:
            raise UserError(f"there is no run {name[:LONGEST_TEXT]!r} here: it may have been deleted.")
        return self.feeds[name]


def _text(value: object) -> str:
    """A setting as text; empty where a run does not have it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
