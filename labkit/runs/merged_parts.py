"""Parts of a long recording: small ones that are on the disk within seconds, merged into few large ones."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from labkit.runs.parts import PartWriter, part_numbers, part_path, write_part

PARTS = 60
"""So many small parts make a large one: five minutes of samples."""
LEVEL = 9
"""Of zstd: a large part is written once in a while, and may take its time."""


class MergingPartWriter(PartWriter):
    """A `PartWriter` that writes in a thread of its own, and merges its parts, sorted so that a series lies together.

    Small parts that were merged stay until the next merge, and readers leave them out: whoever has just listed them
    can still open them.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, sort_by: Sequence[str], parts: int = PARTS, **options):
        """Write rows of `schema` to `folder`; every `parts` parts are merged, sorted by these columns."""
        super().__init__(folder, schema, **options)
        self._sort_by, self._parts = [(name, "ascending") for name in sort_by], parts
        self._small: list[Path] = []
        self._merged: list[Path] = []
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="parts")
        self._writing: deque[Future] = deque()

    def flush(self) -> None:
        """Hand what has been collected to the thread that writes it.

        Raises:
            UserError: the disk is full; the rows of that part are lost, those before it are not.
        """
        self._flushed_at = time.monotonic()
        if self._rows:
            rows, self._rows = self._rows, []
            self._writing.append(self._writer.submit(self._write, rows, part_path(self.folder, self.next_number)))
            self.next_number += 1
        while self._writing and self._writing[0].done():
            self._writing.popleft().result()

    def settle(self) -> None:
        """Wait until all that was handed over is written.

        Raises:
            UserError: the disk is full.
        """
        while self._writing:
            self._writing.popleft().result()

    def close(self) -> None:
        """Write what is left, and drop what was merged before."""
        try:
            self.settle()
            self._drop_merged()
        finally:
            try:
                self.flush()
                self.settle()
            finally:
                self._writer.shutdown()

    def _write(self, rows: list[dict[str, Any]], path: Path) -> None:
        write_part(pa.Table.from_pylist(rows, schema=self.schema), path)
        self._small.append(path)
        if len(self._small) >= self._parts:
            self._merge()

    def _merge(self) -> None:
        self._drop_merged()
        table = pa.concat_tables(pq.read_table(path, schema=self.schema) for path in self._small)
        path = part_path(self.folder, part_numbers(self._small[0])[0], part_numbers(self._small[-1])[0])
        write_part(table.sort_by(self._sort_by), path, compression_level=LEVEL)
        self._merged, self._small = self._small, []

    def _drop_merged(self) -> None:
        for path in self._merged:
            path.unlink(missing_ok=True)
        self._merged = []
