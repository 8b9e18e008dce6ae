"""Where a script keeps its embedding tables, as a value; checked without torch."""

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from labkit import UserError, errors, hardware

CACHE_SHARE, MEMORY_CAP_BYTES = 0.1, 2**28
LEAST_CAP_BYTES = 2**20
"""Smallest memory cap: with less, pages of one batch would evict each other"""
DISK = ("disk", "cached over disk")
CACHED = ("cached over host", "cached over disk", "cached over remote")
OF_PLACEMENT = {
    "cache_rows": CACHED,
    "cache_policy": CACHED,
    "cache_over": CACHED,
    "memory_cap": DISK,
    "table_dir": DISK,
    "staleness": ("remote",),
}
"""The placements that each further field is for"""


def row_width(optimiser: str, embedding_dim: int) -> int:
    """float32 numbers of a row and the optimiser's state of it: sgd, adagrad, rowwise-adagrad or adam.

    >>> [row_width(name, 16) for name in ("sgd", "rowwise-adagrad", "adagrad", "adam")]
    [16, 17, 32, 48]
    """
    states = {"sgd": 0, "rowwise-adagrad": 1, "adagrad": embedding_dim, "adam": 2 * embedding_dim}
    return embedding_dim + states[optimiser]


@dataclass(frozen=True)
class Placement:
    """Where tables live, and what its tiers may hold. A field that is None takes the default of its placement.

    >>> Placement("cached", cache_rows="5%", cache_over="disk", memory_cap="64MiB").cache_rows
    0.05

    Raises:
        UserError: a field is for another placement, or its value makes no sense.
    """

    kind: Literal["device", "host", "cached", "disk", "remote"] = "device"
    """Where embedding tables live"""
    cache_rows: float | None = field(default=None, metadata={"metavar": "N|P%"})
    """Size of the cache for placement cached: a whole number of rows, or a share of all rows (default: 10%)"""
    cache_policy: Literal["lru", "lfu"] | None = None
    """Rows to evict from the cache for placement cached: least recently or least frequently used (default: lru)"""
    cache_over: Literal["host", "disk", "remote"] | None = None
    """Home of all rows for placement cached (default: host)"""
    memory_cap: int | None = field(default=None, metadata={"metavar": "SIZE"})
    """Most memory for resident pages of the table file (default: 256MiB)"""
    table_dir: Path | None = field(default=None, metadata={"metavar": "DIR"})
    """Folder of the table file for placement disk (default: --runs-dir)"""
    staleness: int | None = field(default=None, metadata={"metavar": "S"})
    """Pushes that a pull may miss for placement remote (default: 0)"""

    def __post_init__(self):
        exact = f"cached over {self.cache_over or 'host'}" if self.kind == "cached" else self.kind
        for name, fitting in OF_PLACEMENT.items():
            if getattr(self, name) is not None and exact not in fitting:
                raise UserError(
                    f"{errors.with_flag(name)} is for tables that are {' or '.join(fitting)}, and these are {exact}: "
                    "omit it, or choose another --placement.",
                    field=name,
                )
        object.__setattr__(self, "cache_rows", read_rows(self.cache_rows))
        object.__setattr__(self, "memory_cap", read_cap(self.memory_cap))
        if self.staleness is not None and self.staleness < 0:
            raise errors.wrong_value("staleness", self.staleness, "give a whole number from 0; 0 is synchronous.")
        if self.uses_disk and not sys.platform.startswith("linux"):
            raise UserError("placement disk needs Linux, where pages can be dropped: choose another --placement.")

    def flags(self) -> dict[str, Any]:
        """The fields that are given, by the names of their flags and as these take them.

        >>> Placement("disk", memory_cap=2**28).flags()
        {'placement': 'disk', 'memory_cap': '256MiB'}
        """
        given = {name: getattr(self, name) for name in OF_PLACEMENT if getattr(self, name) is not None}
        return {"placement": self.kind} | {name: flag_text(name, value) for name, value in given.items()}

    @property
    def uses_disk(self) -> bool:
        return self.kind == "disk" or (self.kind == "cached" and self.cache_over == "disk")

    @property
    def memory_cap_bytes(self) -> int:
        return self.memory_cap or MEMORY_CAP_BYTES

    def cached_rows(self, num_rows: int) -> int:
        """Rows of a cache for tables of `num_rows` rows together.

        Raises:
            UserError: the cache would have more rows than the tables.
        """
        asked = self.cache_rows or CACHE_SHARE
        rows = asked if isinstance(asked, int) else max(1, round(asked * num_rows))
        if rows > num_rows:
            raise UserError(
                f"{errors.with_flag('cache_rows')} is a cache of {rows:,} rows, and the tables have {num_rows:,} "
                "together: give fewer, or use --placement host or device.",
                field="cache_rows",
            )
        return rows

    def memory_bytes(self, num_rows: int, width: int) -> int:
        """Memory that all tiers take in this process and those it starts; pages of a file do not count."""
        rows = 4 * num_rows * width
        if self.kind == "cached":  # and the slot of each row, 4 bytes
            return 4 * self.cached_rows(num_rows) * width + 4 * num_rows + (0 if self.uses_disk else rows)
        return 0 if self.uses_disk else rows

    def refuse_full_disk(self, num_rows: int, width: int, folder: Path, *, checkpoints: bool = False) -> None:
        """Stop before a table file is made that its disk has no room for.

        Args:
            num_rows: rows of all tables.
            width: float32 numbers per row, as `row_width` gives them.
            folder: the folder of runs, and of the table file where the placement names none.
            checkpoints: whether the folder also gets the two copies that checkpoints keep.

        Raises:
            UserError: names the folder, what is needed and what is free.
        """
        needed = 4 * num_rows * width if self.uses_disk else 0
        of_disk: dict[int, tuple[Path, int]] = {}
        for each, size in ((self.table_dir or folder, needed), (folder, 2 * needed * checkpoints)):
            place = next(folder for folder in (each.absolute(), *each.absolute().parents) if folder.is_dir())
            first, before = of_disk.get(place.stat().st_dev, (place, 0))
            of_disk[place.stat().st_dev] = first, before + size
        for place, size in of_disk.values():
            free = shutil.disk_usage(place).free
            if size > free:
                copies = ", with the two copies that checkpoints keep," if checkpoints else ""
                raise UserError(
                    f"{place}: the tables' file of {hardware.size_text(needed)}{copies} needs "
                    f"{hardware.size_text(size)} here, and the disk has {hardware.size_text(free)} free: make room, "
                    "or name a folder on another disk (--table-dir, --runs-dir).",
                    field="table_dir",
                )


def read_rows(given: float | str | None) -> float | None:
    """The size of a cache, whose text may be a number of rows or a share: an int is rows, a float a share.

    >>> read_rows("5,000"), read_rows("10%"), read_rows(0.5)
    (5000, 0.1, 0.5)
    """
    rows = None if isinstance(given, str) else given
    if isinstance(given, str):
        amount = re.fullmatch(r"(\d[\d,_]*)|(\d+(?:\.\d+)?)%", given)
        rows = 0 if amount is None else int(re.sub("[,_]", "", amount[1])) if amount[1] else float(amount[2]) / 100
    if rows is not None and not rows > 0:
        raise errors.wrong_value("cache_rows", repr(given), "give a number of rows from 1, or a share such as 10%.")
    return rows


def read_cap(given: int | str | None) -> int | None:
    """Bytes of a memory cap, whose text has a unit."""
    size = hardware.parse_size(given) if isinstance(given, str) else given
    if given is not None and (size or 0) < LEAST_CAP_BYTES:
        raise errors.wrong_value("memory_cap", repr(given), "give a size from 1MiB, such as 256MiB.")
    return size


def flag_text(name: str, value: Any) -> Any:
    """The value of a field as its flag takes it: 10% for a share, 256MiB for bytes."""
    if name == "cache_rows" and isinstance(value, float):
        return f"{100 * value:.12g}%"
    if name == "memory_cap" and isinstance(value, int):
        text = hardware.size_text(value).replace(" ", "")
        return text if hardware.parse_size(text) == value else str(value)
    return value if isinstance(value, int | float) else str(value)


def described(placement: Placement, num_rows: Sequence[int], optimiser: str, embedding_dim: int) -> dict[str, Any]:
    """What a run's configuration records about its tables."""
    width = row_width(optimiser, embedding_dim)
    facts: dict[str, Any] = {"row_bytes": 4 * width, "table_bytes": 4 * width * sum(num_rows)}
    if placement.kind == "cached":
        facts |= {"cache_rows": placement.cached_rows(sum(num_rows)), "policy": placement.cache_policy or "lru"}
        facts["over"] = placement.cache_over or "host"
    if placement.uses_disk:
        facts["memory_cap_bytes"] = placement.memory_cap_bytes
    if placement.kind == "remote":
        facts |= {"staleness": placement.staleness or 0}
    return facts
