"""Messages of a parameter server: a JSON header and raw arrays, with their lengths before them; nothing is executed.

    magic "LKT1" · header length uint32 · header (JSON, UTF-8) · arrays, one after the other, as the header's "arrays"
    says: [dtype, shape] each

Numbers are little-endian. A file of a checkpoint is one such message.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

MAGIC = b"LKT1"
DTYPES = ("<f4", "<i8")
MOST_HEADER, MOST_BYTES = 2**20, 2**31
"""Of a message on a connection; what says it is larger is none of ours"""


class BadMessage(ConnectionError):
    """What came is no message of this protocol."""


def write_message(write: Callable[[Any], Any], header: dict[str, Any], *arrays: np.ndarray) -> None:
    """Write a header, JSON-able, and float32 or int64 arrays with `write`, a socket's `sendall` or a file's `write`."""
    arrays = tuple(np.ascontiguousarray(array, "<f4" if array.dtype.kind == "f" else "<i8") for array in arrays)
    described = header | {"arrays": [[array.dtype.str, array.shape] for array in arrays]}
    text = json.dumps(described).encode()
    write(MAGIC + struct.pack("<I", len(text)) + text)
    for array in arrays:
        if array.size:
            write(memoryview(array).cast("B"))


def read_message(
    read_into: Callable[[memoryview], int], most_bytes: int = MOST_BYTES
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read a header and its arrays with a socket's `recv_into` or a file's `readinto`.

    Raises:
        EOFError: it ended before the first byte.
        BadMessage: it is none, or was cut short.
    """
    start = _read(read_into, np.empty(8, np.uint8), may_end=True).tobytes()
    length = struct.unpack("<I", start[4:])[0]
    if start[:4] != MAGIC or length > MOST_HEADER:
        raise BadMessage(f"begins with {start!r}, which no message of labkit does")
    try:
        header = json.loads(_read(read_into, np.empty(length, np.uint8)).tobytes())
        shapes = [(str(dtype), tuple(int(size) for size in shape)) for dtype, shape in header.pop("arrays")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMessage(f"has a header that cannot be read: {error}") from None
    sizes = [np.dtype(dtype).itemsize * math.prod(shape) if dtype in DTYPES else -1 for dtype, shape in shapes]
    if any(min(shape, default=0) < 0 for _, shape in shapes) or min(sizes, default=0) < 0 or sum(sizes) > most_bytes:
        raise BadMessage(f"announces arrays that no message has: {str(shapes)[:200]}")
    arrays = [np.empty(shape, dtype) for dtype, shape in shapes]
    for array in arrays:
        if array.size:
            _read(read_into, array)
    return header, arrays


def _read(read_into: Callable[[memoryview], int], array: np.ndarray, *, may_end: bool = False) -> np.ndarray:
    """Fill an array."""
    view, done = memoryview(array).cast("B"), 0
    while done < len(view):
        count = read_into(view[done:])
        if not count:
            if may_end and not done:
                raise EOFError
            raise BadMessage("was cut short")
        done += count
    return array
