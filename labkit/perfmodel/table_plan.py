"""Where a DLRM's embedding tables fit, and how fast a step then is: calculated, and measured on a small scale.

What fits is arithmetic: production tables outgrow a GPU. Speed is measured: each placement that fits takes some steps
of the tables alone (lookup, gradient and update) with the given batch, and rows cut to what a short trial can fill.
"""

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from labkit import UserError, errors, fast, hardware, jobs
from labkit.data.clicks import ZipfSampler
from labkit.placement import CACHE_SHARE, PlacedOptimiser, PlacedTables, Placement, ahead, placed_tables, row_width

TRIAL_BYTES = 2**27
"""Largest size of the tables in a trial: beyond the caches, and filled in a second"""
WARM, TURNS, STEPS_A_TURN = 20, 5, 3
"""Number of steps that fill a cache, of timed turns, and of steps per turn"""
STEPS = WARM + TURNS * STEPS_A_TURN
LR = 0.01
TIMES = ("step_ms", "step_ms_low", "step_ms_high")
"""The median turn, and those next to it"""
FILES = 3
"""Number of files of tables on a disk: the trained one, and two copies for checkpoints"""
SHARE_FOR_ROWS = 0.5
"""Largest share of memory for resident rows of a disk's file; the rest of a training needs memory too"""

# Rows of the tables by the data that a preset is made for, capped as the preset caps them. Those of the Criteo logs
# were read in mlcommons/inference (its DLRM reference), of `benchmark` in facebookresearch/dlrm's
# bench/dlrm_s_benchmark.sh; both on 2026-11-23.
PUBLISHED_ROWS = {
    "kaggle": (
        1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
        2173, 4, 7046547, 18, 15, 286181, 105, 142572,
    ),
    "terabyte": (
        9980333, 36084, 17217, 7378, 20134, 3, 7112, 1442, 61, 9758201, 1333352, 313829, 10, 2208, 11156, 122, 4, 970,
        14, 9994222, 7267859, 9946608, 415421, 12420, 101, 36,
    ),
    "mlperf-v1": (
        39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976,
        14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36,
    ),
    "benchmark": (1_000_000,) * 8,
}  # fmt: skip
"""Rows of each table, by preset"""


def table_bytes(num_rows: Sequence[int], embedding_dim: int, optimiser: str = "sgd") -> int:
    """Bytes of fp32 tables and of their optimiser's state; row-wise Adagrad keeps one number per row.

    >>> table_bytes([1000], 64), table_bytes([1000], 64, "rowwise-adagrad"), table_bytes([1000], 64, "adam")
    (256000, 260000, 768000)
    """
    known = jobs.JOBS["dlrm"].optimisers
    if optimiser not in known:
        raise UserError(f"optimiser {optimiser!r} is unknown: choose one of {', '.join(known)}.", field="optimiser")
    return 4 * sum(num_rows) * row_width(optimiser, embedding_dim)


def tiers_that_hold(bytes_needed: float) -> pd.DataFrame:
    """Whether tables of this size fit in each memory of each tier: `tier, kind, memory, capacity_gb, holds`.

    `memory` is `one device`, `all devices` (of a server, with tables spread evenly row by row) or `host`. `holds` is
    None if the catalogue has no capacity. It is an upper bound: MLPs, activations and the driver need memory too.
    """
    if not 0 < bytes_needed < float("inf"):
        raise UserError(f"bytes_needed is {bytes_needed}: give a number above 0.", field="bytes_needed")
    rows = [
        (tier.name, tier.kind, memory, capacity_gb, None if capacity_gb is None else bytes_needed <= capacity_gb * 1e9)
        for tier in hardware.load_tiers().values()
        for memory, capacity_gb in _memories(tier).items()
    ]
    frame = pd.DataFrame(rows, columns=["tier", "kind", "memory", "capacity_gb", "holds"])
    return frame.astype({"capacity_gb": float, "holds": object})


def _memories(tier: "hardware.Tier") -> dict[str, float | None]:
    if tier.kind != "server":
        return {"host" if tier.kind == "cpu" else "one device": tier.memory_gb}
    each = tier.memory_gb
    every = each * tier.devices if each and tier.devices else None
    return {"one device": each, "all devices": every, "host": tier.host_memory_gb}


def presets_and_tiers(optimisers: Sequence[str] = ("sgd", "rowwise-adagrad")) -> pd.DataFrame:
    """`tiers_that_hold` for each preset with published table sizes, with columns `preset, optimiser, needed_gb`."""
    frames = []
    for preset, num_rows in PUBLISHED_ROWS.items():
        for optimiser in optimisers:
            needed = table_bytes(num_rows, jobs.get_preset("dlrm", preset).model["embedding_dim"], optimiser)
            row = {"preset": preset, "optimiser": optimiser, "needed_gb": needed / 1e9}
            frames.append(pd.DataFrame([row]).merge(tiers_that_hold(needed), how="cross"))
    return pd.concat(frames, ignore_index=True)


@dataclass(frozen=True)
class TableShape:
    """The tables of a DLRM, and the lookups of a step."""

    num_rows: tuple[int, ...]
    embedding_dim: int
    pooling_factor: int = 1
    batch_size: int = 2048
    optimiser: str = "sgd"
    zipf: float = 1.1
    """Exponent of Zipf's law for the frequency of rows; 0: all rows are equally frequent"""

    def __post_init__(self):
        for name in ("embedding_dim", "pooling_factor", "batch_size"):
            if getattr(self, name) < 1:
                raise errors.wrong_value(name, getattr(self, name), "give a number from 1.")
        if self.zipf < 0:
            raise errors.wrong_value("zipf", self.zipf, "give 0 (uniform) or more.")
        if not self.num_rows or min(self.num_rows) < 1:
            raise UserError("a table has no rows: give the rows of each, such as --tables 26x1000000.", field="tables")

    @property
    def bytes(self) -> int:
        """Bytes of the tables and their optimiser's state."""
        return table_bytes(self.num_rows, self.embedding_dim, self.optimiser)

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch: its indices, and its sums with their gradient."""
        return 4 * self.batch_size * len(self.num_rows) * (self.pooling_factor + 2 * self.embedding_dim)

    def cut(self, most_bytes: int) -> "TableShape":
        """The same with fewer rows per table and fewer samples per batch, so that neither exceeds this size."""
        share = min(1.0, most_bytes / self.bytes)
        rows = tuple(max(1, int(share * rows)) for rows in self.num_rows)
        samples = max(1, most_bytes // (4 * STEPS * self.pooling_factor * len(rows)))
        return replace(self, num_rows=rows, batch_size=min(self.batch_size, samples))


def plan_tables(shape: TableShape, memory_bytes: int, folder: Path) -> pd.DataFrame:
    """The needs of each placement, whether it fits in the memory that training may use, and its speed.

    `folder`, which exists, is for a table file.

    Returns:
        Columns placement, flags (of the DLRM's script), memory_bytes, disk_bytes, fits, why (it does not fit, or what
        bounds it), step_ms (of the tables alone, measured: the median turn), step_ms_low and step_ms_high (the turns
        next to it), trial_rows and trial_batch (sizes in the trial), of_device (speed relative to `device`, both in the
        trial). The fastest that fits comes first.

    Raises:
        UserError: no placement on this machine holds the tables.
    """
    disk_free, choices = shutil.disk_usage(folder).free, _choices(shape, memory_bytes)
    rows = [_needs(shape, each, memory_bytes, disk_free) for each in choices]
    if not any(row["fits"] for row in rows if row["placement"] != "remote"):
        raise UserError(
            f"tables of {hardware.size_text(shape.bytes)}, with {hardware.size_text(shape.batch_bytes)} for a batch, "
            f"fit nowhere here: {hardware.size_text(memory_bytes)} of memory, and {hardware.size_text(disk_free)} are "
            f"free in {folder.absolute()}. Give more (--memory, --table-dir), a smaller --batch-size, or compress the "
            "tables (--compress).",
            field="tables",
        )
    tried = [each for each in zip(choices, rows, strict=True) if each[1]["fits"] or each[0].kind == "device"]
    _try(shape, tried, memory_bytes, folder)
    frame = pd.DataFrame(rows, columns=[*rows[0]]).astype(dict.fromkeys(TIMES, float))
    device = frame.loc[frame["placement"] == "device", "step_ms"].iloc[0]
    frame["of_device"] = device / frame["step_ms"]
    return frame.sort_values(["fits", "step_ms"], ascending=[False, True], kind="stable", ignore_index=True)


def _choices(shape: TableShape, memory_bytes: int) -> list[Placement]:
    """All placements, each with its share of the memory."""
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
    short = [
        f"{hardware.size_text(needed)} of {where}, and {hardware.size_text(there)} are there"
        for needed, there, where in ((in_memory, memory_bytes, "memory"), (on_disk, disk_free, "disk"))
        if needed > there
    ]
    return {
        "placement": kind,
        "flags": placement.flags(),
        "memory_bytes": in_memory,
        "disk_bytes": on_disk,
        "fits": not short,
        "why": "needs " + "; ".join(short) if short else BOUND_BY[kind],
        **dict.fromkeys(TIMES, np.nan),
        "trial_rows": None,
        "trial_batch": None,
    }


BOUND_BY = {
    "device": "rows are read and written in place",
    "host": "a batch's rows are copied to the device and back; the next batch's copy overlaps",
    "cached": "rows are copied to a cache, looked up there, and written back",
    "cached over disk": "rows missing from the cache are read in pages of 4 KiB",
    "disk": "rows that are not resident are read in pages of 4 KiB",
    "remote": "rows go to another process and back; the next batch's transfer overlaps",
}
"""Work of each placement in addition to the sums"""


def _batches(shape: TableShape) -> list[Tensor]:
    """Batches of categorical int32 (B, F, L), all different, so that a cache only finds rows that really recur."""
    rng, count = np.random.default_rng(0), shape.batch_size * shape.pooling_factor * STEPS
    tables = [
        ZipfSampler(rows, shape.zipf, 0.0, rng).draw(rng, count) if rows > 1 else np.zeros(count, np.int32)
        for rows in shape.num_rows
    ]
    drawn = np.stack(tables, 1).reshape(STEPS, shape.batch_size, shape.pooling_factor, len(tables))
    return list(torch.from_numpy(np.ascontiguousarray(drawn.transpose(0, 1, 3, 2))))


def _try(shape: TableShape, tried: Sequence[tuple[Placement, dict[str, Any]]], memory_bytes: int, folder: Path) -> None:
    """Time these placements in turns, on a small scale, where `device` always fits as the reference."""
    small = shape.cut(min(TRIAL_BYTES, memory_bytes // 16))
    batches, share = _batches(small), small.bytes / shape.bytes
    with contextlib.ExitStack() as stack:
        trials = [stack.enter_context(_trial(small, place, share, batches, folder)) for place, _ in tried]
        for step_ms in trials:
            step_ms(WARM)
        turns = [[step_ms(STEPS_A_TURN) for step_ms in trials] for _ in range(TURNS)]
    for (_, row), times_ms in zip(tried, zip(*turns, strict=True), strict=True):
        low, mid, high = sorted(times_ms)[TURNS // 2 - 1 : TURNS // 2 + 2]
        row.update(zip(TIMES, (mid, low, high), strict=True))
        row["trial_rows"], row["trial_batch"] = sum(small.num_rows), small.batch_size


@contextlib.contextmanager
def _trial(
    shape: TableShape, place: Placement, share: float, batches: Sequence[Tensor], folder: Path
) -> Generator[Callable[[int], float]]:
    """A function that takes some steps of the tables alone, with one placement, and returns their mean in ms.

    `share` of the rows are in the trial, and the same share of a memory cap.
    """
    if place.uses_disk:
        place = replace(place, memory_cap=max(2**20, int(share * place.memory_cap_bytes)))
    tables: Any = placed_tables(place, shape.optimiser, folder=folder)(shape.num_rows, shape.embedding_dim)
    is_placed = isinstance(tables, PlacedTables)
    try:
        for weight in tables.table_weights():
            weight.uniform_(-0.01, 0.01) if is_placed else nn.init.uniform_(weight, -0.01, 0.01)
        if is_placed:
            optimiser: Any = PlacedOptimiser(tables, LR)
        else:
            none: list[Tensor] = [nn.Parameter(torch.zeros(1))]
            optimiser = fast.fast_optimisers(jobs.OPTIMISERS[shape.optimiser], none, tables, LR)[1]
        waiting = iter(ahead(tables, [(each,) for each in batches], categorical=0))

        def step_ms(steps: int) -> float:
            began = time.perf_counter()
            for (categorical,) in itertools.islice(waiting, steps):
                sums = tables(categorical)
                sums.backward(sums.detach())
                optimiser.step()
            return 1e3 * (time.perf_counter() - began) / steps

        yield step_ms
    finally:
        if is_placed:
            tables.store.close()
