"""Check the rows of a table: what each field means as a number, and which rows cannot be used."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.columns import Columns
from labkit.data.clicks.schema import Label, TableSchema
from labkit.errors import DataError

LARGEST = 2.0**64
"""No integer type goes further; squares of such numbers still can be added up."""
TOO_FAR = 1e9
"""A value so many times as far from a column's middle as its inner 98 % are wide leaves those no differences that
training could see, once mean and standard deviation are taken out."""


class Checked:
    """Columns (N rows), and which of their rows can be used."""

    def __init__(self, columns: Columns, missing: tuple[str, ...] = ()):
        self.columns = columns
        self.usable = np.ones(len(columns.records), dtype=bool)
        self._missing = pa.array(["", *missing])
        self._faults = list(columns.bad)

    def fault(self, wrong: np.ndarray, field: str, reason: str) -> None:
        """Leave out rows that are `wrong` (N,); {} in the reason stands for the field's value."""
        rows = np.flatnonzero(wrong & self.usable)
        self.usable[rows] = False
        values = self.columns.values[field]
        self._faults += [
            (int(self.columns.records[row]), field, reason.replace("{}", f"{values[row].as_py()!r:.60}", 1))
            for row in rows.tolist()
        ]

    def report(self, bad: BadRows) -> None:
        """Report the faults in the order of the file.

        Raises:
            DataError: there is one, and `bad` says to stop.
        """
        faults = sorted(self._faults, key=lambda fault: fault[0])[: 1 if bad.policy == "error" else None]
        lines = self.columns.lines([record for record, _, _ in faults])
        for record, field, reason in faults:
            bad.add(DataError(reason, fix="Mend the row.", file=self.columns.path, line=lines[record], field=field))

    def label(self, label: Label) -> np.ndarray:
        """Which rows are positive: bool (N,)."""
        text = self.columns.values[label.column]
        positive = is_in(text, pa.array(label.positive))
        negative = is_in(text, pa.array(label.negative)) if label.negative else ~positive & ~is_in(text, self._missing)
        expected = ", ".join(map(repr, [*label.positive, *(label.negative or ["any other value"])]))
        self.fault(~positive & ~negative, label.column, f"The label {{}} is none of {expected}.")
        return positive

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64 (N,), NaN where missing."""
        values = self.columns.values[name]
        if not pa.types.is_string(values.type):
            # not safe: of an integer beyond 2^53 a float64 has the first 53 bits
            numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            self.fault(np.isinf(numbers), name, "The value {} is not a finite number.")
            return numbers
        absent = is_in(values, self._missing)
        try:
            numbers = pc.cast(pc.if_else(pa.array(absent), None, values), pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            numbers = np.array([_number(value) for value in values.to_pylist()])
        self.fault(~absent & ~np.isfinite(numbers), name, "The value {} is not a finite number.")
        return np.where(absent, np.nan, numbers)

    def categories(self, name: str) -> pa.DictionaryArray:
        """A column (N,) as a dictionary's, "" where missing."""
        values = self.columns.values[name]
        return pc.if_else(pc.is_in(values, self._missing), "", values).dictionary_encode()


@dataclass(frozen=True)
class Rows:
    """The usable rows (N) of a table, not yet learnt from."""

    label: np.ndarray
    """uint8 (N,)"""
    dense: np.ndarray
    """float64 (N, D), NaN where missing"""
    categorical: list[pa.DictionaryArray]
    """F columns (N,); "" where missing"""
    split_values: np.ndarray | None
    """The column that says the split, where there is one."""


def usable_rows(columns: Columns, schema: TableSchema, bad: BadRows) -> Rows:
    """Check every row of a table; those that cannot be used go to `bad`.

    Raises:
        DataError: a row is bad and `bad` says to stop, or none is usable.
    """
    checked = Checked(columns, schema.missing)
    positive = checked.label(schema.label)
    dense = np.empty((len(positive), len(schema.dense)))
    for index, name in enumerate(schema.dense):
        dense[:, index] = checked.numbers(name)
        if name not in schema.log:
            checked.fault(
                _too_far(dense[:, index], checked.usable),
                name,
                "Beside the value {} all others of the column would be one number; if it is right, list the column "
                "under `log` in the schema, and if it means missing, list it under `missing`.",
            )
    split = schema.split.column
    if split is not None:
        split_text = pc.cast(columns.values[split], pa.string())
        checked.fault(is_in(split_text, pa.array(["", *schema.missing])), split, "The split {} is missing.")
    checked.report(bad)
    usable = checked.usable
    if not usable.any():
        raise DataError("The file has no usable row.", fix="Give a file with rows.", file=columns.path)
    keep = pa.array(usable)
    return Rows(
        positive[usable].astype(np.uint8),
        dense[usable],
        [checked.categories(name).filter(keep) for name in schema.categorical],
        None if split is None else split_text.filter(keep).to_numpy(zero_copy_only=False),
    )


def is_in(values: pa.Array, chosen: pa.Array) -> np.ndarray:
    """Which of the values (N,) are among the chosen: bool (N,)."""
    return pc.is_in(values, chosen).to_numpy(zero_copy_only=False)


def _too_far(values: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Which of the values (N,) would leave the others of their column without differences."""
    known = values[usable & np.isfinite(values)]
    if len(known) == 0:
        return np.zeros(len(values), dtype=bool)
    last = len(known) - 1
    low, middle, high = (math.ceil(0.01 * last), last // 2, math.floor(0.99 * last))
    ordered = np.partition(known, (low, middle, high))
    spread = ordered[high] - ordered[low]
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(values - ordered[middle]) > TOO_FAR * spread
    return (np.abs(values) > LARGEST) | (far & (spread > 0))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
