"""The compiled reader of Criteo lines. Importing this needs numba.

It reads what `criteo_rows.parse_with_pyarrow` reads, several times as fast, and gives up at the first byte that it does
not expect: what a line with such a byte means, or why it is bad, pyarrow and the rule for a line then say.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from labkit.data.clicks.criteo import HEX_DIGITS
from labkit.data.clicks.generate import signed_log

_TAB, _NEWLINE, _RETURN, _MINUS, _ZERO = (np.uint8(ord(character)) for character in "\t\n\r-0")
_LOGS = signed_log(np.arange(4096.0)).astype(np.float32)
"""Most counts are small."""


def read_lines(
    text: bytes, rows: int, dense_dim: int, num_tables: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]] | None:
    """Read `rows` lines, each with its line end.

    Returns:
        label uint8 (n,), dense float32 (n, D), places int32 (n, F) and values uint32 (U,) of each feature, as in
        `CriteoRows`; None if a byte is not what it should be.
    """
    label = np.empty(rows, np.uint8)
    dense = np.empty((rows, dense_dim), np.float32)
    places = np.empty((rows, num_tables), np.int32)
    values = np.empty((num_tables, rows), np.uint32)
    bits = max(4, int(2 * rows - 1).bit_length())  # at most half of the slots are taken
    slots = np.full((num_tables, 1 << bits), -1, np.int32)
    counts = np.zeros(num_tables, np.int64)
    if not _read(np.frombuffer(text, np.uint8), label, dense, places, values, slots, bits, counts):
        return None
    return label, dense, places, [row[:count].copy() for row, count in zip(values, counts, strict=True)]


@njit(cache=True, nogil=True, error_model="numpy")
def _read(text, label, dense, places, values, slots, bits, counts):
    """Fill the arrays; return whether all bytes were as expected.

    The line end that comes last is the first after that of all other rows, so no loop can run past it.
    """
    at = 0
    for row in range(len(label)):
        if text[at] - _ZERO > 1 or text[at + 1] != _TAB:
            return False
        label[row] = text[at] - _ZERO
        at += 2
        for column in range(dense.shape[1]):
            negative = text[at] == _MINUS
            at += negative
            start, number = at, np.int64(0)
            while text[at] - _ZERO < 10:
                number = number * 10 + np.int64(text[at] - _ZERO)
                at += 1
            if text[at] != _TAB or at - start > 18 or (negative and at == start):
                return False
            if at == start:
                dense[row, column] = np.nan
            else:
                size = _LOGS[number] if number < len(_LOGS) else np.float32(np.log1p(np.float64(number)))
                dense[row, column] = -size if negative and number else size
            at += 1
        for column in range(places.shape[1]):
            start, number = at, np.uint32(0)
            while HEX_DIGITS[text[at]] < 16:
                number = (number << np.uint32(4)) | np.uint32(HEX_DIGITS[text[at]])
                at += 1
            if at - start > 8:
                return False
            if column + 1 < places.shape[1]:
                if text[at] != _TAB:
                    return False
                at += 1
            places[row, column] = _place(number, values[column], slots[column], bits, counts, column)
        if text[at] == _RETURN:
            at += 1
        if text[at] != _NEWLINE:
            return False
        at += 1
    return True


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _place(value, values, slots, bits, counts, column):
    """The place of a value among those seen, by open addressing (Knuth, TAOCP 3, §6.4; multiplicative hashing)."""
    slot = (np.uint32(value * np.uint32(2654435769)) >> np.uint32(32 - bits)) & np.uint32((1 << bits) - 1)
    while True:
        place = slots[slot]
        if place < 0:
            place = np.int32(counts[column])
            slots[slot], values[place] = place, value
            counts[column] += 1
            return place
        if values[place] == value:
            return place
        slot = (slot + np.uint32(1)) & np.uint32((1 << bits) - 1)
