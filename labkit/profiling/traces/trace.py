"""A trace as frames: its events, and what adds up from them by operator and kernel, and over time by memory."""

from __future__ import annotations

import reprlib
from array import array
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.profiling.traces.nesting import nest
from labkit.profiling.traces.trace_file import TraceError, stream_events

if TYPE_CHECKING:
    import pandas as pd

ON_THE_HOST = ("cpu_op", "user_annotation")
"""Kineto's categories of what runs on a thread of the host, operators and annotations, which nest."""
ON_THE_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CUDA_CALLS = ("cuda_runtime", "cuda_driver")
"""Of the host's calls, which launch kernels and wait for them; some code calls the driver without the runtime."""
INPUTS = {"shapes": "Input Dims", "types": "Input type", "values": "Concrete Inputs"}
"""Our columns of what an operator was called with, and Kineto's names."""
MEMORY = "[memory]"
"""The name of Kineto's events that say that memory was taken or given back."""
LARGEST = 2.0**62
"""Of numbers: microseconds since 1970, and addresses in memory, are far below this."""


@dataclass(frozen=True)
class Trace:
    """What a profiler wrote down."""

    path: Path
    events: pd.DataFrame
    """One row an event, in order of time: name, category, lane (its thread or stream), start_us (since the first one),
    duration_us, parent (row of the event that encloses it on its thread, −1 without one), self_us (without its
    children), correlation (joins a kernel with the call that launched it, −1 without one), shapes, types and
    values (of an operator's inputs, as lists in texts; empty where the profiler did not write them down)"""
    allocations: pd.DataFrame
    """One row for memory taken (bytes above zero) or given back: time_us, bytes, address, device (−1: the host);
    empty where the profiler did not write down memory"""
    began_us: float = 0.0
    """When the first event began, on the profiler's clock, which the ranks of a machine share"""

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Operators of the host: columns operator, calls, total_us, self_us, share (of the host's), dearest first."""
        on_host = self.events[self.events["category"].isin(ON_THE_HOST)]
        return _by_name(on_host[on_host["category"] == "cpu_op"], "operator", on_host["self_us"].sum())

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """What ran on the device: columns kernel, calls, total_us, self_us (the same), share; empty without one."""
        on_device = self.events[self.events["category"].isin(ON_THE_DEVICE)]
        return _by_name(on_device, "kernel", on_device["duration_us"].sum())


def _by_name(events: pd.DataFrame, heading: str, whole_us: float) -> pd.DataFrame:
    sums = {"calls": ("name", "size"), "total_us": ("duration_us", "sum"), "self_us": ("self_us", "sum")}
    found = events.groupby("name", observed=True).agg(**sums).rename_axis(heading).reset_index()
    found[heading] = found[heading].astype(str)
    found["share"] = found["self_us"] / whole_us if whole_us else 0.0
    return found.sort_values("self_us", ascending=False, ignore_index=True)


def read_trace(path: Path | str) -> Trace:
    """Read a trace of torch.profiler, or of another tool in Chrome's format.

    However large the file, no more is held than the columns of its events.

    Raises:
        TraceError: it is no trace, or a damaged one, or one without a single event that takes time.
        OSError: it cannot be read.
    """
    columns = _Columns()
    for event in stream_events(path):
        try:
            columns.take(event)
        except ValueError as error:
            which = f"{path}, event {reprlib.repr(event.get('name'))} at {reprlib.repr(event.get('ts'))}"
            raise TraceError(f"{which}: {error}: the trace is damaged. Write it once more.") from error
    if not columns.numbers["start_us"]:
        raise TraceError(
            f"{path}: this trace has no event that takes time. One whose schedule never came to its active steps "
            "writes such a one: call its step() once a step, for as many steps as it waits, warms up and records."
        )
    return Trace(Path(path), *columns.frames())


class _Columns:
    """Collects events as columns of numbers and of texts, each of which is kept once."""

    def __init__(self):
        self.numbers = {"start_us": array("d"), "duration_us": array("d"), "correlation": array("q")}
        self.known = {column: {} for column in ("name", "category", "lane", *INPUTS)}
        self.codes = {column: array("i") for column in self.known}
        self.allocated: list[tuple[float, int, int, int]] = []
        self._open: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Add an event; a ValueError where a number in it is none."""
        kind = event.get("ph")
        if kind == "X":
            self._add(event, _number(event, "dur", 0.0))
        elif kind == "B":  # other tools write begin and end
            self._open.setdefault(_thread(event), []).append(event)
        elif kind == "E" and (begun := self._open.get(_thread(event))):
            first = begun.pop()
            self._add(first, _number(event, "ts") - _number(first, "ts"))
        elif kind == "i" and event.get("name") == MEMORY:
            fields = {"Bytes": None, "Addr": 0, "Device Id": -1}
            numbers = (_number(_args(event), field, default, int) for field, default in fields.items())
            self.allocated.append((_number(event, "ts"), *numbers))

    def _add(self, event: dict[str, Any], duration_us: float) -> None:
        if duration_us < 0:
            raise ValueError(f"it takes {duration_us} µs, and it cannot end before it begins")
        args = _args(event)
        numbers = (_number(event, "ts"), duration_us, _number(args, "correlation", -1, int))
        for column, number in zip(self.numbers.values(), numbers, strict=True):
            column.append(number)
        texts = {"name": event.get("name", ""), "category": event.get("cat", ""), "lane": "/".join(_thread(event))}
        for column, field in INPUTS.items():
            value = args.get(field)
            texts[column] = repr(value) if repr(value) in self.known[column] or _is_plain(value) else ""
        for column, text in texts.items():
            known = self.known[column]
            self.codes[column].append(known.setdefault(str(text), len(known)))

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame, float]:
        import pandas as pd

        known = {
            name: pd.Categorical.from_codes(np.asarray(codes), categories=list(self.known[name]))
            for name, codes in self.codes.items()
        }
        numbers = {name: np.asarray(column) for name, column in self.numbers.items()}
        events = pd.DataFrame(numbers | known).sort_values("start_us", kind="stable", ignore_index=True)
        allocations = pd.DataFrame(self.allocated, columns=["time_us", "bytes", "address", "device"])
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


def _number(of: dict[str, Any], field: str, default: float | None = None, kind: type = float) -> float:
    """A field; other tools write some numbers as texts."""
    value = of.get(field, default)
    try:
        if abs(number := kind(value)) < LARGEST:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{field} is {reprlib.repr(value)}, and a number must stand there")


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _thread(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))


def _is_plain(value: Any) -> bool:
    """Whether these are lists of whole numbers and texts, which are read back from their text."""
    return isinstance(value, list) and all(isinstance(each, (int, str)) or _is_plain(each) for each in value)
