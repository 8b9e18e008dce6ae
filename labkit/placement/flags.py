"""What a script may be asked about its tables' placement, refused where it makes no sense. It comes without torch."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import UserError, with_flag
from labkit.hardware import parse_size, size_text

PLACEMENTS = ("device", "host", "cached", "disk", "remote")
CACHE_SHARE, MEMORY_CAP = "10%", "256MiB"
LEAST_CAP = 2**20
"""Of a memory cap: beside it a batch's pages would come and go one by one"""
FLAGS: dict[str, dict[str, Any]] = {
    "--placement": {
        "choices": PLACEMENTS,
        "default": "device",
        "help": "where embedding tables live (default: device)",
    },
    "--cache-rows": {"metavar": "N|P%", "help": f"of placement cached: rows, or their share (default: {CACHE_SHARE}%)"},
    "--cache-policy": {"choices": ("lru", "lfu"), "help": "of placement cached: what is evicted (default: lru)"},
    "--cache-over": {"choices": ("host", "disk"), "help": "of placement cached: where all rows are (default: host)"},
    "--memory-cap": {"metavar": "SIZE", "help": f"of the table file, resident at most (default: {MEMORY_CAP})"},
    "--table-dir": {"metavar": "DIR", "help": "where placement disk has its table file (default: --runs-dir)"},
    "--staleness": {"type": int, "metavar": "S", "help": "of placement remote: pushes a pull may miss (default: 0)"},
}  # fmt: skip
"""As `add_argument` takes them"""
DISK = ("disk", "cached over disk")
OF_PLACEMENT = {
    "cache_rows": ("cached over host", "cached over disk"),
    "cache_policy": ("cached over host", "cached over disk"),
    "cache_over": ("cached over host", "cached over disk"),
    "memory_cap": DISK,
    "table_dir": DISK,
    "staleness": ("remote",),
}
"""The placements that each further flag is for"""


def placement_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of placements to a script's own."""
    for name, settings in FLAGS.items():
        parser.add_argument(name, **settings)


def row_width(optimiser: str, embedding_dim: int) -> int:
    """float32 numbers of a row and the optimiser's state of it: sgd, adagrad, rowwise-adagrad or adam.

    >>> [row_width(name, 16) for name in ("sgd", "rowwise-adagrad", "adagrad", "adam")]
    [16, 17, 32, 48]
    """
    states = {"sgd": 0, "rowwise-adagrad": 1, "adagrad": embedding_dim, "adam": 2 * embedding_dim}
    return embedding_dim + states[optimiser]


@dataclass(frozen=True)
class Placement:
    """Where tables live, and what its tiers may hold."""

    kind: str = "device"
    """One of PLACEMENTS"""
    cache_rows: str = CACHE_SHARE
    """Rows of a cache, or their share of all"""
    cache_policy: str = "lru"
    cache_over: str = "host"
    memory_cap: str = MEMORY_CAP
    """Of the table file, resident at most"""
    table_dir: Path = Path("runs")
    staleness: int = 0
    """Pushes that a pull may miss"""

    def __post_init__(self):
        amount = re.fullmatch(r"(\d[\d,_]*)|(\d+(?:\.\d+)?)%", self.cache_rows)
        if amount is None or not float(re.sub("[,_%]", "", self.cache_rows)):
            said = f"{with_flag('cache_rows')} is {self.cache_rows!r}: give a number of rows from 1, or a share as 10%."
            raise UserError(said, field="cache_rows")
        if (parse_size(self.memory_cap) or 0) < LEAST_CAP:
            said = f"{with_flag('memory_cap')} is {self.memory_cap!r}: give a size from 1MiB, such as 256MiB."
            raise UserError(said, field="memory_cap")
        if self.staleness < 0:
            said = f"{with_flag('staleness')} is {self.staleness}: give a whole number from 0, where 0 is synchronous."
            raise UserError(said, field="staleness")
        if self.uses_disk and not sys.platform.startswith("linux"):
            raise UserError("placement disk drops pages as Linux can alone: take another --placement.")

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Placement:
        """Read what `placement_flags` added.

        Raises:
            UserError: a flag is given that is for another placement, or its value makes no sense.
        """
        given = {name: getattr(args, name, None) for name in OF_PLACEMENT}
        given = {name: value for name, value in given.items() if value is not None}
        folder = given.get("table_dir") or getattr(args, "runs_dir", "runs")
        kind = args.placement
        exact = f"cached over {given.get('cache_over', 'host')}" if kind == "cached" else kind
        for name in given:
            if exact not in OF_PLACEMENT[name]:
                raise UserError(
                    f"{with_flag(name)} is for tables that are {' or '.join(OF_PLACEMENT[name])}, and these are "
                    f"{exact}: leave it out, or choose another --placement.",
                    field=name,
                )
        return cls(kind, **given | {"table_dir": Path(folder)})

    @property
    def uses_disk(self) -> bool:
        return self.kind == "disk" or (self.kind == "cached" and self.cache_over == "disk")

    @property
    def memory_cap_bytes(self) -> int:
        return parse_size(self.memory_cap)

    def cached_rows(self, num_rows: int) -> int:
        """Rows of the cache in front of so many.

        Raises:
            UserError: it would have more than there are.
        """
        text = re.sub("[,_]", "", self.cache_rows)
        rows = max(1, round(float(text[:-1]) / 100 * num_rows)) if text.endswith("%") else int(text)
        if rows > num_rows:
            raise UserError(
                f"{with_flag('cache_rows')} is {self.cache_rows}, a cache of {rows:,} rows, and the tables have "
                f"{num_rows:,} together: give fewer, or take --placement host or device.",
                field="cache_rows",
            )
        return rows

    def memory_bytes(self, num_rows: int, width: int) -> int:
        """What all tiers hold in the memory of this process and those it starts; pages of a file do not count."""
        rows = 4 * num_rows * width
        if self.kind == "cached":  # a number a row says where it is
            return 4 * self.cached_rows(num_rows) * width + 4 * num_rows + (0 if self.uses_disk else rows)
        return 0 if self.uses_disk else rows

    def refuse_full_disk(self, num_rows: int, width: int, checkpoints: Path | None = None) -> None:
        """Stop before a table file is made that its disk has no room for, with two copies in a folder of checkpoints.

        Raises:
            UserError: names the folder, what is needed and what is free.
        """
        needed = 4 * num_rows * width if self.uses_disk else 0
        of_disk: dict[int, tuple[Path, int]] = {}
        for folder, size in (
            (self.table_dir, needed),
            (checkpoints or self.table_dir, 2 * needed if checkpoints else 0),
        ):
            place = _that_exists(folder)
            first, before = of_disk.get(place.stat().st_dev, (place, 0))
            of_disk[place.stat().st_dev] = first, before + size
        for place, size in of_disk.values():
            free = shutil.disk_usage(place).free
            if size > free:
                copies = ", with the two copies that checkpoints keep," if checkpoints else ""
                raise UserError(
                    f"{place}: the tables' file of {size_text(needed)}{copies} needs {size_text(size)} here, and the "
                    f"disk has {size_text(free)} free: make room, or name a folder on another disk (--table-dir, "
                    "--runs-dir).",
                    field="table_dir",
                )


def described(placement: Placement, num_rows: Sequence[int], optimiser: str, embedding_dim: int) -> dict[str, Any]:
    """What a run's configuration says of it."""
    width = row_width(optimiser, embedding_dim)
    facts: dict[str, Any] = {"row_bytes": 4 * width, "table_bytes": 4 * width * sum(num_rows)}
    if placement.kind == "cached":
        facts |= {"cache_rows": placement.cached_rows(sum(num_rows)), "policy": placement.cache_policy}
        facts["over"] = placement.cache_over
    if placement.uses_disk:
        facts["memory_cap_bytes"] = placement.memory_cap_bytes
    if placement.kind == "remote":
        facts["staleness"] = placement.staleness
    return facts


def _that_exists(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.is_dir())
