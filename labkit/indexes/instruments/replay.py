"""Replay: the same kernels as plain Python, over arrays that log each access. It is exact, and runs on any machine."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from labkit.indexes.index import Index
from labkit.indexes.kernels import SCAN, enlarged, plain
from labkit.indexes.workloads import SCANNED, Requests

LINE_BYTES = 64
"""Bytes of a cache line"""


class Logged:
    """An array that appends the number of the cache line of each access to a log."""

    def __init__(self, array: np.ndarray, number: int, log: list[int]):
        self._array, self._first, self._log = array, number << 40, log

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, place: int) -> Any:
        self._log.append((self._first + place * self._array.itemsize) // LINE_BYTES)
        return self._array.item(place)  # a Python number: it cannot overflow without an error

    def __setitem__(self, place: int, value: Any) -> None:
        self._log.append((self._first + place * self._array.itemsize) // LINE_BYTES)
        self._array[place] = value if value < 2**63 else value - 2**64


class Replay(NamedTuple):
    found: np.ndarray
    """int64 (R,): the answers, as `Index.run` gives them"""
    lines: np.ndarray
    """int64: the cache lines that were accessed, in order"""
    starts: np.ndarray
    """int64 (R + 1,): for each request the number of accesses before it"""

    @property
    def accesses(self) -> float:
        """Accesses to arrays per request."""
        return len(self.lines) / len(self.found)

    @property
    def lines_touched(self) -> float:
        """Distinct cache lines per request."""
        bounds = zip(self.starts[:-1], self.starts[1:], strict=True)
        return float(np.mean([len(np.unique(self.lines[start:end])) for start, end in bounds]))

    def misses(self, cache_bytes: int) -> float:
        """Misses per request in a cache that replaces the least recently used line, warmed by half of the requests."""
        half = len(self.found) // 2
        missed = lru_misses(self.lines.tolist(), cache_bytes // LINE_BYTES)
        return float(missed[self.starts[half] :].sum() / (len(self.found) - half))


def replay(index: Index, requests: Requests, swaps: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> Replay:
    """Answer requests, which changes the index as `Index.run` does, and log the accesses to its arrays.

    Args:
        index: the index.
        requests: what to answer.
        swaps: functions to use in place of kernels, by the kernel's name, such as `exponential_search`.
    """
    log: list[int] = []
    run, found, starts = plain(index.kernels.run, swaps), [0], [0]
    values = [0] * int(requests.arguments.max(initial=SCANNED, where=requests.kinds == SCAN))  # of a put it is a value
    answers, arrays = [], _logged(index.arrays, log)
    for kind, key, argument in zip(*(each.tolist() for each in requests[1:]), strict=True):
        while run(arrays, [kind], [key], [argument], found, values, 0) == 0:
            index.arrays = enlarged(index.arrays)
            arrays = _logged(index.arrays, log)
        answers.append(found[0])
        starts.append(len(log))
    return Replay(np.array(answers, np.int64), np.array(log, np.int64), np.array(starts))


def _logged(arrays: Any, log: list[int]) -> Any:
    """All arrays but the counters of work, which are not part of an index, as logged ones."""
    made = {name: Logged(array, number, log) for number, (name, array) in enumerate(arrays._asdict().items())}
    return arrays._replace(**{name: each for name, each in made.items() if name != "work"})


def lru_misses(lines: list[int], capacity: int) -> np.ndarray:
    """Whether each access misses, in a cache of `capacity` lines that replaces the least recently used one."""
    cache: dict[int, None] = {}
    missed = np.ones(len(lines), bool)
    for number, line in enumerate(lines):
        if line in cache:
            missed[number] = False
            del cache[line]
        elif len(cache) == capacity:
            del cache[next(iter(cache))]
        cache[line] = None  # a dictionary keeps the order of insertion
    return missed
