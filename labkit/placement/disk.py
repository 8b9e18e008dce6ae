"""Rows in a file that is mapped into memory, with a limit on the resident pages.

The system reads a row's page of 4 KiB when the mapping is accessed. Many threads access it at the same time, because a
disk serves parallel requests faster than one after another. The least recently used pages are dropped from the mapping
and, once they are on the disk, from the system's page cache, so that rows which are not resident really come from the
disk. The file has no name, so it disappears with the process, however that ends.

Shapes: R rows, D embedding dim, W numbers of a row, U requested rows.
"""

import ctypes
import errno
import mmap
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from labkit import errors, runs
from labkit.placement.cached import CacheIndex
from labkit.placement.row_store import RowStore, open_copy, write_copy

PAGE = mmap.PAGESIZE
READERS = 32
"""Threads that access pages: 15,000 cold pages of 4 KiB took 1.05 s with one thread, 0.40 s with 8, 0.24 s with 32 and
0.23 s with 64; pread with 64 threads took 0.35 s (virtual disk, 2 cores, 23 November 2026)"""
ROWS_A_READER = 256
COPY_BYTES = 2**26
ELSEWHERE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a system that cannot copy between two file systems by itself"""
_LIBC, _SYNC = ctypes.CDLL(None), 1 | 2 | 4
"""Flags of sync_file_range(2): wait for pages being written, write the rest, wait for them (length 0: to the end)"""


class DiskStore(RowStore):
    """All rows in a file of a folder, of which at most `memory_cap` bytes are resident."""

    is_in_memory = False

    def __init__(
        self, num_rows: int, embedding_dim: int, width: int, folder: Path, memory_cap: int, device: str = "cpu"
    ):
        """Make the file and reserve all of its space.

        Raises:
            UserError: the disk has no room for it, or takes no file.
        """
        super().__init__(num_rows, embedding_dim, width, device)
        self.bytes = max(PAGE, 4 * num_rows * width)
        self._folder = folder
        with errors.refusals():
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder, prefix="tables-")  # noqa: SIM115  open as long as the store is
        with runs.disk_full_as_user_error(folder):  # without space, writing to the mapping would kill the process
            os.posix_fallocate(self._file.fileno(), 0, self.bytes)
        self._map = mmap.mmap(self._file.fileno(), self.bytes)
        self._map.madvise(mmap.MADV_RANDOM)  # no reading ahead
        self._rows = np.frombuffer(self._map, np.float32, num_rows * width).reshape(num_rows, width)  # (R, W)
        self._start = self._rows.__array_interface__["data"][0]
        in_file, most = -(-self.bytes // PAGE), memory_cap // PAGE
        self._most_going = most // 8
        self._most_pages = min(in_file, most - self._most_going)
        self._pages = CacheIndex(in_file, self._most_pages, "lru")
        self._going: list[np.ndarray] = []  # dropped pages that may still be in the page cache
        self._lock, self._readers = threading.Lock(), ThreadPoolExecutor(READERS, "labkit-disk")
        self._disk_read_at_first = bytes_from_disk()

    def read(self, rows: np.ndarray) -> np.ndarray:
        values = np.empty((len(rows), self.width), np.float32)
        self._visit(rows, lambda part: self._take(rows[part], values[part]))
        return values

    def write(self, rows: np.ndarray, values: np.ndarray) -> None:
        def write_part(part: slice) -> None:
            before = np.empty_like(values[part])
            self._take(rows[part], before)  # reads the pages in many threads; the assignment alone would use one
            self._rows[rows[part]] = values[part]

        self._visit(rows, write_part)

    def write_weights(self, first: int, weights: np.ndarray) -> None:
        def write_part(part: slice) -> None:
            self._rows[first + part.start : first + part.stop, : self.dim] = weights[part]

        self._visit(np.arange(first, first + len(weights)), write_part)

    def close(self) -> None:
        super().close()
        self._readers.shutdown()
        self._rows = np.empty((0, self.width), np.float32)  # nothing views the mapping any more
        self._map.close()
        self._file.close()

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        return write_copy(folder, step, lambda copy: _copy(self._file.fileno(), copy.fileno(), self.bytes))

    def load(self, folder: Path, saved: dict[str, Any]) -> None:
        with self._lock, open_copy(folder, saved, self.bytes) as copy:
            _copy(copy.fileno(), self._file.fileno(), self.bytes)

    def metrics(self) -> dict[str, float]:
        first, now = self._disk_read_at_first, bytes_from_disk()
        from_disk = {} if first is None or now is None else {"placement_disk_read_bytes": float(now - first)}
        return super().metrics() | from_disk

    def _take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy rows into `out` (U, W) in all threads; those that are not resident become so."""

        def take(start: int) -> None:
            part = slice(start, start + ROWS_A_READER)
            np.take(self._rows, rows[part], axis=0, out=out[part], mode="clip")  # lets other threads run

        list(self._readers.map(take, range(0, len(rows), ROWS_A_READER)))

    def _visit(self, rows: np.ndarray, visit: Callable[[slice], None]) -> None:
        """Call `visit` with parts of ascending rows whose pages fit, after making room for them."""
        row_bytes = 4 * self.width
        first, last = rows * row_bytes // PAGE, ((rows + 1) * row_bytes - 1) // PAGE
        reach = np.arange(row_bytes // PAGE + 2)  # offsets of the pages of a row
        size = max(1, self._most_pages // len(reach))
        for start in range(0, len(rows), size):
            part = slice(start, min(start + size, len(rows)))
            pages = np.unique(np.minimum(first[part, None] + reach, last[part, None]))
            with self._lock:
                self._make_room(pages)
                visit(part)

    def _make_room(self, pages: np.ndarray) -> None:
        """Drop the least recently used pages to make room for these.

        A written page stays in the page cache until it is on the disk, and is mapped again when a neighbouring page is
        accessed, because the system maps all cached pages around that one. So an eighth of the cap is reserved for such
        pages; when there are more of them, this waits for the disk.
        """
        evicted = np.sort(self._pages.look(pages).evicted)
        for start in range(0, len(evicted), self._most_going):
            some = evicted[start : start + self._most_going]
            if sum(map(len, self._going)) + len(some) > self._most_going:
                gone: np.ndarray = np.unique(np.concatenate(self._going))
                self._unmap(gone[self._pages.slot_of[gone] < 0])
                file = self._file.fileno()
                _LIBC.sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)  # keeps mapped pages
                self._going.clear()
            self._unmap(some)
            self._going.append(some)

    def _unmap(self, pages: np.ndarray) -> None:
        """Drop ascending pages from the mapping."""
        first = np.flatnonzero(np.diff(pages, prepend=-2) > 1)  # of each stretch of adjacent pages
        lengths = np.diff(first, append=len(pages)) * PAGE
        # not mmap.madvise, which holds the lock that the computing thread needs
        for begin, length in zip((pages[first] * PAGE + self._start).tolist(), lengths.tolist(), strict=True):
            _LIBC.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), mmap.MADV_DONTNEED)


def _copy(source: int, copy: int, size: int) -> None:
    """Copy the content of a file, by reference if the file system can, and drop it from the page cache."""
    done = 0
    while done < size:
        part = min(COPY_BYTES, size - done)
        try:
            count = os.copy_file_range(source, copy, part, done, done)
        except OSError as error:
            if error.errno not in ELSEWHERE:
                raise
            count = os.pwrite(copy, os.pread(source, part, done), done)
        assert count, "the file of the tables is truncated"
        done += count
    os.fsync(copy)
    for file in (source, copy):
        os.posix_fadvise(file, 0, size, os.POSIX_FADV_DONTNEED)


def bytes_from_disk() -> int | None:
    """Bytes that this process has read from disks so far; None if the system does not report it."""
    try:
        counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    except OSError:
        return None
    return int(counts["read_bytes"])
