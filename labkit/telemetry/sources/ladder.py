"""The ladder of sources: each counter comes from the best one that answers, or is null with all their reasons."""

import contextlib
import os
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Protocol

from labkit import hardware
from labkit.telemetry.counters import OnFault, Reading, counter_of
from labkit.telemetry.sources import host
from labkit.telemetry.sources.nvidia import DcgmCounters, GpmCounters, NvmlCounters, gpus_and_slices


class Counters(Protocol):
    """A source, read at every sample. It raises ProcessLookupError if its job has ended."""

    def read(self) -> Iterator[Reading]: ...


class Ladder:
    """Sources of one machine, best first. A source that fails never stops the others."""

    def __init__(self, sources: Sequence[Counters]):
        self._sources = sources

    def read(self) -> Iterator[Reading]:
        """Yield one reading per device, scope and counter."""
        missing: dict[tuple[str, str, str], list[Reading]] = {}
        found: set[tuple[str, str, str]] = set()
        for source in self._sources:
            for reading in _readings(source):
                key = reading[:3]  # device, scope, counter
                if reading.value is None:
                    missing.setdefault(key, []).append(reading)
                elif key not in found:
                    found.add(key)
                    yield reading
        for key, readings in missing.items():
            if key not in found:
                yield _joined(readings)


def _readings(source: Counters) -> Iterator[Reading]:
    try:
        yield from map(_checked, source.read())
    except ProcessLookupError:
        raise
    except Exception as error:  # a driver or a tool may fail in any way, and the other sources go on
        name = type(source).__name__
        yield Reading("host", "host", "sources_failed", None, "count", name, f"{name}: {type(error).__name__}: {error}")


def _checked(reading: Reading) -> Reading:
    """The reading rounded to the resolution of its counter, or null if its value is impossible."""
    if reading.value is None:
        return reading
    counter = counter_of(reading.scope, reading.counter)
    if not 0 <= reading.value <= counter.ceiling:
        return reading._replace(value=None, note=f"nonsense: {reading.value:g} {reading.unit}")
    steps = round(reading.value / counter.resolution)
    # for a fraction, divide by the whole number of steps per unit: this rounds only once
    rounded = steps * counter.resolution if counter.resolution >= 1 else steps / round(1 / counter.resolution)
    return reading._replace(value=rounded)


def _joined(readings: list[Reading]) -> Reading:
    """One null with the reason of each source, best first."""
    if len(readings) == 1:
        return readings[0]
    return readings[0]._replace(
        source=", ".join(dict.fromkeys(reading.source for reading in readings)),
        note="; ".join(dict.fromkeys(f"{reading.source}: {reading.note}" for reading in readings)),
    )


class WithTimeout:
    """Reads a source that may hang, as drivers of broken GPUs do, in a thread of its own.

    After `timeout_s` without an answer it leaves a gap until the source answers again; the other sources go on.
    """

    def __init__(self, source: Counters, name: str, on_fault: OnFault, timeout_s: float = 1.0):
        self._source, self._name, self._on_fault, self._timeout_s = source, name, on_fault, timeout_s
        self.late: Future | None = None
        """The pending answer of a source that hangs."""

    def read(self) -> Iterator[Reading]:
        """Yield the source's readings, or nothing while it hangs."""
        was_hanging, answer, self.late = self.late is not None, self.late or Future(), None
        if not was_hanging:
            threading.Thread(target=self._ask, args=(answer,), daemon=True).start()
        if not wait([answer], timeout=1e-3 if was_hanging else self._timeout_s).done:
            self.late = answer
            if not was_hanging:
                self._on_fault("source_hangs", f"{self._name} has not answered for {self._timeout_s:g} s")
        elif was_hanging:  # this answer is old, so it is dropped
            self._on_fault("source_back", f"{self._name} answers again")
        else:
            yield from answer.result()

    def _ask(self, answer: Future) -> None:
        try:
            answer.set_result(list(self._source.read()))
        except Exception as error:  # raised again in `read`
            answer.set_exception(error)


@contextlib.contextmanager
def open_ladder(
    pid: int | None,
    devices: "Sequence[hardware.Device]",
    hz: float,
    on_fault: OnFault,
    *,
    apart: Sequence[int] = (),
    ranks: Mapping[int, int] | None = None,
    nvml: "hardware.Nvml | None" = None,
) -> Generator[Ladder]:
    """The ladder of this machine, open during the block.

    Args:
        pid: the job, or None for the machine alone.
        devices: devices that the job may use; their GPUs are read.
        hz: number of times per second that the ladder will be read.
        on_fault: called when something breaks.
        apart: children of the job that are not its own, such as the program that sends it to MLflow.
        ranks: the job's processes on this host by pid, with their numbers, if it has several.
        nvml: a session that is not open yet; the default is the driver of this machine.

    Raises:
        ProcessLookupError: there is no process `pid`.
    """
    job = None if pid is None else host.ProcessCounters(pid, {os.getpid(), *apart}, ranks)
    gpus = gpus_and_slices(devices)
    sources: list[Counters] = [host.HostCounters(), *([job] if job else []), host.RaplCounters()]
    with contextlib.ExitStack() as stack:
        if gpus:
            session = stack.enter_context(nvml or hardware.Nvml())
            gpm = GpmCounters(session, gpus)
            sources.append(watched := WithTimeout(gpm, "NVML GPM", on_fault))
            stack.callback(lambda: gpm.close() if watched.late is None else None)  # closing would hang, too
            # DCGM needs a process of its own, so it is started only for GPUs that GPM cannot read; it has no MIG slices
            if rest := [gpu for gpu in gpus if gpu.kind == "gpu" and not gpm.supports(gpu)]:
                sources.append(dcgm := DcgmCounters(rest, hz))
                stack.callback(dcgm.close)
            counters = NvmlCounters(session, gpus, job.pids if job else set, on_fault)
            sources.append(WithTimeout(counters, "NVML", on_fault))
        if hardware.is_jetson():
            sources.append(host.JetsonCounters((gpus[0].uuid if gpus else None) or hardware.JETSON))
        sources += [WithTimeout(host.ZeusCounters(*place), "Zeus", on_fault) for place in host.zeus_places()]
        yield Ladder(sources)
