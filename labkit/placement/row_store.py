"""Stores of rows, each with its optimiser state: the interface of all placements, and main memory.

Shapes: R rows, U distinct rows of a batch, ascending, D embedding dim, W numbers of a row: D weights, then the state.
"""

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from labkit import DataError, runs

BETA1, BETA2, ADAM_EPS, ADAGRAD_EPS = 0.9, 0.999, 1e-8, 1e-10
"""Defaults of torch.optim.SparseAdam, torch.optim.Adagrad and RowwiseAdagrad"""


@dataclass(frozen=True)
class Update:
    """One step of an optimiser of tables."""

    optimiser: str
    """sgd, adagrad, rowwise-adagrad or adam"""
    lr: float
    step: int
    """Number of the step, from 1"""


@torch.no_grad()
def update_rows(rows: Tensor, gradient: Tensor, update: Update) -> Tensor:
    """Step float32 rows (U, W), in place, by their gradient (U, D), like the sparse optimiser of that name."""
    dim = gradient.shape[1]
    weight, state = rows[:, :dim], rows[:, dim:]  # (U, D), (U, W − D)
    if update.optimiser == "sgd":
        weight.sub_(gradient, alpha=update.lr)
    elif update.optimiser == "adagrad":
        state.add_(gradient * gradient)
        weight.sub_(gradient / (state.sqrt() + ADAGRAD_EPS), alpha=update.lr)
    elif update.optimiser == "rowwise-adagrad":
        state.add_(gradient.square().mean(1, keepdim=True))
        weight.sub_(gradient * (update.lr / (state.sqrt() + ADAGRAD_EPS)))
    else:
        first, second = state[:, :dim], state[:, dim:]
        first.add_((gradient - first) * (1 - BETA1))
        second.add_((gradient * gradient - second) * (1 - BETA2))
        step_size = update.lr * math.sqrt(1 - BETA2**update.step) / (1 - BETA1**update.step)
        weight.sub_(first / (second.sqrt() + ADAM_EPS), alpha=step_size)
    return rows


DRAWN_NUMBERS = 2**22
"""Weights that are drawn together: 16 MiB"""


class DrawnWeight:
    """The weight (R, D) of a table for a model's initialisation, which draws it a part at a time."""

    def __init__(self, rows: int, dim: int, store: Callable[[int, np.ndarray], None], first: int = 0):
        """`store` is called with the number of the first row of each part, from `first` on, and the part (n, D)."""
        self._rows, self._dim, self._store, self._first = rows, dim, store, first

    def __len__(self) -> int:
        return self._rows

    def uniform_(self, low: float, high: float) -> None:
        """Draw from torch's generator what one `uniform_` would."""
        size = max(1, DRAWN_NUMBERS // self._dim)
        for start in range(0, self._rows, size):
            drawn = torch.empty(min(size, self._rows - start), self._dim).uniform_(low, high)
            self._store(self._first + start, drawn.numpy())


@dataclass
class Counters:
    """What a store has done for training, without evaluation."""

    lookups: int = 0
    distinct_rows: int = 0
    """Rows looked up, where equal ones in a batch count once"""
    missed_rows: int = 0
    """Distinct rows that were not on the fast tier"""
    read_bytes: int = 0
    """Bytes read from the slow tier"""
    written_bytes: int = 0
    waited_s: float = 0.0
    """Seconds that steps waited for their rows"""


@dataclass(eq=False)
class Fetch:
    """Rows that are being fetched for a later batch, and what is written to them meanwhile."""

    rows: np.ndarray
    future: Future
    written: list[tuple[np.ndarray, Tensor]] = field(default_factory=list)
    look: int = 0
    """Number of the look in a cache"""
    goes_around: bool = False
    """Whether some rows have no slot in the cache"""


class RowStore:
    """Rows float32 (R, W), pulled for a batch and pushed back. Placements differ in `read` and `write`."""

    is_in_memory = True
    """Whether there is a `memory`, which is part of checkpoints"""
    staleness = 0

    def __init__(self, num_rows: int, embedding_dim: int, width: int, device: str):
        self.num_rows, self.dim, self.width = num_rows, embedding_dim, width
        self.device = torch.device(device)
        self.counters = Counters()
        self._fetches: list[Fetch] = []
        self._thread = ThreadPoolExecutor(1, "labkit-rows")
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    # what a placement defines

    def read(self, rows: np.ndarray) -> np.ndarray:
        """A copy (U, W) of rows int64 (U,); may be called in any thread."""
        raise NotImplementedError

    def write(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Replace rows by (U, W)."""
        raise NotImplementedError

    def write_weights(self, first: int, weights: np.ndarray) -> None:
        """Replace the weights of the rows from `first` on by (n, D); their state stays."""
        raise NotImplementedError

    # what tables use

    def prefetch(self, rows: np.ndarray) -> Fetch:
        """Start to read the rows of a later batch."""
        self._fetches.append(Fetch(rows, self._thread.submit(self._fetched, rows)))
        return self._fetches[-1]

    def pull(self, rows: np.ndarray, fetch: Fetch | None = None) -> Tensor:
        """The rows (U, W) of a batch on the device after all pushes so far; the caller may change them."""
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
        """The rows (U, W) on the device, for evaluation: nothing is changed or counted."""
        return torch.from_numpy(self.read(rows)).to(self.device)

    def update(self, rows: np.ndarray, values: Tensor, gradient: Tensor, update: Update) -> None:
        """Step pulled rows with values (U, W) by their gradient (U, D)."""
        values = update_rows(values, gradient, update)
        self.push(rows, values)
        for fetch in self._fetches:
            fetch.written.append((rows, values))

    def push(self, rows: np.ndarray, values: Tensor) -> None:
        """Replace rows by (U, W) from the device."""
        self.write(rows, values.cpu().numpy())
        self.counters.written_bytes += 4 * values.numel()

    def metrics(self) -> dict[str, float]:
        """The counters, for `run.log`."""
        return {f"placement_{name}": float(value) for name, value in asdict(self.counters).items()}

    def drop(self, fetch: Fetch | None) -> None:
        """Forget a fetch, which is done or no longer needed."""
        if fetch in self._fetches:
            self._fetches.remove(fetch)

    def close(self) -> None:
        """End threads and processes; the rows are lost."""
        self._thread.shutdown(cancel_futures=True)

    def memory(self) -> Tensor:
        """All rows (R, W), in the store's own memory; only for stores in memory."""
        raise NotImplementedError

    def loaded(self) -> None:
        """Called after the content of `memory` has been replaced."""

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        """Write a copy for a resumed run, for stores that are not in memory; returns what `load` needs."""
        raise NotImplementedError

    def load(self, folder: Path, saved: dict[str, Any]) -> None:
        """Go back to what `save` wrote."""
        raise NotImplementedError

    # parts of the above

    def _fetched(self, rows: np.ndarray) -> tuple[Tensor, Any]:
        """Rows (U, W) on the device; if they are still being copied, with the event of their arrival."""
        values = torch.from_numpy(self.read(rows))
        if self._stream is None:
            return values, None
        with torch.cuda.stream(self._stream):  # in parallel with the computation
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
        return np.take(self.array, rows, axis=0, mode="clip")  # releases the lock, unlike array[rows]

    def write(self, rows: np.ndarray, values: np.ndarray) -> None:
        self.array[rows] = values

    def write_weights(self, first: int, weights: np.ndarray) -> None:
        self.array[first : first + len(weights), : self.dim] = weights

    def memory(self) -> Tensor:
        return self._tensor


def write_copy(folder: Path, step: int, write: Callable[[BinaryIO], Any]) -> dict[str, Any]:
    """Write a copy of all rows with `write`, whole or not at all, into a folder of checkpoints.

    The copy before it is kept, because the checkpoint may still name it; older ones are removed. Returns what
    `open_copy` needs.

    Raises:
        UserError: the disk is full.
    """
    path = folder / f"tables-{step:012d}.rows"
    if path.exists():
        return {"file": path.name}
    folder.mkdir(parents=True, exist_ok=True)
    for left_over in folder.glob("tables-*.part"):  # of a process that was killed while it wrote
        left_over.unlink()
    temporary = path.with_suffix(".part")
    try:
        with runs.disk_full_as_user_error(folder), temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    for old in sorted(folder.glob("tables-*.rows"))[:-2]:
        old.unlink()
    return {"file": path.name}


def open_copy(folder: Path, saved: dict[str, Any], size_bytes: int) -> BinaryIO:
    """Open a copy of all rows; those of later steps, which will be taken again, are removed.

    Raises:
        DataError: it is not there, or was cut short.
    """
    path = folder / saved["file"]
    found = path.stat().st_size if path.exists() else None
    if found != size_bytes:
        has = "is not there" if found is None else f"has {found:,} bytes"
        raise DataError(
            f"this copy of the tables {has}, and the checkpoint next to it needs {size_bytes:,} bytes.",
            fix="Bring the file back, or start a new run.",
            file=path,
        )
    for later in folder.glob("tables-*.rows"):
        if later.name > path.name:
            later.unlink()
    return path.open("rb")


def patch(values: Tensor, rows: np.ndarray, others: np.ndarray, written: Tensor) -> None:
    """Copy the values `written` (V, W) of rows `others` (V,) into the values (U, W) of `rows`; both are ascending."""
    at = np.searchsorted(others, rows)
    at[at == len(others)] = 0
    same = np.flatnonzero(others[at] == rows) if len(others) else at[:0]
    values[torch.from_numpy(same)] = written[torch.from_numpy(at[same])]
