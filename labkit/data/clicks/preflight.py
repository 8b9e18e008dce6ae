"""What preparing a click log will take, estimated from the first bytes of its files before any work is
done."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

from labkit.data.clicks.criteo import BLOCK_BYTES, CATEGORICAL_NAMES, DENSE_NAMES, GZIP_DAMAGE, open_bytes
from labkit.data.store import disk_full, free_disk_bytes
from labkit.hardware.sizes import size_text

SAMPLE_BYTES = 2**20

CRITEO_ROW_BYTES = 4 * len(DENSE_NAMES) + 4 * len(CATEGORICAL_NAMES) + 1
"""A prepared row: float32 and int32 values, and the label."""

BLOCK_VALUES_ROW_BYTES = 4 * len(CATEGORICAL_NAMES)
"""What the values of each block take while a log is prepared, for a row, where no two rows share one."""

COUNTED_VALUES = 2**24
"""Distinct values that are counted at once, over all categorical features; 12 bytes each."""

CRITEO_MEMORY_BYTES = 2 * 12 * COUNTED_VALUES + 12 * BLOCK_BYTES + 2**28
"""Counters and their merges, a block with its parsed and unparsed copies, and Python with its libraries."""


@dataclass(frozen=True)
class Preflight:
    """The estimate."""

    rows: int
    disk_bytes: int
    memory_bytes: int
    free_bytes: int

    def __str__(self) -> str:
        return (
            f"about {self.rows:,} rows: {size_text(self.disk_bytes)} of disk ({size_text(self.free_bytes)} free), at "
            f"most {size_text(self.memory_bytes)} of memory"
        )

    def check(self, folder: Path) -> None:
        """Refuse what does not fit.

        Raises:
            UserError: the prepared data would not fit on the disk of `folder`.
        """
        if self.disk_bytes > self.free_bytes:
            raise disk_full(folder, self.disk_bytes)


def preflight_criteo(files: list[Path], folder: Path) -> Preflight:
    """Estimate what preparing Criteo files into `folder` takes."""
    rows = sum(estimate_rows(file) for file in files)
    disk_bytes = rows * (CRITEO_ROW_BYTES + BLOCK_VALUES_ROW_BYTES)
    return Preflight(rows, disk_bytes, CRITEO_MEMORY_BYTES, free_disk_bytes(folder))


def estimate_rows(file: Path) -> int:
    """Rows of a text file, packed or not, by the length of the lines and the packing at its beginning."""
    with open_bytes(file) as stream:
        try:
            start = stream.read(SAMPLE_BYTES)
        except GZIP_DAMAGE:  # reading it will say so, and where
            return 0
        size_bytes = file.stat().st_size
        if isinstance(stream, gzip.GzipFile):
            # One read-ahead more than was unpacked has been read from the file; small beside a sample.
            size_bytes *= len(start) / max(1, min(stream.fileobj.tell(), size_bytes))
    return round(size_bytes * max(1, start.count(b"\n")) / max(1, len(start)))
