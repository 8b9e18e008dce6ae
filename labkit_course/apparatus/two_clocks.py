"""The walk over a step's calls, Lin et al., arXiv 2201.07821, algorithm 1: when its host and its streams are done.

Of several ranks, a collective begins on each when that rank comes to it, and moves its data once the last has come.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from labkit_course.apparatus.recorded_step import RecordedStep

if TYPE_CHECKING:
    import pandas as pd

BETWEEN_KERNELS_US = 1.0
"""On a stream, as the paper has it"""
KINDS = ("T1", "T2", "T3", "T4", "T5")


@dataclass(frozen=True)
class Walked:
    """When things happen, in microseconds since the step's start."""

    host_us: float
    """The host is done"""
    starts_us: tuple[float, ...]
    """Of each kernel"""
    ends_us: tuple[float, ...]
    calls_us: tuple[tuple[float, float], ...]
    """Of each of the host's calls when it begins and ends, waiting left out"""

    @property
    def device_us(self) -> float:
        """All streams are done."""
        return max(self.ends_us, default=0.0)

    @property
    def step_us(self) -> float:
        return max(self.host_us, self.device_us)


def walk(step: RecordedStep, *, without: Collection[str] = (), ends_us: Mapping[int, float] | None = None) -> Walked:
    """Walk over one step.

    Args:
        step: its calls, in order, and its kernels.
        without: overheads, of T1 to T5, that take no time.
        ends_us: when each collective ends; by default each takes what this rank measured, waiting included.
    """
    host_us, starts, ends, calls = 0.0, [], [], []
    stream_ends: dict[str, float] = {}
    for call in step.calls:
        begins_us, host_us = host_us, host_us + (0.0 if call.kind in without else call.us)
        calls.append((begins_us, host_us))
        if call.launches is not None:
            kernel = step.kernels[call.launches]
            free_us = stream_ends.get(kernel.stream, -BETWEEN_KERNELS_US) + BETWEEN_KERNELS_US
            start_us = max([host_us, free_us, *(ends[other] for other in kernel.after)])
            end_us = start_us + kernel.duration_us
            if ends_us is not None and kernel.collective is not None:
                end_us = max(start_us, ends_us.get(kernel.collective, start_us))
            starts.append(start_us)
            ends.append(end_us)
            stream_ends[kernel.stream] = end_us
        if call.waits_for is not None:
            host_us = max(host_us, ends[call.waits_for])
    return Walked(host_us, tuple(starts), tuple(ends), tuple(calls))


def walk_timeline(step: RecordedStep, *, without: Collection[str] = ()) -> pd.DataFrame:
    """The host and each stream along time.

    Returns:
        Columns lane ("thread of the host", "GPU stream 7"), kind ("T1" to "T5", "kernel", "collective"), name,
        start_us, duration_us; what takes no time is left out.
    """
    import pandas as pd

    walked = walk(step, without=without)
    rows = [
        ("thread of the host", call.kind, call.operator, begins, ends - begins)
        for call, (begins, ends) in zip(step.calls, walked.calls_us, strict=True)
    ]
    for kernel, starts, ends in zip(step.kernels, walked.starts_us, walked.ends_us, strict=True):
        kind = "kernel" if kernel.collective is None else "collective"
        rows.append((f"GPU stream {kernel.stream.rpartition('/')[2]}", kind, kernel.name, starts, ends - starts))
    frame = pd.DataFrame(rows, columns=["lane", "kind", "name", "start_us", "duration_us"])
    return frame[frame["duration_us"] > 0].reset_index(drop=True)


def transfers_us(steps: Sequence[RecordedStep]) -> dict[int, float]:
    """What each collective takes once all ranks have come to it, by its number: from the last start to the last end."""
    found: dict[int, list[tuple[float, float]]] = {}
    for step in steps:
        for kernel in step.kernels:
            if kernel.collective is not None:
                found.setdefault(kernel.collective, []).append((kernel.start_us, kernel.start_us + kernel.duration_us))
    return {number: max(e for _, e in spans) - max(s for s, _ in spans) for number, spans in found.items()}


def begin_together(steps: Sequence[RecordedStep]) -> list[RecordedStep]:
    """The ranks' steps as if all had begun at once; in a recording, the earliest wait for the latest."""
    return [replace(step, start_us=0.0) for step in steps]


def walk_together(
    steps: Sequence[RecordedStep], transfers: Mapping[int, float], *, without: Collection[str] = ()
) -> list[Walked]:
    """Walk over the same step of all ranks, which begin when they did; `transfers` is of `transfers_us`."""
    first_us = min(step.start_us for step in steps)
    offsets = [step.start_us - first_us for step in steps]
    ends: dict[int, float] = {}
    while True:  # each collective waits for those before it alone, so this ends
        walks = [
            walk(step, without=without, ends_us={number: end - offset for number, end in ends.items()})
            for step, offset in zip(steps, offsets, strict=True)
        ]
        arrived: dict[int, float] = {}
        for step, walked, offset in zip(steps, walks, offsets, strict=True):
            for kernel, start_us in zip(step.kernels, walked.starts_us, strict=True):
                if kernel.collective is not None:
                    arrived[kernel.collective] = max(arrived.get(kernel.collective, 0.0), offset + start_us)
        now = {number: start_us + transfers[number] for number, start_us in arrived.items()}
        if now == ends:
            return walks
        ends = now
