"""An index over whole numbers: one of the rooms' kinds, behind one door that checks what goes in and enlarges pools."""

from types import ModuleType
from typing import Any

import numpy as np

from labkit import UserError, errors
from labkit.indexes import art, btree
from labkit.indexes.kernels import MISSING, SCAN, enlarged
from labkit.indexes.keys import check_keys, check_sorted
from labkit.indexes.learned import layout, loading, updates
from labkit.indexes.workloads import SCANNED, Requests

KINDS: dict[str, tuple[ModuleType, ModuleType]] = {
    "btree": (btree, btree),
    "art": (art, art),
    "learned": (loading, updates),
    "learned-bounded": (loading, updates),
}
"""By name: the modules that build it and that update it. `learned-bounded` bounds the scan for a free slot."""


class Index:
    """Keys with a value each. Its arrays are in `arrays`; what it did since the bulk load is in `work`."""

    def __init__(self, kind: str, keys: object, values: object = None, more: int = 1024):
        """Load keys in ascending order.

        Args:
            kind: btree, art, learned or learned-bounded.
            keys: distinct whole numbers from 0 to 2**62 - 1, in ascending order.
            values: whole numbers, a value for each key; by default their positions.
            more: number of keys for which there should be room from the beginning.

        Raises:
            UserError: there is no such kind; keys are wrong; or there are not as many values.
        """
        if kind not in KINDS:
            raise UserError(f"index {kind!r}: {errors.did_you_mean(kind, KINDS)}", field="index")
        self.kind = kind
        builder, self.kernels = KINDS[kind]
        checked = check_keys(keys)
        check_sorted(checked)
        given = np.arange(len(checked)) if values is None else np.asarray(values, np.int64)
        if len(given) != len(checked):
            raise UserError(f"{len(given)} values for {len(checked)} keys: give a value for each key.", field="values")
        options = {"bounded": True} if kind == "learned-bounded" else {}
        self.arrays: Any = builder.build(checked, given, more, **options)

    @property
    def work(self) -> dict[str, int]:
        """What it counted since the bulk load, such as shifted keys."""
        names = layout.WORK if self.kernels is updates else self.kernels.WORK
        return dict(zip(names, self.arrays.work.tolist(), strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays, with pools that are not in use yet."""
        return sum(array.nbytes for array in self.arrays)

    def get(self, key: int) -> int | None:
        """The value of a key; None if it is not there."""
        found = self.get_many(np.array([key]))[0]
        return None if found == MISSING else int(found)

    def get_many(self, keys: object) -> np.ndarray:
        """The value of each key; MISSING for those that are not there."""
        checked = check_keys(keys)
        found = np.empty(len(checked), np.int64)
        self.kernels.get_many(self.arrays, checked, found)
        return found

    def put(self, key: int, value: int) -> bool:
        """Insert a key, or replace its value; whether it is new."""
        checked = int(check_keys(np.array([key]))[0])
        while (state := self.kernels.put(self.arrays, checked, int(value))) < 0:
            self.arrays = enlarged(self.arrays)
        return bool(state)

    def scan(self, key: int, count: int) -> list[int]:
        """The values of up to `count` keys from `key` on, in the order of the keys."""
        found = np.empty(count, np.int64)
        return found[: self.kernels.scan(self.arrays, int(check_keys(np.array([key]))[0]), count, found)].tolist()

    def run(self, requests: Requests) -> np.ndarray:
        """Answer a batch: values found, 1 for new keys and 0 for replaced values, sums of the values of scans."""
        found, done = np.empty(len(requests.keys), np.int64), 0
        values = np.empty(max(SCANNED, int(requests.arguments.max(initial=0, where=requests.kinds == SCAN))), np.int64)
        while (done := self.kernels.run(self.arrays, *requests[1:], found, values, done)) < len(requests.keys):
            self.arrays = enlarged(self.arrays)
        return found
