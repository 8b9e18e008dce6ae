"""Parts of a long recording: small ones that are on the disk within seconds, merged into few large ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from labkit.runs.parts import PartWriter, part_numbers, write_part

PARTS = 60
"""So many small parts make a large one: five minutes of samples."""

LEVEL = 9
"""Of zstd: a large part is written once in a while, and may take its time."""


class MergingPartWriter(PartWriter):
    """A `PartWriter` whose parts are merged, sorted so that a series lies together, which takes a tenth of the bytes.

    Small parts that were merged stay until the next merge, and readers leave them out: whoever has just listed them
    can still open them.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, sort_by: Sequence[str], parts: int = PARTS, **options):
        """Write rows of `schema` to `folder`; every `parts` parts are merged, sorted by these columns."""
        super().__init__(folder, schema, **options)
        self._sort_by, self._parts = [(name, "ascending") for name in sort_by], parts
        self._small: list[Path] = []
        self._merged: list[Path] = []

    def flush(self) -> None:
        """Write what has been collected as one part, and merge where enough have come together."""
        before = self.next_number
        super().flush()
        self._small += [self.folder / f"part-{number:05d}.parquet" for number in range(before, self.next_number)]
        if len(self._small) >= self._parts:
            self._merge()

    def close(self) -> None:
        """Write what is left, and drop what was merged."""
        self.flush()
        self._drop_merged()

    def _merge(self) -> None:
        self._drop_merged()
        table = pa.concat_tables(pq.read_table(path, schema=self.schema) for path in self._small)
        first, last = part_numbers(self._small[0])[0], part_numbers(self._small[-1])[0]
        path = self.folder / f"part-{first:05d}-{last:05d}.parquet"
        write_part(table.sort_by(self._sort_by), path, compression_level=LEVEL)
        self._merged, self._small = self._small, []

    def _drop_merged(self) -> None:
        for path in self._merged:
            path.unlink(missing_ok=True)
        self._merged = []
