"""What the ranks of a run write of themselves, and from it the one that failed first, or that holds up the others.

Each rank has a file in the run's folder, which it replaces twice a second: its step, where its script stands, and at
last how it ended. So the folder says which rank to look at, whatever launched them.
"""

import contextlib
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labkit import json_data
from labkit.runs.record import is_alive
from labkit.runs.safe_files import shielded

RANKS = "ranks"
"""Folder of these files in a run's folder"""
BEAT_S = 0.5
"""Seconds between two words of a rank"""
HANG_S, HANG_VARIABLE = 30.0, "LABKIT_HANG_S"
"""Seconds without a step after which a run counts as hung, and the environment variable for another number; 0: never"""
BUSY, BUSY_FACTOR = 0.1, 10
"""Share of a core from which a rank computes, for example in an evaluation; the run then has that many times as long"""
FAILED = ("raised", "exited", "out_of_memory", "diverged", "refused")
"""Ends that a rank reports as its own failure. "cut_off" is none: it only lost its connection to another rank"""
GONE = "its process ended without a word: it was killed, or its script left by os._exit"


@dataclass(frozen=True)
class RankWord:
    """The latest that a rank wrote of itself."""

    rank: int
    count: int
    """Number of ranks"""
    host: str
    pid: int
    pid_started: float
    """Start of its process, in seconds since 1970"""
    written_at: float = 0.0
    """Seconds since 1970, by the clock of its host"""
    step: int = 0
    """Number of steps that it has taken"""
    progress: int = 0
    """A number that grows with each batch, step and evaluation"""
    place: str = ""
    """Line of the script that its main thread is at"""
    waits: bool = False
    """Whether it is in torch or labkit there, and not in the script itself"""
    cpu_s: float = 0.0
    """CPU time of its process and its children, such as a data loader's workers"""
    ended: str = ""
    """done, stopped, cut_off, hung, or one of FAILED; empty while it goes on"""
    words: str = ""
    """Why it ended so"""
    peak_memory_bytes: int = 0
    phases_s: dict[str, list[float]] = field(default_factory=dict)
    """Seconds in each phase of its steps, and those of them in which its main thread did not compute"""

    @property
    def name(self) -> str:
        return f"rank {self.rank} of {self.count} on {self.host} (process {self.pid})"

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended, as far as this host can see."""
        return self.host == platform.node() and not is_alive(self.pid, self.pid_started)

    def save(self, folder: Path) -> None:
        """Replace its file. It is not synced, because after a crash of the machine there is no rank to look for."""
        path = folder / RANKS / f"{self.rank}.json"
        with contextlib.suppress(OSError):  # a full disk is reported where something is lost by it
            path.parent.mkdir(exist_ok=True)
            content = asdict(self) | {"words": shielded(self.words)}
            (new := path.with_suffix(".new")).write_text(json.dumps(content), encoding="utf-8")
            new.replace(path)


def read_ranks(folder: Path | str) -> list[RankWord]:
    """The words of the ranks of a run, by rank; empty for a run of one process."""
    found = []
    for path in (Path(folder) / RANKS).glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            found.append(json_data.from_json(RankWord, json_data.parse_json(path.read_bytes())))
    return sorted(found, key=lambda word: word.rank)


def exchange_s(ranks: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, list[float]]]:
    """From the rows of a result's `ranks`, by phase: the seconds of exchange, and those that each rank waited.

    The last rank to arrive waits for none: where its main thread did not compute, it was the exchange itself, or other
    programs.
    """
    phases = ranks[0]["phases_s"].keys() if ranks else ()
    idle = {name: [row["phases_s"].get(name, (0.0, 0.0))[1] for row in ranks] for name in phases}
    return {name: (min(each), [seconds - min(each) for seconds in each]) for name, each in idle.items()}


def late_rank(ranks: Sequence[Mapping[str, Any]]) -> tuple[Any, float] | None:
    """The rank that the others wait for, and how much longer they wait than it does (mean, s); None for one rank."""
    waits = [sum(each) for each in zip(*(waited for _, waited in exchange_s(ranks).values()), strict=True)]
    if len(waits) < 2:
        return None
    late = waits.index(min(waits))
    return ranks[late]["rank"], (sum(waits) - waits[late]) / (len(waits) - 1) - waits[late]


def first_failure(words: Sequence[RankWord], ended: Mapping[int, str] | None = None) -> tuple[RankWord, str] | None:
    """The rank that failed first, and a sentence on it; None if none failed.

    `ended` says how processes ended that wrote nothing of it, by rank, where their launcher knows.
    """
    ended, found = ended or {}, []
    hung = any(word.ended == "hung" for word in words)  # whoever vanishes after that was ended because of it
    for word in words:
        if word.ended == "hung" or word.ended in FAILED:
            found.append((word.written_at, word, word.words))
        elif not word.ended and (word.rank in ended or (word.is_gone and not hung)):
            found.append((word.written_at + BEAT_S, word, ended.get(word.rank, GONE)))
    if not found and any(word.ended == "cut_off" for word in words):
        left = (word for word in words if word.ended in ("done", "stopped"))
        found = [(word.written_at, word, _left_early(word, words)) for word in left]
    if not found:
        return None
    _, word, text = min(found, key=lambda each: each[:1])
    return word, text if word.ended == "hung" else f"{word.name}: {text}"


def _left_early(word: RankWord, words: Sequence[RankWord]) -> str:
    others = "; ".join(_stands(each) for each in words if each.ended not in ("done", "stopped"))
    return f"it left its loop early, after step {word.step}, and the others wait for it: {others}"


def _stands(word: RankWord) -> str:
    return f"rank {word.rank} stands at {word.place or 'an unknown place'}, step {word.step}"


def hang_s() -> float:
    """Seconds without a step after which a run counts as hung; infinite if it never does."""
    with contextlib.suppress(ValueError):
        return float(os.environ.get(HANG_VARIABLE, HANG_S)) or float("inf")
    return HANG_S


class HangWatch:
    """Looks at the words of all ranks, again and again, for one that hangs.

    A run hangs if no rank takes a step for some time, although one has been taken. Ranks that compute have ten times as
    long: in an evaluation there are no steps.
    """

    def __init__(self, folder: Path, limit_s: float):
        self._folder, self._limit_s = folder, limit_s
        self._heard: dict[int, tuple[float, float]] = {}
        """When each rank wrote last, by its clock and by that of this process"""
        self._progress: list[int] = []
        self._since, self._at_first, self._moved_at = 0.0, {}, 0.0
        """When the latest step was seen, where the ranks were then, and when one was last seen to move"""

    def look(self, now: float | None = None) -> tuple[RankWord, str] | None:
        """The rank that holds up the others, and a sentence on it; None if all is well."""
        now, words = time.monotonic() if now is None else now, read_ranks(self._folder)
        live = [word for word in words if not word.ended]
        for word in words:
            if self._heard.get(word.rank, (-1.0, 0.0))[0] != word.written_at:
                self._heard[word.rank] = word.written_at, now
        progress, places = [word.progress for word in words], {word.rank: word.place for word in live}
        if progress != self._progress or not any(word.step for word in live):
            self._progress, self._since, self._moved_at = progress, now, now
            self._at_first = {word.rank: word for word in live}
            self._places = places
            return None
        if places != self._places:
            self._places, self._moved_at = places, now
        for word in live:
            if (silent_s := now - self._heard[word.rank][1]) > self._limit_s:
                since = f"since step {word.step} at {word.place}"
                return word, f"{word.name} has given no sign for {silent_s:.0f} s, {since}"
        rested_s = now - self._since
        if rested_s <= self._limit_s or not live:
            return None
        used = [word.cpu_s - self._at_first.get(word.rank, word).cpu_s for word in live]
        is_busy = max(used) > BUSY * rested_s or now - self._moved_at <= self._limit_s
        if is_busy and (len(live) < len(words) or rested_s <= BUSY_FACTOR * self._limit_s):
            return None  # one that has ended may have left the rest, such as a test, to this one
        if len(live) < len(words):
            word = next(word for word in words if word.ended)
            return word, f"{word.name}: {_left_early(word, words)}"
        word = next((word for word in live if not word.waits), live[-1])
        others = "; ".join(_stands(each) for each in live)
        return word, f"{word.name} holds up the run: no rank has taken a step for {rested_s:.0f} s; {others}"
