"""A trace as frames: its events, and its allocations of memory, with what no frame has."""

import ast
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labkit.profiling.trace_file import TraceError, stream_events
from labkit.profiling.work import Inputs

ON_THE_HOST = ("cpu_op", "user_annotation")
"""Kineto's categories of what nests on a thread of the host: operators and annotations."""
ON_THE_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CUDA_CALLS = ("cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime",
              "privateuse1_driver")  # fmt: skip
"""Categories of the host's calls that launch kernels and wait for them, on any device; some code calls drivers."""
OLDER = {"operator": "cpu_op", "kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset",
         "runtime": "cuda_runtime"}  # fmt: skip
"""Categories of today by those that torch 1.8 to 1.11 wrote, in small letters"""
OLDER_NOTES = ("ProfilerStep#", "enumerate(DataLoader)", "Optimizer.")
"""Beginnings of the names of annotations, which these versions called operators"""
INPUTS = (("Input Dims", "Input dims"), ("Input type",), ("Concrete Inputs",))
"""Kineto's names of the fields of `Inputs`; the second one is of torch 1.8"""
OTHER_EVENTS = {"C": "counters"} | dict.fromkeys("stf", "flow arrows") | dict.fromkeys("iIR", "marks")
"""Events that take no time on a thread, by the letter of their type"""
MEMORY = "[memory]"
"""Name of Kineto's events for memory that was taken or given back."""
LARGEST = 2.0**62
"""Upper bound of plausible numbers: microseconds since 1970 and memory addresses are far below it."""


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
    unused: dict[str, int] = field(default_factory=dict)
    """Number of events that no table or figure uses, by what they are: their category or type, or their damage"""
    may_lack_steps: bool = False
    """Whether the whole recording counts as one step if the profiler noted none"""

    @property
    def unused_text(self) -> str:
        """`unused` as a sentence; empty if every event is used."""
        parts = ", ".join(f"{count:,} {what}" for what, count in self.unused.items())
        return parts and f"Events of {self.path.name} that are not used here: {parts}."

    @property
    def is_of_gpu(self) -> bool:
        """Whether a device ran kernels or copies."""
        return bool(self.events["category"].isin(ON_THE_DEVICE).any())


def read_trace(path: Path | str) -> Trace:
    """Read a trace of torch.profiler, or of another tool that writes Chrome's format.

    Memory holds the columns of the events only, however large the file is. A damaged event costs only itself.

    Raises:
        TraceError: the file is not a trace, is cut off, or has no event that takes time.
        OSError: it cannot be read.
    """
    unused: Counter[str] = Counter()
    columns = _Columns(unused)
    for event in stream_events(path, unused):
        try:
            columns.take(event)
        except ValueError as error:
            unused[f"damaged ({error})"] += 1
    unused["begun and not ended"] += sum(map(len, columns.open.values()))
    if not columns.numbers["start_us"]:
        saw = Trace(Path(path), pd.DataFrame(), pd.DataFrame(), unused=dict(+unused)).unused_text
        raise TraceError(
            f"{path}: this trace has no event that takes time. The profiler's schedule may never have reached its "
            f"active steps: call its step() once per step, for all steps that it waits, warms up and records. {saw}"
        )
    events, allocations, began_us = columns.frames()
    for category, count in events["category"].value_counts().items():
        if category not in (*ON_THE_HOST, *ON_THE_DEVICE, *CUDA_CALLS):
            unused[str(category) or "without a category"] += int(count)
    return Trace(Path(path), events, allocations, began_us, dict((+unused).most_common()))


class _Columns:
    """Collects events as columns; each text and each set of inputs is kept once."""

    def __init__(self, unused: Counter[str]):
        self.unused = unused
        self.numbers = {"start_us": array("d"), "duration_us": array("d"), "correlation": array("q")}
        self.known: dict[str, dict[str, int]] = {column: {} for column in ("name", "category", "lane", "inputs")}
        self.codes = {column: array("i") for column in self.known}
        self.inputs: list[Inputs] = []
        self.allocated: list[tuple[float, int, int]] = []
        self._values: dict[str, Any] = {}
        self.open: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Add an event, or count it as unused; a ValueError with the damage of one that cannot be read."""
        kind = event.get("ph")
        if event.get("name") == MEMORY and kind in ("i", "I", "X"):  # torch's exporter in Python writes spans
            size, device = _number(_args(event), "Bytes", None, int), _number(_args(event), "Device Id", -1, int)
            self.allocated.append((_number(event, "ts"), size, device))
        elif kind == "X":
            self._add(event, _number(event, "dur"))
        elif kind == "B":  # other tools write begin and end
            self.open.setdefault(_thread(event), []).append(event)
        elif kind == "E" and (begun := self.open.get(_thread(event))):
            first = begun.pop()
            self._add(first, _number(event, "ts") - _number(first, "ts"))
        elif kind != "M":  # names of processes and threads
            self.unused["ended and not begun" if kind == "E" else OTHER_EVENTS.get(str(kind), f"of type {kind}")] += 1

    def _add(self, event: dict[str, Any], duration_us: float) -> None:
        if duration_us < 0:
            raise ValueError("negative duration")
        args = _args(event)
        start_us, correlation = _number(event, "ts"), -1
        try:
            correlation = _number(args, "correlation", -1, int)
        except ValueError as error:  # the event counts nevertheless
            self.unused[f"correlations ({error})"] += 1
        numbers: tuple[Any, ...] = (start_us, duration_us, correlation)
        for column, number in zip(self.numbers.values(), numbers, strict=True):
            column.append(number)
        name, category = str(event.get("name", "")), str(event.get("cat", ""))
        category = OLDER.get(category.lower(), category)
        if category == "cpu_op" and name.startswith(OLDER_NOTES):  # those of Ascend's torch_npu as well
            category = "user_annotation"
        given = [next((args[name] for name in names if name in args), None) for names in INPUTS]
        texts = name, category, "/".join(_thread(event)), repr(given)
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
        parent, self_us = nest(nests)
        events["parent"], events["self_us"] = -1, events["duration_us"]
        events.loc[nests.index, "parent"] = np.where(parent >= 0, nests.index.to_numpy()[parent], -1)
        events.loc[nests.index, "self_us"] = self_us
        return events, allocations, float(first_us)


def nest(events: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Parents and self times of events that enclose each other, from their lane, start_us and duration_us.

    Returns:
        parent: (N,) the index of the event that directly encloses each one on its lane, or −1.
        self_us: (N,) its time without that of its children.

    An event that begins within another one and ends after it counts as its child: clocks of low resolution do that.

    >>> times = {"start_us": [0.0, 1.0, 5.0], "duration_us": [10.0, 3.0, 2.0]}
    >>> parent, own = nest(pd.DataFrame({"lane": pd.Categorical(["a"] * 3)} | times))
    >>> parent.tolist(), own.tolist()
    ([-1, 0, 0], [5.0, 3.0, 2.0])
    """
    columns = (events["lane"].cat.codes, events["start_us"], events["duration_us"])
    lane, start_us, duration_us = (column.to_numpy() for column in columns)
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


def _number(of: dict[str, Any], field: str, default: float | None = None, kind: type = float) -> Any:
    """A field's number; other tools write some numbers as text."""
    value = of.get(field, default)
    try:
        if abs(number := kind(value)) < LARGEST:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"no number in {field}")


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
