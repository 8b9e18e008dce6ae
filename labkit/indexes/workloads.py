"""Workloads: what is loaded into an index, and the requests that it then answers."""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit import UserError, errors
from labkit.indexes.kernels import GET, PUT, SCAN
from labkit.indexes.keys import DISTRIBUTIONS, make_keys

FEW = 2000
"""Keys that the reads of `few` are of, spread evenly: the way to each stays in the cache"""
SCANNED = 100
"""Keys of a scan"""
MOST = 10**8
"""Keys and requests at most"""
PATTERNS = ("reads", "few", "mixed:P", "append", "append:P", "scan")
PATTERN = re.compile(r"reads|few|append|scan|(mixed|append):\d{1,3}")


@dataclass(frozen=True)
class Workload:
    """What is loaded into an index, and which requests it then answers.

    Raises:
        UserError: a field has a value that it cannot have.
    """

    keys: str = "uniform"
    """Distribution of the keys, one of `DISTRIBUTIONS`."""
    n: int = 10**6
    """Number of keys that are loaded."""
    pattern: str = "reads"
    """reads; few (reads of 2,000 keys); mixed:P (P percent inserts of new keys, the rest reads); append (inserts in
    ascending order, beyond all keys) and append:P; or scan (of 100 keys)."""
    requests: int = 2 * 10**5
    """Number of requests."""
    seed: int = 0
    """Seed of keys and requests."""

    def __post_init__(self):
        if self.keys not in DISTRIBUTIONS:
            raise UserError(f"keys {self.keys!r}: {errors.did_you_mean(self.keys, DISTRIBUTIONS)}", field="keys")
        if not PATTERN.fullmatch(self.pattern) or self._percent > 100:
            patterns = ", ".join(PATTERNS)
            raise UserError(f"workload {self.pattern!r}: choose one of {patterns}; P is 0 to 100.", field="workload")
        for name in ("n", "requests"):
            if not 0 < getattr(self, name) <= MOST:
                raise UserError(f"{name} is {getattr(self, name):,}: give 1 to {MOST:,}.", field=name)

    @property
    def _percent(self) -> int:
        kind, _, percent = self.pattern.partition(":")
        return int(percent or 100 * (kind == "append"))

    @property
    def changes(self) -> bool:
        """Whether requests insert keys."""
        return self._percent > 0


class Requests(NamedTuple):
    loaded: np.ndarray
    """int64: keys that the index holds before, in ascending order"""
    kinds: np.ndarray
    """uint8 (R,): GET, PUT or SCAN"""
    keys: np.ndarray
    """int64 (R,)"""
    arguments: np.ndarray
    """int64 (R,): the value to put, or the number of keys to scan"""

    def first(self, number: int) -> "Requests":
        return Requests(self.loaded, *(each[:number] for each in self[1:]))


def make_requests(workload: Workload) -> Requests:
    """The keys to load and the requests of a workload."""
    random, kind = np.random.default_rng(workload.seed + 1), workload.pattern.partition(":")[0]
    kinds = np.full(workload.requests, SCAN if kind == "scan" else GET, np.uint8)
    kinds[100 * random.random(workload.requests) < workload._percent] = PUT
    inserts = int((kinds == PUT).sum())
    every = make_keys(workload.keys, workload.n + inserts, workload.seed)
    is_new = np.zeros(len(every), bool)
    if kind == "append":
        is_new[workload.n :] = True
    else:
        is_new[random.permutation(len(every))[:inserts]] = True
    loaded, new = every[~is_new], every[is_new] if kind == "append" else random.permutation(every[is_new])
    read = loaded[np.linspace(0, len(loaded) - 1, FEW).astype(int)] if kind == "few" else loaded
    keys = read[random.integers(0, len(read), workload.requests)]
    keys[kinds == PUT] = new
    arguments = np.full(workload.requests, SCANNED)
    arguments[kinds == PUT] = np.arange(workload.n, workload.n + inserts)
    return Requests(loaded, kinds, keys, arguments)
