"""Turn the fields of the columns that were read into numbers, and refuse bad rows."""

import binascii
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labkit import DataError
from labkit.data.clicks.columns import Block, number
from labkit.data.clicks.generate import signed_log
from labkit.data.clicks.schema import TableSchema
from labkit.data.store import BadRows

LARGEST = 2.0**64
"""Largest number accepted: no integer type goes further, and squares of such numbers can still be added up."""
TOO_FAR = 1e9
"""Largest distance of a value from the median of its column, in widths of the column's inner 98 %. Beyond it, those
98 % would hardly differ after standardisation."""
LISTED = 10
"""Most values of a label's column that an error lists"""
Refuse = Callable[[np.ndarray, str, str], None]
"""Called with the rows to refuse, bool (N,), the field and the reason, in which {} stands for the value."""


class RowChecker:
    """Turns blocks of text into numbers and reports the rows that cannot be used to `bad`.

    Criteo's categories are hashes of 32 bits and stay as they are. Other categories are numbered by CRC-32, so that no
    text has to be kept: among a million values about 230 share a number with another, among 10,000 hardly one.
    """

    def __init__(self, schema: TableSchema, bad: BadRows, schema_file: Path | None = None):
        self.schema, self.bad, self.schema_file = schema, bad, schema_file
        self.label_values: dict[str, None] = {}
        """Some values of the label's column"""
        self._seen: set[str] = set()  # classes of the label: positive, negative
        self._missing = pa.array(["", *schema.missing])

    def check(self, path: Path, block: Block) -> tuple[np.ndarray, ...]:
        """The usable rows (N) of a block.

        Returns:
            Label bool (N,); dense float64 (N, D), zeros (N, 1) if the schema names none, as signed logarithms where it
            says so, NaN where missing; categorical uint32 (N, F), a number for each value; fold uint8 (N,), 1 for rows
            that the split column assigns to validation, 2 for test.
        """
        usable, faults = np.ones(len(block.lines), dtype=bool), list(block.faults)

        def refuse(wrong: np.ndarray, name: str, reason: str) -> None:
            for row in np.flatnonzero(wrong & usable).tolist():
                value = f"{block.values[name][row].as_py()!r:.60}"
                faults.append((int(block.lines[row]), name, reason.replace("{}", value, 1)))
                usable[row] = False

        schema = self.schema
        label = self._label(path, block.values[schema.label.column], refuse)
        dense = np.zeros((len(label), max(1, len(schema.dense))))
        for index, name in enumerate(schema.dense):
            dense[:, index] = self._dense(name, block.values[name], usable, refuse)
        categorical = np.empty((len(label), len(schema.categorical)), np.uint32)
        for index, name in enumerate(schema.categorical):
            categorical[:, index] = self._categorical(name, block.values[name], refuse)
        fold = self._fold(block, refuse)
        for line, field, reason in sorted(faults, key=lambda fault: fault[0]):
            self.bad.add(DataError(reason, fix="Correct the row.", file=path, line=line, field=field))
        return label[usable], dense[usable], categorical[usable], fold[usable]

    def _label(self, path: Path, text: pa.Array, refuse: Refuse) -> np.ndarray:
        label, absent = self.schema.label, is_in(text, self._missing)
        if len(self.label_values) < LISTED:
            self.label_values |= dict.fromkeys(pc.unique(text).to_pylist()[:LISTED])
        if label.at_least is not None:
            numbers = _numbers(text, absent)
            refuse(absent | ~np.isfinite(numbers), label.column, "The label {} is not a number.")
            return numbers >= label.at_least
        positive = is_in(text, pa.array(label.positive))
        negative = is_in(text, pa.array(label.negative)) if label.negative else ~positive & ~absent
        self._seen |= {name for name, fits in (("positive", positive), ("negative", negative)) if fits.any()}
        never = [name for name in ("positive", "negative") if name not in self._seen]
        is_strange = not (positive | negative | absent).all()
        if is_strange and len(never) > (self.bad.policy != "error"):  # the schema is wrong, not the rows
            values = ", ".join(map(repr, self.label_values))
            what = f"No row of {path} read so far has one of these values; column {label.column!r} has {values}."
            field, file = ", ".join(f"label.{name}" for name in never), self.schema_file or path
            fix = "Correct the values in the schema; of a number write label.at_least, as in at_least = 4."
            raise DataError(what, fix=fix, file=file, field=field)
        expected = ", ".join(map(repr, [*label.positive, *(label.negative or ["any other value"])]))
        refuse(~positive & ~negative, label.column, f"The label {{}} is not one of {expected}.")
        return positive

    def _dense(self, name: str, values: pa.Array, usable: np.ndarray, refuse: Refuse) -> np.ndarray:
        if pa.types.is_string(values.type):
            absent = is_in(values, self._missing)
            numbers = _numbers(values, absent)
        else:
            # not safe: a float64 keeps only the first 53 bits of a larger integer
            numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            absent = np.isnan(numbers) | np.isin(numbers, [number(text) for text in self.schema.missing])
        reason = (
            "The value {} is not a finite number such as 3.14; if it means missing, list it under `missing` in the "
            "schema; if the column has names, list it under `categorical`."
        )
        refuse(~absent & ~np.isfinite(numbers), name, reason)
        numbers = np.where(absent, np.nan, numbers)
        if self.schema.layout == "criteo":
            wrong = (np.abs(numbers) >= 1e18) | (np.floor(numbers) < numbers)
            refuse(wrong, name, "The value {} is not an integer of up to 18 digits.")
        if name in self.schema.log:
            return signed_log(numbers)
        reason = (
            "The value {} is so large that all others of the column would be the same number after standardisation; if "
            "it is right, list the column under `log` in the schema; if it means missing, list it under `missing`."
        )
        refuse(_too_far(numbers, usable), name, reason)
        return numbers

    def _categorical(self, name: str, values: pa.Array, refuse: Refuse) -> np.ndarray:
        if self.schema.layout == "criteo":
            numbers, wrong = hexadecimal(values)
            refuse(wrong, name, "The category {} is not a number of up to 8 hexadecimal digits.")
            return numbers
        column = values.dictionary_encode()  # each distinct text is converted once
        missing = self.schema.missing  # and "", whose CRC-32 is 0
        numbers = [0 if text in missing else zlib.crc32(text.encode()) for text in column.dictionary.to_pylist()]
        return np.array(numbers, np.uint32)[column.indices.to_numpy()]

    def _fold(self, block: Block, refuse: Refuse) -> np.ndarray:
        split, fold = self.schema.split, np.zeros(len(block.lines), np.uint8)
        if split.column is not None:
            values = pc.cast(block.values[split.column], pa.string())
            refuse(is_in(values, self._missing), split.column, "The split {} is missing.")
            for number, chosen in ((1, split.validation_values), (2, split.test_values)):
                fold[is_in(values, pa.array(chosen, pa.string()))] = number
        return fold


def hexadecimal(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Texts (N,) of up to 8 hexadecimal digits as numbers uint32 (N,), 0 for ""; and which are none, bool (N,)."""
    wrong = np.zeros(len(texts), bool)
    try:
        digits = pc.ascii_lpad(texts, 8, "0").cast(pa.binary()).cast(pa.binary(8)).buffers()[1]
        packed = binascii.unhexlify(memoryview(digits)[: 8 * len(texts)])
    except (pa.ArrowInvalid, binascii.Error):
        wrong = ~pc.match_substring_regex(texts, "^[0-9A-Fa-f]{0,8}$").to_numpy(zero_copy_only=False)
        return hexadecimal(pc.if_else(wrong, "", texts))[0], wrong
    return np.frombuffer(packed, ">u4").astype(np.uint32), wrong


def is_in(values: pa.Array, chosen: pa.Array) -> np.ndarray:
    """Which of the values (N,) are among the chosen: bool (N,)."""
    return pc.is_in(values, chosen).to_numpy(zero_copy_only=False)


def _numbers(values: pa.Array, absent: np.ndarray) -> np.ndarray:
    """Texts (N,) as float64 (N,); NaN where one is absent or not a number."""
    values = pc.if_else(pa.array(absent), None, values)
    try:
        return pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return np.array([number(value or "nan") for value in values.to_pylist()])


def _too_far(values: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Which values (N,) would leave the others of their block without differences: bool (N,)."""
    known = values[usable & np.isfinite(values)]
    if len(known) == 0:
        return np.zeros(len(values), dtype=bool)
    low, high = np.quantile(known, 0.01, method="higher"), np.quantile(known, 0.99, method="lower")
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(values - np.median(known)) > TOO_FAR * (high - low)
    return (np.abs(values) > LARGEST) | (far & (high > low))
