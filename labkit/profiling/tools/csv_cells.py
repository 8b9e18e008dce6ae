"""Rows and numbers of the tables that NVIDIA's tools write as CSV."""

from __future__ import annotations

import csv
import re
from os import PathLike

from labkit.errors import DataError

_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
REWRITE = "The file was cut off or edited: let the tool write it once more."


def split_row(text: str, file: str | PathLike, line: int) -> list[str]:
    """The cells of one line.

    Raises:
        DataError: a quoted cell does not end.
    """
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error as error:
        raise DataError(f"this row cannot be read ({error}).", fix=REWRITE, file=file, line=line) from error


def number(text: str, file: str | PathLike, line: int, field: str) -> float:
    """A number, with or without commas between its thousands.

    Raises:
        DataError: it is none, or one with a decimal comma.

    >>> number("1,234,567.5", "stats.csv", 3, "Total Time (ns)")
    1234567.5
    """
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return float(text)
    if _GROUPED.fullmatch(text):
        return float(text.replace(",", ""))
    fix = REWRITE
    if "," in text:
        fix = "It seems to have a decimal comma: run the tool with LC_ALL=C in its environment."
    raise DataError(f"{text!r} is not a number.", fix=fix, file=file, line=line, field=field)
