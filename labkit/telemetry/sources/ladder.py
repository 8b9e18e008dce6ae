"""The ladder of sources: for each counter the best that answers, null with every reason where none does."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Protocol

from labkit.hardware import JETSON, Device, Nvml, is_jetson
from labkit.telemetry.counters import counter_of
from labkit.telemetry.reading import OnFault, Reading
from labkit.telemetry.sources.dcgm import DcgmCounters
from labkit.telemetry.sources.gpm import GpmCounters
from labkit.telemetry.sources.host import HostCounters, ProcessCounters, RaplCounters
from labkit.telemetry.sources.jetson import JetsonCounters
from labkit.telemetry.sources.nvml import NvmlCounters, gpus_and_slices
from labkit.telemetry.sources.zeus import ZeusCounters, zeus_places


class Counters(Protocol):
    """Something that is read at every sample; ProcessLookupError says that the job which it is read for is gone."""

    def read(self) -> Iterator[Reading]: ...


class Ladder:
    """Sources of the same machine, best first. One that fails never stops the others."""

    def __init__(self, sources: Sequence[Counters]):
        self._sources = sources

    def read(self) -> Iterator[Reading]:
        """Yield one reading a device, scope and counter."""
        missing: dict[tuple[str, str, str], list[Reading]] = {}
        told: set[tuple[str, str, str]] = set()
        for source in self._sources:
            for reading in _readings(source):
                key = reading[:3]  # device, scope, counter
                if reading.value is None:
                    missing.setdefault(key, []).append(reading)
                elif key not in told:
                    told.add(key)
                    yield reading
        for key, readings in missing.items():
            if key not in told:
                yield _joined(readings)

    def close(self) -> None:
        for source in self._sources:
            if hasattr(source, "close"):
                source.close()


def _readings(source: Counters) -> Iterator[Reading]:
    try:
        yield from map(_checked, source.read())
    except ProcessLookupError:
        raise
    except Exception as error:  # whatever a driver or a tool makes of itself, the other sources go on
        name = type(source).__name__
        yield Reading("host", "host", "sources_failed", None, "count", name, f"{name}: {type(error).__name__}: {error}")


def _checked(reading: Reading) -> Reading:
    """The reading in the resolution of its counter, or null where it cannot be."""
    if reading.value is None:
        return reading
    counter = counter_of(reading.scope, reading.counter)
    if not 0 <= reading.value <= counter.ceiling:
        return reading._replace(value=None, note=f"nonsense: {reading.value:g} {reading.unit}")
    steps = round(reading.value / counter.resolution)
    # steps per unit are whole numbers where the resolution is a fraction, and dividing by them rounds once
    rounded = steps * counter.resolution if counter.resolution >= 1 else steps / round(1 / counter.resolution)
    return reading._replace(value=rounded)


def _joined(readings: list[Reading]) -> Reading:
    """One null for all: each source with its reason, best first."""
    if len(readings) == 1:
        return readings[0]
    return readings[0]._replace(
        source=", ".join(dict.fromkeys(reading.source for reading in readings)),
        note="; ".join(dict.fromkeys(f"{reading.source}: {reading.note}" for reading in readings)),
    )


class WithTimeout:
    """Asks a source that may hang, as drivers of broken GPUs do, in a thread of its own.

    It waits so long for it, then leaves a gap until it answers again: the other sources go on.
    """

    def __init__(self, source: Counters, name: str, on_fault: OnFault, timeout_s: float = 1.0):
        self._source, self._name, self._on_fault, self._timeout_s = source, name, on_fault, timeout_s
        self._late: Future | None = None
        """The answer that it owes since it hangs"""

    def read(self) -> Iterator[Reading]:
        """Yield the source's readings, or nothing while it hangs."""
        was_hanging, answer, self._late = self._late is not None, self._late or Future(), None
        if not was_hanging:
            threading.Thread(target=self._ask, args=(answer,), daemon=True).start()
        if not wait([answer], timeout=1e-3 if was_hanging else self._timeout_s).done:
            self._late = answer
            if not was_hanging:
                self._on_fault("source_hangs", f"{self._name} has not answered for {self._timeout_s:g} s")
        elif was_hanging:  # what it was asked long ago
            self._on_fault("source_back", f"{self._name} answers again")
        else:
            yield from answer.result()

    def close(self) -> None:
        """Close the source, unless it hangs."""
        if self._late is None and hasattr(self._source, "close"):
            self._source.close()

    def _ask(self, answer: Future) -> None:
        try:
            answer.set_result(list(self._source.read()))
        except Exception as error:  # raised again where the readings were asked for
            answer.set_exception(error)


@contextlib.contextmanager
def open_ladder(
    pid: int | None, devices: Sequence[Device], hz: float, on_fault: OnFault, *, nvml: Nvml | None = None
) -> Iterator[Ladder]:
    """The ladder of this machine, to be read `hz` times a second, open for the length of the block.

    Args:
        pid: the job, or None for the machine alone; ProcessLookupError is raised where there is none.
        devices: what the job may use; their GPUs are read.
        hz: how often the ladder will be read.
        on_fault: told of what breaks meanwhile.
        nvml: not yet open; the default talks to the driver of this machine.
    """
    job = None if pid is None else ProcessCounters(pid, os.getpid())
    gpus = gpus_and_slices(devices)
    sources: list[Counters] = [HostCounters(), *([job] if job else []), RaplCounters()]
    with contextlib.ExitStack() as stack:
        if gpus:
            session = stack.enter_context(nvml or Nvml())
            gpm = GpmCounters(session, gpus)
            sources.append(WithTimeout(gpm, "NVML GPM", on_fault))
            # a process of its own, which is started only for what GPM cannot tell; it knows no slices
            if rest := [gpu for gpu in gpus if gpu.kind == "gpu" and not gpm.supports(gpu)]:
                sources.append(DcgmCounters(rest, hz))
            told = NvmlCounters(session, gpus, job.pids if job else set, on_fault)
            sources.append(WithTimeout(told, "NVML", on_fault))
        if is_jetson():
            sources.append(JetsonCounters(gpus[0].uuid if gpus else JETSON))
        sources += [WithTimeout(ZeusCounters(*place), "Zeus", on_fault) for place in zeus_places()]
        ladder = Ladder(sources)
        stack.callback(ladder.close)
        yield ladder
