"""A store of rows, each with the optimiser's state of it: what every placement is to the tables, and main memory.

Shapes: R rows, D embedding dim, W numbers of a row (weights, then state), U distinct rows of a batch, ascending.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from labkit.errors import DataError
from labkit.placement.updates import Update, update_rows
from labkit.runs import disk_full_as_user_error

FILL_NUMBERS = 2**22
"""Weights that are drawn at once: 16 MiB"""


@dataclass
class Counters:
    """What a store has done for training, evaluation left out."""

    lookups: int = 0
    distinct_rows: int = 0
    """Of the lookups, a batch's equal ones counted once"""
    missed_rows: int = 0
    """Of those, that were not on the fast tier"""
    read_bytes: int = 0
    """From the slow tier"""
    written_bytes: int = 0
    waited_s: float = 0.0
    """That a step waited for its rows"""

    def metrics(self) -> dict[str, float]:
        """As `run.log` takes them."""
        return {f"placement_{name}": float(value) for name, value in asdict(self).items()}


@dataclass(eq=False)
class Fetch:
    """Rows on their way to a later batch, with what is written to them meanwhile."""

    rows: np.ndarray
    future: Future
    written: list[tuple[np.ndarray, Tensor]] = field(default_factory=list)
    look: int = 0
    """Its number in a cache"""
    goes_around: bool = False
    """Whether rows found no slot there"""


class RowStore:
    """Rows float32 (R, W) somewhere, pulled for a batch and pushed back; what differs is `read` and `write`."""

    is_in_memory = True
    """Whether `weight` and `state` are tensors, which checkpoints hold"""
    staleness = 0

    def __init__(self, num_rows: int, embedding_dim: int, width: int, device: str):
        self.num_rows, self.dim, self.width = num_rows, embedding_dim, width
        self.device = torch.device(device)
        self.counters = Counters()
        self._fetches: list[Fetch] = []
        self._thread = ThreadPoolExecutor(1, "labkit-rows")
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    # what placements are made of

    def read(self, rows: np.ndarray) -> np.ndarray:
        """A copy (U, W) of rows int64 (U,); any thread may ask."""
        raise NotImplementedError

    def write(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Replace rows by (U, W)."""
        raise NotImplementedError

    def write_weights(self, first: int, weights: np.ndarray) -> None:
        """Replace the weights of the rows from `first` on by (n, D), and leave their state."""
        raise NotImplementedError

    # what tables ask for

    def fill(self, first: int, count: int, low: float, high: float) -> None:
        """Draw the weights of `count` rows uniformly from torch's generator, as one `uniform_` over all would."""
        for start, weights in draws(first, count, self.dim, low, high):
            self.write_weights(start, weights.numpy())

    def prefetch(self, rows: np.ndarray) -> Fetch:
        """Start to read the rows of a later batch."""
        self._fetches.append(Fetch(rows, self._thread.submit(self._fetched, rows)))
        return self._fetches[-1]

    def pull(self, rows: np.ndarray, fetch: Fetch | None = None) -> Tensor:
        """The rows (U, W) of a batch on the device, as all pushes left them; what is returned is the caller's."""
        began = time.perf_counter()
        values, copied = self._fetched(rows) if fetch is None else fetch.future.result()
        if copied is not None:
            torch.cuda.current_stream(self.device).wait_event(copied)
            values.record_stream(torch.cuda.current_stream(self.device))
        if fetch is not None:
            self.drop(fetch)
            for others, written in fetch.written:
                patch(values, rows, others, written)
        self.counters.missed_rows += len(rows)
        self._count_pull(len(rows), 4 * values.numel(), began)
        return values

    def peek(self, rows: np.ndarray) -> Tensor:
        """The rows (U, W) on the device, for evaluation: it changes nothing and counts for nothing."""
        return torch.from_numpy(self.read(rows)).to(self.device)

    def update(self, rows: np.ndarray, values: Tensor, gradient: Tensor, update: Update) -> None:
        """Step rows whose values (U, W) were pulled by their gradient (U, D)."""
        values = update_rows(values, gradient, update)
        self.push(rows, values)
        for fetch in self._fetches:
            fetch.written.append((rows, values))

    def push(self, rows: np.ndarray, values: Tensor) -> None:
        """Replace rows by (U, W) from the device."""
        self.write(rows, values.cpu().numpy())
        self.counters.written_bytes += 4 * values.numel()

    def metrics(self) -> dict[str, float]:
        """What was counted, as `run.log` takes it."""
        return self.counters.metrics()

    def drop(self, fetch: Fetch) -> None:
        """A fetch is done, or of no use any more."""
        if fetch in self._fetches:
            self._fetches.remove(fetch)

    def flush(self) -> None:
        """Bring all that was pushed to where checkpoints find it."""

    def close(self) -> None:
        """End threads and processes; the rows are gone."""
        self._thread.shutdown(cancel_futures=True)

    def weight(self) -> Tensor:
        """The weights (R, D), a view of the store's own memory; of those in memory."""
        raise NotImplementedError

    def state(self) -> Tensor:
        """The optimiser's state (R, W − D), like `weight`."""
        raise NotImplementedError

    def loaded(self) -> None:
        """Weights or state were replaced."""

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        """Put a copy where a resumed run finds it, for stores that are not in memory; what `load` is to know."""
        raise NotImplementedError

    def load(self, folder: Path, saved: dict[str, Any]) -> None:
        """Go back to what `save` kept."""
        raise NotImplementedError

    # parts of the above

    def _fetched(self, rows: np.ndarray) -> tuple[Tensor, Any]:
        """Rows (U, W) on the device, or on their way there: then with the event of their arrival."""
        values = torch.from_numpy(self.read(rows))
        if self._stream is None:
            return values, None
        with torch.cuda.stream(self._stream):  # beside what is being computed
            values = values.pin_memory().to(self.device, non_blocking=True)
            return values, self._stream.record_event()

    def _count_pull(self, rows: int, read_bytes: int, began: float) -> None:
        self.counters.distinct_rows += rows
        self.counters.read_bytes += read_bytes
        self.counters.waited_s += time.perf_counter() - began


class HostStore(RowStore):
    """All rows in main memory."""

    def __init__(self, num_rows: int, embedding_dim: int, width: int, device: str = "cpu"):
        super().__init__(num_rows, embedding_dim, width, device)
        self.array = np.zeros((num_rows, width), np.float32)  # (R, W)
        self._tensor = torch.from_numpy(self.array)
        """The same memory: a checkpoint writes it once, for weights and state"""

    def read(self, rows: np.ndarray) -> np.ndarray:
        return np.take(self.array, rows, axis=0, mode="clip")  # lets other threads run, unlike array[rows]

    def write(self, rows: np.ndarray, values: np.ndarray) -> None:
        self.array[rows] = values

    def write_weights(self, first: int, weights: np.ndarray) -> None:
        self.array[first : first + len(weights), : self.dim] = weights

    def weight(self) -> Tensor:
        return self._tensor[:, : self.dim]

    def state(self) -> Tensor:
        return self._tensor[:, self.dim :]


def draws(first: int, count: int, dim: int, low: float, high: float) -> Iterator[tuple[int, Tensor]]:
    """Weights (n, D) of `count` rows from `first` on, a part at a time, with the number of its first row."""
    for start in range(first, first + count, part := max(1, FILL_NUMBERS // dim)):
        yield start, torch.empty(min(part, first + count - start), dim).uniform_(low, high)


def copy_name(step: int) -> str:
    """The name of the copy of all rows that belongs to the checkpoint of a step."""
    return f"tables-{step:012d}.rows"


def write_copy(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a copy of all rows with `write`, whole or not at all, into a folder of checkpoints.

    The copy before it is kept, because the checkpoint may still name it; older ones are removed.

    Raises:
        UserError: the disk is full.
    """
    if path.exists():
        return
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    for left_over in folder.glob("tables-*.part"):  # of a process that was killed while it wrote
        left_over.unlink()
    temporary = path.with_suffix(".part")
    try:
        with disk_full_as_user_error(folder), temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    for old in sorted(folder.glob("tables-*.rows"))[:-2]:
        old.unlink()


def open_copy(path: Path, size_bytes: int) -> BinaryIO:
    """Open a copy of all rows; those of later steps, which will be taken again, are removed.

    Raises:
        DataError: it is not there, or was cut short.
    """
    found = path.stat().st_size if path.exists() else None
    if found != size_bytes:
        has = "is not there" if found is None else f"has {found:,} bytes"
        raise DataError(
            f"this copy of the tables {has}, and the checkpoint next to it needs {size_bytes:,} bytes.",
            fix="Bring the file back, or start a new run.",
            file=path,
        )
    for later in path.parent.glob("tables-*.rows"):
        if later.name > path.name:
            later.unlink()
    return path.open("rb")


def patch(values: Tensor, rows: np.ndarray, others: np.ndarray, written: Tensor) -> None:
    """Put what was `written` (V, W) to rows `others` (V,) into the values (U, W) of `rows`; both ascend."""
    at = np.searchsorted(others, rows)
    at[at == len(others)] = 0
    same = np.flatnonzero(others[at] == rows) if len(others) else at[:0]
    values[torch.from_numpy(same)] = written[torch.from_numpy(at[same])]
