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
INPUTS = {"shapes": "Input Dims", "types": "Input type", "values": "Concrete Inputs"}
"""Our columns of what an operator was called with, and Kineto's names."""
MEMORY = "[memory]"
"""The name of Kineto's events that say that memory was taken or given back."""
STEP = "ProfilerStep#"
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
    """One row for memory taken (bytes above zero) or given back: time_us, bytes, address, device (−1: the host),
    total_bytes (that the allocator then holds); empty where the profiler did not write down memory"""

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Operators of the host by self time.

        A call that does nothing but call an operator of the same name is one call with it, as in torch's own table.

        Returns:
            Columns operator, calls, total_us, self_us, share (of the host's self time), dearest first
        """
        on_host = self.events[self.events["category"].isin(ON_THE_HOST)]
        called = on_host[on_host["category"] == "cpu_op"]
        return _by_name(called, "operator", on_host["self_us"].sum(), repeated=self._passed_on().loc[called.index])

    def _passed_on(self) -> pd.Series:
        """Whether each event is the only child of one of the same name."""
        import pandas as pd

        parent, name = self.events["parent"].to_numpy(), self.events["name"].cat.codes.to_numpy()
        children = np.bincount(parent[parent >= 0], minlength=len(parent))
        # where there is no parent, its row −1 is the last one, and the first condition false
        return pd.Series((parent >= 0) & (name == name[parent]) & (children[parent] == 1), self.events.index)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """What ran on the device, by time.

        Returns:
            Columns kernel, calls, total_us, self_us (the same: they do not nest), share; empty without a device.
        """
        on_device = self.events[self.events["category"].isin(ON_THE_DEVICE)]
        return _by_name(on_device, "kernel", on_device["duration_us"].sum())


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
    if not columns.start:
        raise TraceError(
            f"{path}: this trace has no event that takes time. One whose schedule never came to its active steps "
            "writes such a one: call its step() once a step, for as many steps as it waits, warms up and records."
        )
    return Trace(Path(path), *columns.frames())


class _Texts:
    """A column of texts, each of which is kept once."""

    def __init__(self):
        self.codes, self.known = array("i"), {}

    def add(self, text: str) -> None:
        self.codes.append(self.known.setdefault(text, len(self.known)))

    def ordered(self, order: np.ndarray) -> pd.Categorical:
        import pandas as pd

        return pd.Categorical.from_codes(np.asarray(self.codes)[order], categories=list(self.known))


class _Columns:
    """Collects events as columns of numbers and texts."""

    def __init__(self):
        self.start, self.duration, self.correlation = array("d"), array("d"), array("q")
        self.texts = {column: _Texts() for column in ("name", "category", "lane", *INPUTS)}
        self.allocated: list[tuple[float, int, int, int, int]] = []
        self._open: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Add an event.

        Raises:
            ValueError: a number in it is none.
        """
        kind = event.get("ph")
        if kind == "X":
            self._add(event, _number(event, "dur", 0.0))
        elif kind == "B":  # other tools write begin and end
            self._open.setdefault(_thread(event), []).append(event)
        elif kind == "E" and (begun := self._open.get(_thread(event))):
            first = begun.pop()
            self._add(first, _number(event, "ts") - _number(first, "ts"))
        elif kind == "i" and event.get("name") == MEMORY:
            fields = {"Bytes": None, "Addr": 0, "Device Id": -1, "Total Allocated": 0}
            numbers = (_number(_args(event), field, default, int) for field, default in fields.items())
            self.allocated.append((_number(event, "ts"), *numbers))

    def _add(self, event: dict[str, Any], duration_us: float) -> None:
        if duration_us < 0:
            raise ValueError(f"it takes {duration_us} µs, and it cannot end before it begins")
        args = _args(event)
        self.start.append(_number(event, "ts"))
        self.duration.append(duration_us)
        self.correlation.append(_number(args, "correlation", -1, int))
        self.texts["name"].add(str(event.get("name", "")))
        self.texts["category"].add(str(event.get("cat", "")))
        self.texts["lane"].add("/".join(_thread(event)))
        for column, field in INPUTS.items():
            value, texts = args.get(field), self.texts[column]
            text = "" if value is None else repr(value)
            texts.add(text if text in texts.known or _is_plain(value) else "")

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        import pandas as pd

        order = np.argsort(self.start, kind="stable")
        texts = {column: known.ordered(order) for column, known in self.texts.items()}
        start, duration = (np.asarray(values)[order] for values in (self.start, self.duration))
        on_host = texts["category"].isin(ON_THE_HOST)
        nests = np.flatnonzero(on_host) if on_host.any() else np.arange(len(start))
        parent, self_us = np.full(len(start), -1, dtype=np.int64), duration.copy()
        of_host, self_us[nests] = nest(texts["lane"].codes[nests], start[nests], duration[nests])
        parent[nests] = np.where(of_host >= 0, nests[of_host], -1)
        events = pd.DataFrame(
            {
                "start_us": start - start[0],
                "duration_us": duration,
                "parent": parent,
                "self_us": self_us,
                "correlation": np.asarray(self.correlation)[order],
                **texts,
            }
        )
        columns = ["time_us", "bytes", "address", "device", "total_bytes"]
        allocations = pd.DataFrame(self.allocated, columns=columns).sort_values("time_us", kind="stable")
        allocations["time_us"] -= start[0]
        return events, allocations.reset_index(drop=True)


def are_steps(events: pd.DataFrame) -> pd.Series:
    """Which events are named as the profiler names a whole step."""
    return events["name"].astype(str).str.fullmatch(STEP + r"\d{1,9}")


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


def _by_name(events: pd.DataFrame, heading: str, whole_us: float, repeated: pd.Series | None = None) -> pd.DataFrame:
    """Sums by name; of what is `repeated` only the self time counts."""
    once = events if repeated is None else events[~repeated]
    found = once.groupby("name", observed=True).agg(calls=("name", "size"), total_us=("duration_us", "sum"))
    found["self_us"] = events.groupby("name", observed=True)["self_us"].sum()
    found = found.rename_axis(heading).reset_index()
    found[heading] = found[heading].astype(str)
    found["share"] = found["self_us"] / whole_us if whole_us else 0.0
    return found.sort_values("self_us", ascending=False, ignore_index=True)
