"""The sampler's own process: it reads every counter at even intervals until the job ends, and writes what it read."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow

from labkit.process import Parent
from labkit.runs import TELEMETRY, MergingPartWriter, spare_pandas
from labkit.telemetry.reading import Reading

_S = 10**9


class SampleClock:
    """Points in time 1/hz apart. What came late is not made up for by a burst of samples: it is counted as missed."""

    def __init__(
        self, hz: float, clock_ns: Callable[[], int] = time.monotonic_ns, date_ns: Callable[[], int] = time.time_ns
    ):
        self._period_ns, self._clock_ns = round(_S / hz), clock_ns
        self._begin_ns, self._date_ns = clock_ns(), date_ns()
        self._next = 0

    def now_ns(self) -> int:
        """Nanoseconds since 1970, by the date at the beginning and a clock that nobody sets."""
        return self._date_ns + self._since_ns()

    def wait_s(self) -> float:
        """Seconds until the next point."""
        return max(0.0, (self._next * self._period_ns - self._since_ns()) / _S)

    def arrive(self) -> int:
        """Take the latest point that has come; how many before it were missed."""
        latest = self._since_ns() // self._period_ns
        missed = max(0, latest - self._next)
        self._next = max(latest, self._next) + 1
        return missed

    def _since_ns(self) -> int:
        return self._clock_ns() - self._begin_ns


class TelemetryWriter:
    """Takes readings of one job; a context manager that leaves all of them on the disk."""

    def __init__(self, folder: Path, pid: int):
        self._pid = pid
        order = ("device", "scope", "counter", "time_ns")
        self._parts = MergingPartWriter(folder / "telemetry", TELEMETRY, sort_by=order)
        self._missing: dict[tuple, Reading] = {}

    def __enter__(self) -> TelemetryWriter:
        return self

    def __exit__(self, *exception) -> None:
        self._parts.close()

    def flush(self) -> None:
        self._parts.flush()
        self._parts.settle()

    def append(self, time_ns: int, reading: Reading) -> None:
        """Take one reading; a counter that stays missing is written once, not at every sample."""
        series = reading[:3]
        if reading.value is not None:
            self._missing.pop(series, None)
        elif self._missing.get(series) == reading:
            return
        else:
            self._missing[series] = reading
        self._parts.append({"time_ns": time_ns, "pid": self._pid, **reading._asdict()})


def sample(parent: Parent, folder: str, pid: int, hz: float, restarts: int) -> None:
    """Sample until the parent asks to stop or process `pid` is gone; `restarts` samplers of it died before this one."""
    from labkit.hardware import get_devices
    from labkit.telemetry.sources.ladder import open_ladder

    closed = threading.Event()
    parent.listen(at_end=closed.set)
    clock, first_done, died = SampleClock(hz), False, restarts
    try:
        with (
            open_ladder(pid, get_devices(), hz, lambda kind, what: parent.tell(kind, what=what)) as ladder,
            TelemetryWriter(Path(folder), pid) as writer,  # closed first: a driver may hang when it is left
        ):
            while True:
                ended = closed.is_set()  # then one last sample is taken
                time_ns = clock.now_ns()
                gaps = {"samplers_died": died, "samples_missed": clock.arrive()}
                died = 0
                for counter, count in gaps.items():
                    if count:
                        writer.append(time_ns, Reading("host", "host", counter, count, "count", "sampler"))
                for reading in ladder.read():
                    writer.append(time_ns, reading)
                if not first_done:
                    gc.freeze()  # going through all that was imported would make a sample late by 20 ms
                    parent.tell("ready")
                    first_done = True
                if ended:
                    break
                closed.wait(clock.wait_s())
    except ProcessLookupError:
        pass  # the job is gone: what was sampled is kept


def main() -> None:
    parent = Parent()
    spare_pandas()
    pyarrow.set_cpu_count(1)  # nor may it take cores from the job
    sys.setswitchinterval(5e-4)  # the thread that writes parts must not make a sample late
    # Ctrl-C in the terminal is for the job, which then ends the sampler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sample(parent, **parent.content)


if __name__ == "__main__":
    main()
