"""Bytes in words and back."""

from __future__ import annotations

import re

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def size_text(count: float) -> str:
    """A number of bytes in three figures or so.

    >>> size_text(1536 * 2**20), size_text(300 * 2**20), size_text(2000), size_text(10**18)
    ('1.5 GiB', '300 MiB', '2 KiB', '931322575 GiB')
    """
    if count >= 2**30:
        gib = count / 2**30
        return f"{gib:.3g} GiB" if gib < 1000 else f"{gib:.0f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def size_value(count: float) -> str:
    """The same as a value that a command line takes, and `parse_size` reads.

    >>> size_value(2**31)
    '2GiB'
    """
    return size_text(count).replace(" ", "")


def parse_size(text: str) -> int | None:
    """Bytes of "2GiB", "500 MB" or "4096"; None where it is none of that.

    >>> parse_size("2GiB"), parse_size("0.5 kb"), parse_size("lots")
    (2147483648, 500, None)
    """
    amount = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text)
    unit = UNITS.get(amount[2].upper()) if amount else None
    return int(float(amount[1]) * unit) if unit else None
