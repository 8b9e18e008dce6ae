"""From a block of Criteo lines to arrays, and from a line that does not parse to what is wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from labkit.compiled import why_not_compiled
from labkit.data.bad_rows import BadRows
from labkit.data.clicks.criteo import CATEGORICAL_NAMES, DENSE_NAMES, FIELDS, HEX_DIGITS, Lines
from labkit.data.clicks.generate import signed_log
from labkit.errors import DataError

# What the fast path accepts, one field at a time. 18 digits always fit 64 bits.
INTEGER, HEXADECIMAL = rb"(?:-?[0-9]{1,18})?", rb"[0-9a-fA-F]{0,8}"
GOOD_LINE = re.compile(
    rb"[01](?:\t" + INTEGER + rb"){%d}(?:\t" % len(DENSE_NAMES) + HEXADECIMAL + rb"){%d}\r?" % len(CATEGORICAL_NAMES)
)

_READ = pa_csv.ReadOptions(column_names=FIELDS, block_size=2**30, use_threads=False)
_PARSE = pa_csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False)
_CONVERT = pa_csv.ConvertOptions(
    column_types={
        "label": pa.int64(),
        **dict.fromkeys(DENSE_NAMES, pa.int64()),
        # equal texts become one entry of a dictionary, so each is looked at once
        **dict.fromkeys(CATEGORICAL_NAMES, pa.dictionary(pa.int32(), pa.binary())),
    },
    null_values=[""],
    strings_can_be_null=False,
)


class NotCriteo(ValueError):
    """Some line of the block is not a Criteo row."""


@dataclass(frozen=True)
class CriteoRows:
    """Parsed rows (n)."""

    label: np.ndarray
    """uint8 (n,)"""
    dense: np.ndarray
    """float32 (n, 13): signed logarithms, NaN where missing"""
    places: np.ndarray
    """int32 (n, 26): where in `values` a category stands"""
    values: list[np.ndarray]
    """uint32 (U,) of each feature: the hexadecimal values; missing is 0, as in the reference DLRM. One that was written
    in two ways stands here twice."""

    @property
    def categorical(self) -> np.ndarray:
        """uint32 (n, 26): the value of each category."""
        return np.stack([values[place] for values, place in zip(self.values, self.places.T, strict=True)], axis=1)


def read_block(lines: Lines, *, file: Path, bad: BadRows) -> CriteoRows | None:
    """Parse lines; bad ones go to `bad`. None if no good line is left.

    Raises:
        DataError: a line is bad and `bad` says to stop.
    """
    try:
        return parse(lines.text, lines.count)
    except (pa.ArrowInvalid, NotCriteo):
        good = []
        for number, line in enumerate(lines.text.removesuffix(b"\n").split(b"\n"), lines.first):
            if GOOD_LINE.fullmatch(line):
                good.append(line)
            else:
                field, reason = fault_of(line)
                bad.add(DataError(reason, fix="Mend the row.", file=file, line=number, field=field))
        return parse(b"\n".join(good), len(good)) if good else None


def parse(text: bytes, count: int) -> CriteoRows:
    """Parse `count` lines that are all good, with the compiled reader where that can be.

    Raises:
        NotCriteo, pyarrow.ArrowInvalid: some line is not.
    """
    if why_not_compiled() is None:
        from labkit.data.clicks.criteo_kernel import read_lines

        ended = text if text.endswith(b"\n") else text + b"\n"
        found = read_lines(ended, count, len(DENSE_NAMES), len(CATEGORICAL_NAMES))
        if found is not None:
            return CriteoRows(*found)
    return parse_with_pyarrow(text)


def parse_with_pyarrow(text: bytes) -> CriteoRows:
    """Parse lines that are all good.

    Raises:
        NotCriteo, pyarrow.ArrowInvalid: some line is not.
    """
    table = pa_csv.read_csv(pa.BufferReader(text), _READ, _PARSE, _CONVERT).combine_chunks()
    label = table["label"].to_numpy()
    if not np.isin(label, (0, 1)).all():
        raise NotCriteo
    dense = np.empty((len(label), len(DENSE_NAMES)), dtype=np.float32)
    for index, name in enumerate(DENSE_NAMES):
        dense[:, index] = signed_log(table[name].to_numpy().astype(np.float64))
    places = np.empty((len(label), len(CATEGORICAL_NAMES)), dtype=np.int32)
    values = []
    for index, name in enumerate(CATEGORICAL_NAMES):
        column = table[name].chunk(0)
        places[:, index] = column.indices.to_numpy()
        values.append(parse_hexadecimal(column.dictionary))
    return CriteoRows(label.astype(np.uint8), dense, places, values)


def parse_hexadecimal(strings: pa.BinaryArray) -> np.ndarray:
    """The numbers uint32 (n,) that up to 8 hexadecimal digits mean; an empty string is 0."""
    offsets = np.frombuffer(strings.buffers()[1], dtype=np.int32)[strings.offset :][: len(strings) + 1]
    data = np.frombuffer(strings.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    if lengths.max(initial=0) > 8:
        raise NotCriteo
    digits = np.zeros((len(strings), 8), dtype=np.uint8)  # (n, 8), right-aligned
    # Row by row, the filled places are in the order of the characters in the buffer.
    digits[np.arange(8) >= 8 - lengths[:, None]] = HEX_DIGITS[data]
    if (digits == 255).any():
        raise NotCriteo
    return (digits[:, ::2] << 4 | digits[:, 1::2]).view(">u4").ravel().astype(np.uint32)


def fault_of(line: bytes) -> tuple[str | None, str]:
    """(field, reason) of a line that is not a Criteo row."""
    values = line.removesuffix(b"\r").split(b"\t")
    if len(values) != len(FIELDS):
        found = "is empty" if not line.strip() else f"has {len(values)} tab-separated fields"
        return None, f"The line {found}; a Criteo row has {len(FIELDS)}."
    if values[0] not in (b"0", b"1"):
        return "label", f"The label {_shown(values[0])} is neither 0 nor 1."
    for name, value in zip(DENSE_NAMES, values[1:], strict=False):
        if not re.fullmatch(INTEGER, value):
            return name, f"The value {_shown(value)} is not an integer of up to 18 digits."
    for name, value in zip(CATEGORICAL_NAMES, values[14:], strict=True):
        if not re.fullmatch(HEXADECIMAL, value):
            return name, f"The category {_shown(value)} is not a number of up to 8 hexadecimal digits."
    raise AssertionError(line)


def _shown(value: bytes) -> str:
    text = value[:40].decode("utf-8", "backslashreplace")
    return repr(text + "…" if len(value) > 40 else text)
