"""A prepared click log: three memory-mapped arrays and a `meta.json`, the same for every source.

    dense.npy        float32 (N, D)     standardised dense features
    categorical.npy  int32 (N, F, L)    row numbers in the embedding tables; row 0 is "unknown or rare"
    label.npy        uint8 (N,)         1 for a click

The rows of a split lie together, so a split is a range of rows. N rows, D dense features, F categorical
features, L lookups a bag.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.data.store import read_json, write_json

FORMAT_VERSION = 2
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class ClickSplit:
    """The rows of one split, as views into the memory-mapped arrays."""

    dense: np.ndarray
    """float32 (N, D)"""
    categorical: np.ndarray
    """int32 (N, F, L)"""
    label: np.ndarray
    """uint8 (N,), 1 for a click"""

    def __len__(self) -> int:
        return len(self.label)

    def spread(self, most: int) -> ClickSplit:
        """Every k-th row, so that there are at most that many."""
        step = max(1, -(-len(self) // most))
        return ClickSplit(self.dense[::step], self.categorical[::step], self.label[::step])


class ClickLog:
    """A prepared click log, opened without reading it."""

    def __init__(self, folder: Path):
        self.folder = folder
        meta = read_json(folder / "meta.json")
        self.name: str = meta["name"]
        self.dense_names: list[str] = meta["dense_names"]
        self.categorical_names: list[str] = meta["categorical_names"]
        self.table_rows: tuple[int, ...] = tuple(meta["table_rows"])
        """Rows of each embedding table, row 0 (unknown or rare) included."""
        self.pooling_factor: int = meta["pooling_factor"]
        self.fingerprint: str = meta["fingerprint"]
        self.info: dict = meta["info"]
        self._ranges: dict[str, list[int]] = meta["splits"]

    @functools.cached_property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(np.load(self.folder / f"{part}.npy", mmap_mode="r") for part in PARTS)

    def split(self, name: str) -> ClickSplit:
        """The split "train", "validation" or "test"."""
        start, stop = self._ranges[name]
        return ClickSplit(*(array[start:stop] for array in self._arrays))

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {stop - start:,}" for name in SPLITS for start, stop in [self._ranges[name]])
        return (
            f"ClickLog({self.name!r}: {len(self.dense_names)} dense, {len(self.table_rows)} categorical "
            f"features, {sum(self.table_rows):,} table rows; {rows})"
        )


PARTS = ("dense", "categorical", "label")


class ClickWriter:
    """Appends rows to a click log that is being prepared.

    The number of rows need not be known beforehand: the headers of the .npy files have room for it.
    """

    def __init__(self, folder: Path, dense_dim: int, num_tables: int, pooling_factor: int = 1):
        self.rows = 0
        self._kinds = ((np.float32, (dense_dim,)), (np.int32, (num_tables, pooling_factor)), (np.uint8, ()))
        self._files = [(folder / f"{part}.npy").open("wb") for part in PARTS]
        self._write_headers()

    def append(self, dense: np.ndarray, categorical: np.ndarray, label: np.ndarray) -> None:
        """Add rows: dense (n, D), categorical (n, F, L), label (n,)."""
        for file, (dtype, shape), array in zip(self._files, self._kinds, (dense, categorical, label), strict=True):
            assert array.shape[1:] == shape, (array.shape, shape)
            file.write(np.ascontiguousarray(array, dtype=dtype).data)
        self.rows += len(label)

    def __enter__(self) -> ClickWriter:
        return self

    def __exit__(self, *_) -> None:
        self._write_headers()
        for file in self._files:
            file.close()

    def _write_headers(self) -> None:
        for file, (dtype, shape) in zip(self._files, self._kinds, strict=True):
            file.seek(0)
            facts = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (self.rows, *shape)}
            np.lib.format.write_array_header_1_0(file, facts)


def write_meta(folder: Path, *, splits: dict[str, int], pooling_factor: int = 1, **facts) -> None:
    """Write `meta.json`: what a `ClickLog` says of itself.

    Args:
        splits: the number of rows of each split, in the order they lie in the arrays.
        facts: name, dense_names, categorical_names, table_rows, fingerprint, info.
    """
    ranges, start = {}, 0
    for split in SPLITS:
        ranges[split] = [start, start + splits[split]]
        start += splits[split]
    content = {"format_version": FORMAT_VERSION, "pooling_factor": pooling_factor, "splits": ranges}
    write_json(folder / "meta.json", content | facts)
