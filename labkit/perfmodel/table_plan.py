"""What of a DLRM's tables fits where, and how long a step takes with them there: counted, and tried in small.

What fits is arithmetic. How fast it is, is measured: each place that fits takes some steps of the tables alone, lookup,
gradient and update, with the batch that was asked for, and rows cut to what a short trial can fill.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.data.clicks import ZipfSampler
from labkit.errors import UserError, with_flag
from labkit.fast import fast_optimisers
from labkit.hardware import size_text
from labkit.jobs import OPTIMISERS
from labkit.perfmodel.capacity import table_bytes
from labkit.placement import CACHE_SHARE, PlacedOptimiser, PlacedTables, Placement, ahead, placed_tables, row_width

if TYPE_CHECKING:
    import pandas as pd

TRIAL_BYTES = 2**27
"""Of the tables in a trial, at most: beyond the caches, and filled in a second"""
WARM, TURNS, STEPS_A_TURN = 20, 5, 3
"""Steps that fill a cache, and then the turns that are timed"""
STEPS = WARM + TURNS * STEPS_A_TURN
LR = 0.01
TIMES = ("step_ms", "step_ms_low", "step_ms_high")
"""The median turn, and those next to it"""
FILES = 3
"""Of the tables on a disk: that which is trained on, and the two copies of checkpoints"""
SHARE_FOR_ROWS = 0.5
"""Of memory that rows kept of a disk's file may take; the rest of a training needs some, too"""


@dataclass(frozen=True)
class TableShape:
    """The tables of a DLRM, and what a step does with them."""

    num_rows: tuple[int, ...]
    embedding_dim: int
    pooling_factor: int = 1
    batch_size: int = 2048
    optimiser: str = "sgd"
    zipf: float = 1.1
    """How often rows are named: the r-th most frequent in proportion to r to the minus this; 0: all alike"""

    def __post_init__(self):
        for name in ("embedding_dim", "pooling_factor", "batch_size"):
            if getattr(self, name) < 1:
                said = f"{with_flag(name)} is {getattr(self, name)}: give a number from 1."
                raise UserError(said, field=name)
        if self.zipf < 0:
            raise UserError(f"{with_flag('zipf')} is {self.zipf}: give 0 (all rows alike) or more.", field="zipf")
        if not self.num_rows or min(self.num_rows) < 1:
            raise UserError("a table has no rows: give the rows of each, such as --tables 26x1000000.", field="tables")

    @property
    def bytes(self) -> int:
        """Of the tables and what their optimiser keeps."""
        return table_bytes(self.num_rows, self.embedding_dim, self.optimiser)

    @property
    def batch_bytes(self) -> int:
        """Of a step besides: a batch's numbers of rows, and its sums with their gradient."""
        return 4 * self.batch_size * len(self.num_rows) * (self.pooling_factor + 2 * self.embedding_dim)

    def cut(self, most_bytes: int) -> TableShape:
        """The same with fewer rows in each table, and samples in a batch, if those or a trial's batches have more."""
        share = min(1.0, most_bytes / self.bytes)
        rows = tuple(max(1, int(share * rows)) for rows in self.num_rows)
        samples = max(1, most_bytes // (4 * STEPS * self.pooling_factor * len(rows)))
        return replace(self, num_rows=rows, batch_size=min(self.batch_size, samples))


def plan_tables(shape: TableShape, memory_bytes: int, folder: Path, *, tries: bool = True) -> pd.DataFrame:
    """Each placement: what it needs, whether it fits, and how fast it is.

    Args:
        shape: of the tables.
        memory_bytes: that the training process may use.
        folder: where a table file would be.
        tries: whether to measure; else no time is known.

    Returns:
        Columns placement, flags (of the DLRM's script), memory_bytes, disk_bytes, fits, why (not, or what bounds it),
        step_ms (of the tables alone, measured: the median turn), step_ms_low and step_ms_high (those next to it),
        trial_rows and trial_batch (what it was measured with), of_device (speed beside that of `device`, both in the
        trial). The fastest that fits comes first.

    Raises:
        UserError: no place on this machine holds the tables.
    """
    import pandas as pd

    disk_free = shutil.disk_usage(
        next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())
    ).free
    choices = _choices(shape, memory_bytes)
    rows = [_needs(shape, each, memory_bytes, disk_free) for each in choices]
    if not any(row["fits"] for row in rows if row["placement"] != "remote"):
        raise UserError(
            f"tables of {size_text(shape.bytes)}, with {size_text(shape.batch_bytes)} for a batch, fit nowhere here: "
            f"{size_text(memory_bytes)} of memory, and "
            f"{size_text(disk_free)} are free in {folder.absolute()}. Give more (--memory, --table-dir), a smaller "
            "--batch-size, or compress the tables (--compress).",
            field="tables",
        )
    if tries:
        tried = [each for each in zip(choices, rows, strict=True) if each[1]["fits"] or each[0].kind == "device"]
        _try(shape, tried, memory_bytes, folder)
    frame = pd.DataFrame(rows, columns=[*rows[0]]).astype(dict.fromkeys(TIMES, float))
    device = frame.loc[frame["placement"] == "device", "step_ms"].iloc[0]
    frame["of_device"] = device / frame["step_ms"]
    return frame.sort_values(["fits", "step_ms"], ascending=[False, True], kind="stable", ignore_index=True)


def _choices(shape: TableShape, memory_bytes: int) -> list[Placement]:
    """The placements, with the memory shared out."""
    rows_bytes = SHARE_FOR_ROWS * memory_bytes
    whole, half = (max(1, int(part) // 2**20) * 2**20 for part in (rows_bytes, rows_bytes / 2))
    share = round(min(0.5, max(1e-4, 0.5 * rows_bytes / shape.bytes)), 4)
    return [
        Placement("device"),
        Placement("host"),
        Placement("cached", cache_rows=CACHE_SHARE),
        Placement("cached", cache_over="disk", cache_rows=share, memory_cap=half),
        Placement("disk", memory_cap=whole),
        Placement("remote", staleness=1),
    ]


def _needs(shape: TableShape, placement: Placement, memory_bytes: int, disk_free: int) -> dict[str, Any]:
    kind = "cached over disk" if placement.kind == "cached" and placement.uses_disk else placement.kind
    size = sum(shape.num_rows), row_width(shape.optimiser, shape.embedding_dim)
    resident = min(placement.memory_cap_bytes, shape.bytes) if placement.uses_disk else 0
    in_memory = placement.memory_bytes(*size) + resident + shape.batch_bytes
    on_disk = FILES * shape.bytes if placement.uses_disk else 0
    fits = in_memory <= memory_bytes and on_disk <= disk_free
    short = [
        f"{size_text(needed)} of {where}, and {size_text(there)} are there"
        for needed, there, where in ((in_memory, memory_bytes, "memory"), (on_disk, disk_free, "disk"))
        if needed > there
    ]
    return {
        "placement": kind,
        "flags": placement.flags(),
        "memory_bytes": in_memory,
        "disk_bytes": on_disk,
        "fits": fits,
        "why": "needs " + "; ".join(short) if short else BOUND_BY[kind],
        **dict.fromkeys(TIMES, np.nan),
        "trial_rows": None,
        "trial_batch": None,
    }


BOUND_BY = {
    "device": "rows are read and written where they lie",
    "host": "a batch's rows are copied to the device and back; the next batch's meanwhile",
    "cached": "rows are copied to a cache, found there again, and written back",
    "cached over disk": "rows that the cache has not are read in pages of 4 KiB",
    "disk": "rows that are not resident are read in pages of 4 KiB",
    "remote": "rows go to another process and back; the next batch's meanwhile",
}
"""What each placement does besides the sums"""


def _batches(shape: TableShape) -> list[Tensor]:
    """Each categorical int32 (B, F, L), no two alike, so that a cache finds what comes again and no more."""
    rng, count = np.random.default_rng(0), shape.batch_size * shape.pooling_factor * STEPS
    tables = [
        ZipfSampler(rows, shape.zipf, 0.0, rng).draw(rng, count) if rows > 1 else np.zeros(count, np.int32)
        for rows in shape.num_rows
    ]
    drawn = np.stack(tables, 1).reshape(STEPS, shape.batch_size, shape.pooling_factor, len(tables))
    return list(torch.from_numpy(np.ascontiguousarray(drawn.transpose(0, 1, 3, 2))))


def _try(shape: TableShape, tried: Sequence[tuple[Placement, dict[str, Any]]], memory_bytes: int, folder: Path) -> None:
    """Let these placements take steps in turn, in small; `device` fits then, too, and the others stand beside it."""
    small = shape.cut(min(TRIAL_BYTES, memory_bytes // 16))
    batches, share = _batches(small), small.bytes / shape.bytes
    with contextlib.ExitStack() as stack:
        trials = [_Trial(small, placement, share, batches, folder) for placement, _ in tried]
        for trial in trials:
            stack.callback(trial.close)
            trial.step_ms(WARM)
        turns = [[trial.step_ms(STEPS_A_TURN) for trial in trials] for _ in range(TURNS)]
    for (_, row), times_ms in zip(tried, zip(*turns, strict=True), strict=True):
        low, mid, high = sorted(times_ms)[TURNS // 2 - 1 : TURNS // 2 + 2]
        row.update(zip(TIMES, (mid, low, high), strict=True))
        row["trial_rows"], row["trial_batch"] = sum(small.num_rows), small.batch_size


class _Trial:
    """Steps of the tables alone, in one place."""

    def __init__(self, shape: TableShape, place: Placement, share: float, batches: Sequence[Tensor], folder: Path):
        """`share` of the rows are in the trial, and the same share of a memory cap."""
        if place.uses_disk:
            place = replace(place, memory_cap=max(2**20, int(share * place.memory_cap_bytes)))
        self.tables = placed_tables(place, shape.optimiser, folder=folder)(shape.num_rows, shape.embedding_dim)
        for weight in self.tables.table_weights():
            weight.uniform_(-0.01, 0.01) if self.is_placed else nn.init.uniform_(weight, -0.01, 0.01)
        self._optimiser = _optimiser(self.tables, shape.optimiser)
        self._batches = iter(ahead(self.tables, [(each,) for each in batches], categorical=0))

    @property
    def is_placed(self) -> bool:
        return isinstance(self.tables, PlacedTables)

    def step_ms(self, steps: int) -> float:
        """Take some steps; the mean of them."""
        began = time.perf_counter()
        for (categorical,) in itertools.islice(self._batches, steps):
            sums = self.tables(categorical)
            sums.backward(sums.detach())
            self._optimiser.step()
        return 1e3 * (time.perf_counter() - began) / steps

    def close(self) -> None:
        if self.is_placed:
            self.tables.store.close()


def _optimiser(tables: nn.Module, name: str) -> Any:
    if isinstance(tables, PlacedTables):
        return PlacedOptimiser(tables, LR)
    none: list[Tensor] = [nn.Parameter(torch.zeros(1))]
    return fast_optimisers(OPTIMISERS[name], none, tables, LR)[1]
