"""What the numbers in a half-prepared click log stand for, block by block, until its vocabularies are known.

While text is parsed, each block numbers the distinct values of a feature as they come, and the array of categories
holds those numbers. The values themselves wait in a file, so that memory does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Block:
    """Rows that were parsed together."""

    start: int
    stop: int
    values: list[np.ndarray]
    """uint32 (U,) of each feature: number u in these rows stands for values[u]"""

    @property
    def first_value(self) -> np.ndarray:
        """int64 (F,): where each feature's values begin when all are put in a row."""
        return np.cumsum([0, *map(len, self.values[:-1])])


class BlockValues:
    """The values of all blocks, in a file that is removed at the end of the `with` block."""

    def __init__(self, path: Path):
        self._path = path
        self._file = path.open("w+b")
        self._rows: list[int] = []
        self._sizes: list[np.ndarray] = []

    def append(self, rows: int, values: list[np.ndarray]) -> None:
        """Add a block of that many rows, with the values uint32 (U,) of each feature."""
        for each in values:
            self._file.write(each.data)
        self._rows.append(rows)
        self._sizes.append(np.array([len(each) for each in values]))

    def __iter__(self) -> Iterator[Block]:
        self._file.seek(0)
        start = 0
        for rows, sizes in zip(self._rows, self._sizes, strict=True):
            together = np.frombuffer(self._file.read(4 * int(sizes.sum())), np.uint32)
            yield Block(start, start + rows, np.split(together, sizes.cumsum()[:-1]))
            start += rows

    def __enter__(self) -> BlockValues:
        return self

    def __exit__(self, *_) -> None:
        self._file.close()
        self._path.unlink()
