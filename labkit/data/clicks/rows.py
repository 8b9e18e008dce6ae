"""Check the rows of a table: what each field means as a number, and which rows cannot be used."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.columns import Block
from labkit.data.clicks.generate import signed_log
from labkit.data.clicks.schema import TableSchema
from labkit.errors import DataError

LARGEST = 2.0**64
"""No integer type goes further; squares of such numbers still can be added up."""
TOO_FAR = 1e9
"""A value so many times as far from the middle of its column as its inner 98 % are wide leaves those no differences
that training could see, once mean and standard deviation are taken out."""
LISTED = 10
"""Values of a label's column that errors name"""
HEXADECIMAL = re.compile("[0-9a-fA-F]{0,8}")
Refuse = Callable[[np.ndarray, str, str], None]
"""Leaves out rows (N,) for a reason, in which {} stands for the field's value."""


class RowChecker:
    """Turns the blocks of files into numbers; what cannot be used goes to `bad`.

    Values of Criteo's categories are their own numbers, hashes of 32 bits; those of others are numbered by CRC-32, so
    that no text is kept. Of a million values some 230 share a number with another, of 10,000 hardly one.
    """

    def __init__(self, schema: TableSchema, bad: BadRows, schema_file: Path | None = None):
        self.schema, self.bad, self.schema_file = schema, bad, schema_file
        self.label_values: dict[str, None] = {}
        """Some that its column has"""
        self._seen: set[str] = set()  # of the label's classes
        self._missing = pa.array(["", *schema.missing])

    def check(self, path: Path, block: Block) -> tuple[np.ndarray, ...]:
        """The usable rows (N) of a block, not yet learnt from.

        Returns:
            Label bool (N,); dense float64 (N, D), signed logarithms where the schema says so, NaN where missing;
            categorical uint32 (N, F), a number for each value; fold uint8 (N,), 1 where the schema's split column says
            validation, 2 where it says test.
        """
        usable, faults = np.ones(len(block.lines), dtype=bool), list(block.faults)

        def refuse(wrong: np.ndarray, name: str, reason: str) -> None:
            for row in np.flatnonzero(wrong & usable).tolist():
                value = f"{block.values[name][row].as_py()!r:.60}"
                faults.append((int(block.lines[row]), name, reason.replace("{}", value, 1)))
                usable[row] = False

        schema = self.schema
        label = self._label(path, block.values[schema.label.column], refuse)
        dense = np.empty((len(label), len(schema.dense)))
        for index, name in enumerate(schema.dense):
            dense[:, index] = self._dense(name, block.values[name], usable, refuse)
        categorical = np.empty((len(label), len(schema.categorical)), np.uint32)
        for index, name in enumerate(schema.categorical):
            categorical[:, index] = self._categorical(name, block.values[name], refuse)
        fold = self._fold(block, refuse)
        for line, field, reason in sorted(faults, key=lambda fault: fault[0]):
            self.bad.add(DataError(reason, fix="Mend the row.", file=path, line=line, field=field))
        return label[usable], dense[usable], categorical[usable], fold[usable]

    def _label(self, path: Path, text: pa.Array, refuse: Refuse) -> np.ndarray:
        label = self.schema.label
        positive = is_in(text, pa.array(label.positive))
        negative = is_in(text, pa.array(label.negative)) if label.negative else ~positive & ~is_in(text, self._missing)
        self._seen |= {name for name, fits in (("positive", positive), ("negative", negative)) if fits.any()}
        if len(self.label_values) < LISTED:
            self.label_values |= dict.fromkeys(pc.unique(text).to_pylist()[:LISTED])
        never = [name for name in ("positive", "negative") if name not in self._seen]
        strange = ~(positive | negative | is_in(text, self._missing))
        if strange.any() and len(never) > (self.bad.policy != "error"):  # the schema is wrong rather than the rows
            values = ", ".join(map(repr, self.label_values))
            what = f"No row of {path} that was read so far has a value of it; column {label.column!r} has {values}."
            field, file = ", ".join(f"label.{name}" for name in never), self.schema_file or path
            raise DataError(what, fix="Correct the values in the schema.", file=file, field=field)
        expected = ", ".join(map(repr, [*label.positive, *(label.negative or ["any other value"])]))
        refuse(~positive & ~negative, label.column, f"The label {{}} is none of {expected}.")
        return positive

    def _dense(self, name: str, values: pa.Array, usable: np.ndarray, refuse: Refuse) -> np.ndarray:
        if pa.types.is_string(values.type):
            absent = is_in(values, self._missing)
            try:
                numbers = pc.cast(pc.if_else(pa.array(absent), None, values), pa.float64())
                numbers = numbers.to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                numbers = np.array([_number(value) for value in values.to_pylist()])
        else:
            # not safe: of an integer beyond 2^53 a float64 has the first 53 bits
            numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            absent = np.isnan(numbers)
        refuse(~absent & ~np.isfinite(numbers), name, "The value {} is not a finite number.")
        numbers = np.where(absent, np.nan, numbers)
        if self.schema.layout == "criteo":
            wrong = (np.abs(numbers) >= 1e18) | (np.floor(numbers) < numbers)
            refuse(wrong, name, "The value {} is not an integer of up to 18 digits.")
        if name in self.schema.log:
            return signed_log(numbers)
        reason = (
            "Beside the value {} all others of the column would be one number; if it is right, list the column under "
            "`log` in the schema, and if it means missing, list it under `missing`."
        )
        refuse(_too_far(numbers, usable), name, reason)
        return numbers

    def _categorical(self, name: str, values: pa.Array, refuse: Refuse) -> np.ndarray:
        column = values.dictionary_encode()  # equal texts are looked at once
        texts = column.dictionary.to_pylist()
        if self.schema.layout == "criteo":
            numbers = [int(text or "0", 16) if HEXADECIMAL.fullmatch(text) else -1 for text in texts]
        else:
            numbers = [0 if text in self.schema.missing else zlib.crc32(text.encode()) for text in texts]  # 0 of ""
        found = np.array(numbers, np.int64)[column.indices.to_numpy()]
        refuse(found < 0, name, "The category {} is not a number of up to 8 hexadecimal digits.")
        return found.astype(np.uint32)

    def _fold(self, block: Block, refuse: Refuse) -> np.ndarray:
        split, fold = self.schema.split, np.zeros(len(block.lines), np.uint8)
        if split.column is not None:
            values = pc.cast(block.values[split.column], pa.string())
            refuse(is_in(values, self._missing), split.column, "The split {} is missing.")
            for number, chosen in ((1, split.validation_values), (2, split.test_values)):
                fold[is_in(values, pa.array(chosen, pa.string()))] = number
        return fold


def is_in(values: pa.Array, chosen: pa.Array) -> np.ndarray:
    """Which of the values (N,) are among the chosen: bool (N,)."""
    return pc.is_in(values, chosen).to_numpy(zero_copy_only=False)


def _too_far(values: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Which of the values (N,) would leave the others of their block without differences."""
    known = values[usable & np.isfinite(values)]
    if len(known) == 0:
        return np.zeros(len(values), dtype=bool)
    low, high = np.quantile(known, 0.01, method="higher"), np.quantile(known, 0.99, method="lower")
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(values - np.median(known)) > TOO_FAR * (high - low)
    return (np.abs(values) > LARGEST) | (far & (high > low))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
