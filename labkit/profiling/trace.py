"""A trace as frames: its events, and its allocations of memory, read from a file in Chrome's format, plain or gzipped.

torch.profiler (Kineto) writes that format. While a file is read, only one event is in memory at a time, with a few
megabytes of text around it, so files may be of any size. Source: "Trace Event Format", Chromium project.
"""

import ast
import gzip
import json
import re
import reprlib
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from labkit import UserError
from labkit.profiling.work import Inputs

ON_THE_HOST = ("cpu_op", "user_annotation")
"""Kineto's categories of what nests on a thread of the host: operators and annotations."""
ON_THE_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CUDA_CALLS = ("cuda_runtime", "cuda_driver")
"""Categories of the host's calls that launch kernels and wait for them; some code calls the driver directly."""
INPUTS = ("Input Dims", "Input type", "Concrete Inputs")
"""Kineto's names of the fields of `Inputs`"""
MEMORY = "[memory]"
"""Name of Kineto's events for memory that was taken or given back."""
LARGEST = 2.0**62
"""Upper bound of plausible numbers: microseconds since 1970 and memory addresses are far below it."""
CHUNK = 2**22
"""Number of characters read at once."""
LONGEST_EVENT = 2**25
"""Characters after which an event that has not ended is damaged."""
GZIP_MAGIC = b"\x1f\x8b"
DECODE = json.JSONDecoder().raw_decode
_BETWEEN = re.compile(r"[\s,]*")
_BEGIN = re.compile(r'\[|\{.*?"traceEvents"\s*:\s*\[', re.DOTALL)


class TraceError(UserError):
    """A file that is not a trace, or a damaged one."""


def stream_events(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield a trace's events in the order of the file.

    Both forms of the format are read: an object with `traceEvents`, and a bare list, whose end may be missing.

    Raises:
        TraceError: the file is empty, cut off, damaged, or not a trace; the text names the place and the fix.
        OSError: there is no such file, or it cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        is_zipped = file.read(2) == GZIP_MAGIC
    with (gzip.open if is_zipped else open)(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        window = _Window(path, file)
        may_lack_its_end = window.begin() == "["
        while window.skip():
            if window.next == "]":
                return
            yield window.event()
        if not may_lack_its_end:
            raise window.damaged("the file ends before its list of events does: it was cut off")


class _Window:
    """The part of the text that is in memory."""

    def __init__(self, path: Path, file: IO[str]):
        self._path, self._file = path, file
        self._text, self._at, self._count = "", 0, 0

    @property
    def next(self) -> str:
        return self._text[self._at]

    def begin(self) -> str:
        """Go to the first event, and return the text that begins the list."""
        if not self.skip():
            raise TraceError(f"{self._path}: this trace is empty: stop the profiler before you export the trace.")
        while not (found := _BEGIN.match(self._text, self._at)):
            if self.next not in "[{" or len(self._text) > LONGEST_EVENT or not self._more():
                raise TraceError(
                    f"{self._path}: this is not a trace in Chrome's format: it has no list of traceEvents. Write one "
                    "with export_chrome_trace() of torch.profiler."
                )
        self._at = found.end()
        return found[0]

    def event(self) -> dict[str, Any]:
        while True:
            try:
                event, self._at = DECODE(self._text, self._at)
                break
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > LONGEST_EVENT or not self._more():
                    raise self.damaged(f"no event can be read here, or the file was cut off ({error})") from error
        if not isinstance(event, dict):
            raise self.damaged("this is not an event: events are objects in braces")
        self._count += 1
        return event

    def skip(self) -> bool:
        """Go to what comes next; False at the end of the file."""
        while (at := _BETWEEN.match(self._text, self._at).end()) == len(self._text):
            self._at = at
            if not self._more():
                return False
        self._at = at
        return True

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        try:
            chunk = self._file.read(CHUNK)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.damaged(f"its compression is damaged or cut off ({error})") from error
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def damaged(self, what: str) -> TraceError:
        return TraceError(
            f"{self._path}, after {self._count:,} events: {what}. Record the trace again; if the disk was full, free "
            "some space first."
        )


@dataclass(frozen=True)
class Trace:
    """The events that a profiler recorded."""

    path: Path
    events: pd.DataFrame
    """One row per event, in order of time: name, category, lane (thread or stream), start_us (since the first event),
    duration_us, parent (row of the enclosing event on the same thread, or −1), self_us (without children),
    correlation (joins a kernel with the call that launched it, or −1), inputs (`Inputs`; empty if not recorded)"""
    allocations: pd.DataFrame
    """One row per allocation (bytes above zero) or release: time_us, bytes, device (−1: the host); empty if not
    recorded"""
    began_us: float = 0.0
    """Start of the first event on the profiler's clock, which all ranks of a machine share"""

    @property
    def is_of_gpu(self) -> bool:
        """Whether a device ran kernels or copies."""
        return bool(self.events["category"].isin(ON_THE_DEVICE).any())


def read_trace(path: Path | str) -> Trace:
    """Read a trace of torch.profiler, or of another tool that writes Chrome's format.

    Memory holds the columns of the events only, however large the file is.

    Raises:
        TraceError: the file is not a trace, is damaged, or has no event that takes time.
        OSError: it cannot be read.
    """
    columns = _Columns()
    for event in stream_events(path):
        try:
            columns.take(event)
        except ValueError as error:
            which = f"{path}, event {reprlib.repr(event.get('name'))} at {reprlib.repr(event.get('ts'))}"
            raise TraceError(f"{which}: {error}: the trace is damaged. Record it again.") from error
    if not columns.numbers["start_us"]:
        raise TraceError(
            f"{path}: this trace has no event that takes time. The profiler's schedule may never have reached its "
            "active steps: call its step() once per step, for all steps that it waits, warms up and records."
        )
    return Trace(Path(path), *columns.frames())


class _Columns:
    """Collects events as columns; each text and each set of inputs is kept once."""

    def __init__(self):
        self.numbers = {"start_us": array("d"), "duration_us": array("d"), "correlation": array("q")}
        self.known: dict[str, dict[str, int]] = {column: {} for column in ("name", "category", "lane", "inputs")}
        self.codes = {column: array("i") for column in self.known}
        self.inputs: list[Inputs] = []
        self.allocated: list[tuple[float, int, int]] = []
        self._values: dict[str, Any] = {}
        self._open: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Add an event; a ValueError where a number in it is damaged."""
        kind = event.get("ph")
        if kind == "X":
            self._add(event, _number(event, "dur", 0.0))
        elif kind == "B":  # other tools write begin and end
            self._open.setdefault(_thread(event), []).append(event)
        elif kind == "E" and (begun := self._open.get(_thread(event))):
            first = begun.pop()
            self._add(first, _number(event, "ts") - _number(first, "ts"))
        elif kind == "i" and event.get("name") == MEMORY:
            size, device = _number(_args(event), "Bytes", None, int), _number(_args(event), "Device Id", -1, int)
            self.allocated.append((_number(event, "ts"), size, device))

    def _add(self, event: dict[str, Any], duration_us: float) -> None:
        if duration_us < 0:
            raise ValueError(f"it takes {duration_us} µs, and it cannot end before it begins")
        args = _args(event)
        numbers = (_number(event, "ts"), duration_us, _number(args, "correlation", -1, int))
        for column, number in zip(self.numbers.values(), numbers, strict=True):
            column.append(number)
        given = [args.get(field) for field in INPUTS]
        texts = str(event.get("name", "")), str(event.get("cat", "")), "/".join(_thread(event)), repr(given)
        for (column, known), text in zip(self.known.items(), texts, strict=True):
            self.codes[column].append(known.setdefault(text, len(known)))
        if len(self.known["inputs"]) > len(self.inputs):  # seen for the first time
            shapes, types, values = map(_plain, given)
            self.inputs.append(Inputs(shapes, types, tuple(map(self._value, values))))

    def _value(self, text: Any) -> Any:
        """Kineto writes numbers and lists as text: read each text once, here."""
        if text not in self._values:
            try:
                value = _tuples(ast.literal_eval(text))
                hash(value)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                value = str(text)
            self._values[text] = value
        return self._values[text]

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame, float]:
        known = {
            name: pd.Categorical.from_codes(np.asarray(self.codes[name]), categories=list(self.known[name]))
            for name in ("name", "category", "lane")
        }
        # pandas has no categories that are tuples: an object column refers to those that are kept once
        inputs = np.fromiter(self.inputs, dtype=object)[np.asarray(self.codes["inputs"])]
        numbers = {name: np.asarray(column) for name, column in self.numbers.items()}
        events = pd.DataFrame(numbers | known | {"inputs": inputs})
        events = events.sort_values("start_us", kind="stable", ignore_index=True)
        allocations = pd.DataFrame(self.allocated, columns=["time_us", "bytes", "device"])
        allocations = allocations.sort_values("time_us", kind="stable", ignore_index=True)
        first_us = events["start_us"].iloc[0]
        events["start_us"] -= first_us
        allocations["time_us"] -= first_us
        on_host = events["category"].isin(ON_THE_HOST)
        nests = events[on_host] if on_host.any() else events  # other tools have no categories
        columns = (nests["lane"].cat.codes, nests["start_us"], nests["duration_us"])
        parent, self_us = nest(*(column.to_numpy() for column in columns))
        events["parent"], events["self_us"] = -1, events["duration_us"]
        events.loc[nests.index, "parent"] = np.where(parent >= 0, nests.index.to_numpy()[parent], -1)
        events.loc[nests.index, "self_us"] = self_us
        return events, allocations, float(first_us)


def nest(lane: np.ndarray, start_us: np.ndarray, duration_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parents and self times of events that enclose each other.

    Args:
        lane: (N,) the thread of each event.
        start_us: (N,) when it began.
        duration_us: (N,) how long it took, including what it called.

    Returns:
        parent: (N,) the index of the event that directly encloses each one on its lane, or −1.
        self_us: (N,) its time without that of its children.

    An event that begins within another one and ends after it counts as its child: clocks of low resolution do that.

    >>> parent, own = nest(np.zeros(3), np.array([0.0, 1.0, 5.0]), np.array([10.0, 3.0, 2.0]))
    >>> parent.tolist(), own.tolist()
    ([-1, 0, 0], [5.0, 3.0, 2.0])
    """
    order = np.lexsort((-duration_us, start_us, lane))
    lanes, starts, ends = (values[order].tolist() for values in (lane, start_us, start_us + duration_us))
    parent = np.full(len(order), -1, dtype=np.int64)
    open_events: list[tuple[int, float]] = []  # (index, end), outermost first
    current = None
    for place, index in enumerate(order.tolist()):
        if lanes[place] != current:
            open_events, current = [], lanes[place]
        start = starts[place]
        while open_events and open_events[-1][1] <= start:
            open_events.pop()
        if open_events:
            parent[index] = open_events[-1][0]
        open_events.append((index, ends[place]))
    self_us = duration_us.astype(np.float64, copy=True)
    has_parent = parent >= 0
    np.subtract.at(self_us, parent[has_parent], duration_us[has_parent])
    return parent, self_us


def _number(of: dict[str, Any], field: str, default: float | None = None, kind: type = float) -> float:
    """A field's number; other tools write some numbers as text."""
    value = of.get(field, default)
    try:
        if abs(number := kind(value)) < LARGEST:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{field} is {reprlib.repr(value)}, and must be a number")


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _thread(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _plain(value: Any) -> tuple:
    """Nested lists of integers and texts as tuples; () for anything else."""
    return _tuples(value) if value and _is_plain(value) else ()


def _is_plain(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, (int, str)) or _is_plain(each) for each in value)
