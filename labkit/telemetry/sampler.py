"""The sampler: a process next to a job that reads every counter at even intervals, until the job ends.

`Sampler` is the job's side. The process shares no interpreter with the job, and never outlives it. Run as a program,
this is that process.
"""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow

from labkit import UserError, errors, hardware, process, runs
from labkit.hardware import memory_watch
from labkit.telemetry.counters import OnFault, Reading

DEFAULT_HZ, MOST_HZ = 2.0, 100.0
"""Samples per second: the default and the maximum."""
MOST_RESTARTS = 3
START_S = 60.0
"""Seconds for the first sample: enough for imports from a slow disk, but bounded if a driver does not answer."""
SAMPLER_GRACE_S = 10.0
"""Seconds for the last sample, after the job has ended."""


class Sampler:
    """Samples this process during a block. A sampler that dies is restarted, with a gap in the samples."""

    def __init__(
        self,
        folder: Path,
        hz: float = DEFAULT_HZ,
        on_fault: OnFault = lambda kind, what: None,
        apart: Sequence[int] = (),
        ranks: Mapping[int, int] | None = None,
    ):
        """Sample into `folder`/telemetry, `hz` times per second; `on_fault` is called in another thread.

        `apart` are children of this process that are not the job's; `ranks` are the processes of a job that has
        several, by pid, with their numbers.
        """
        self._ranks = ranks or {}
        self.folder, self.hz, self._on_fault, self._apart = folder, hz, on_fault, list(apart)
        self.failure: str | None = None
        """Reason why sampling stopped, or a fault that could not be recorded; None if all is well."""
        self.deaths: list[str] = []
        """Reasons why samplers died that were restarted."""
        self._ending = False
        self._child: process.Child = None  # ty: ignore[invalid-assignment]  # until one is started
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Sampler":
        try:
            self._start()
            with errors.refusals():
                self._watcher.start()
        except UserError as error:  # the job goes on without samples
            self.failure = str(error)
            if self._child is not None:
                self._child.end()
        return self

    def __exit__(self, *exception) -> None:
        self._ending = True
        if self._watcher.ident is None:
            return
        self._child.stop()
        self._watcher.join(SAMPLER_GRACE_S)
        if self._watcher.is_alive():
            self._child.kill()
            self._watcher.join(SAMPLER_GRACE_S)  # a driver may keep even a killed process

    def _start(self) -> None:
        """Start a sampler and wait for its first sample; a UserError with the reason if there will be none."""
        helpers = [] if (template := process.own_template()) is None else [template.pid]
        content: dict[str, Any] = {"folder": str(self.folder), "pid": os.getpid(), "hz": self.hz}
        content["apart"] = [*self._apart, *helpers]
        content |= {"died": len(self.deaths), "ranks": [*self._ranks.items()]}
        self._child = process.Child("labkit.telemetry.sampler", content, grace_s=SAMPLER_GRACE_S).start()
        for pid in (self._child.pid, *helpers):
            memory_watch.leave_out(pid)
        if self._ending:  # the block ended during a restart
            self._child.kill()
        # wait, because its imports take half a second of a core, which must not fall into the run's time
        try:
            while (message := self._child.next_message(START_S)) is not None:
                if message["kind"] == "ready":
                    return
                self._tell(**message)
        except EOFError:
            raise UserError(self._death()) from None
        self._child.kill()
        raise UserError(f"it took no sample within {START_S:g} s")

    def _watch(self) -> None:
        while True:
            for fault in self._child.messages():
                self._tell(**fault)
            death, status = self._death(), self._child.status()
            self._child.end()
            if status == 0 or self._ending:
                self.failure = death if status else self.failure
                return
            if len(self.deaths) == MOST_RESTARTS:
                self.failure = f"it died {MOST_RESTARTS + 1} times, at last of this: {death}"
                return
            self.deaths.append(death)
            self._tell("sampler_died", death)
            try:
                self._start()
            except UserError as error:
                self.failure = self.failure if self._ending else str(error)
                return

    def _tell(self, kind: str, what: str) -> None:
        try:
            self._on_fault(kind, what)
        except Exception as error:  # a full disk ends neither the training nor the thread that starts samplers again
            self.failure = f"could not record {kind}: {what} ({error})"

    def _death(self) -> str:
        """Reason for the end of the latest process, which has closed its output."""
        status, lines = self._child.status(), self._child.stderr_tail().strip().splitlines()
        return lines[-1] if lines else f"the sampler ended with {status}"


class SampleClock:
    """Points in time 1/hz apart. Late points are not made up for by a burst of samples: they count as missed."""

    def __init__(self, hz: float):
        self._period_ns, self._next = round(1e9 / hz), 0
        self._begin_ns, self._date_ns = time.monotonic_ns(), time.time_ns()

    def now_ns(self) -> int:
        """Nanoseconds since 1970: the date at the start, plus a monotonic clock that no one can set."""
        return self._date_ns + self._since_ns()

    def wait_s(self) -> float:
        """Seconds until the next point."""
        return max(0.0, (self._next * self._period_ns - self._since_ns()) / 1e9)

    def arrive(self) -> int:
        """Take the latest point that has passed. Returns the number of points missed before it."""
        latest = self._since_ns() // self._period_ns
        missed = max(0, latest - self._next)
        self._next = max(latest, self._next) + 1
        return missed

    def _since_ns(self) -> int:
        return time.monotonic_ns() - self._begin_ns


class TelemetryWriter:
    """Writes the readings of one job: a context manager, after which all of them are on disk."""

    def __init__(self, folder: Path, pid: int):
        self._pid = pid
        order = ("device", "scope", "counter", "time_ns")
        self._parts = runs.MergingPartWriter(folder / "telemetry", runs.TELEMETRY, sort_by=order)
        self._missing: dict[tuple, Reading] = {}

    def __enter__(self) -> "TelemetryWriter":
        return self

    def __exit__(self, *exception) -> None:
        self._parts.close()

    def flush(self) -> None:
        self._parts.flush()
        self._parts.settle()

    def append(self, time_ns: int, *readings: Reading) -> None:
        """Take the readings of one time. A counter that stays missing is written once, not at every sample."""
        rows = []
        for reading in readings:
            series = reading[:3]
            if reading.value is not None:
                self._missing.pop(series, None)
            elif self._missing.get(series) == reading:
                continue
            else:
                self._missing[series] = reading
            rows.append({"time_ns": time_ns, "pid": self._pid, **reading._asdict()})
        self._parts.append(*rows)  # a reader that follows the parts knows what is new by its time


def sample(parent: process.Parent, folder: str, pid: int, hz: float, died: int, apart: list[int], ranks: list) -> None:
    """Sample until the parent asks to stop or process `pid` ends. `died` samplers of it died before this one."""
    runs.spare_pandas()
    pyarrow.set_cpu_count(1)  # do not take cores from the job
    sys.setswitchinterval(5e-4)  # the thread that writes parts must not delay a sample
    # Ctrl-C in the terminal, or SIGTERM from Slurm to all processes, is for the job, which then ends the sampler
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    from labkit.telemetry.sources.ladder import open_ladder  # last: its imports take longest

    closed = threading.Event()
    parent.listen(at_end=closed.set)

    def on_fault(kind: str, what: str) -> None:
        parent.tell(kind, what=what)

    clock, first_done, devices = SampleClock(hz), False, hardware.get_devices()
    try:
        with (
            open_ladder(pid, devices, hz, on_fault, apart=apart, ranks=dict(ranks)) as ladder,
            TelemetryWriter(Path(folder), pid) as writer,  # closed first: a driver may hang on the way out
        ):
            while True:
                ended = closed.is_set()  # if so, this sample is the last
                time_ns = clock.now_ns()
                gaps = (("samplers_died", died), ("samples_missed", clock.arrive()))
                died = 0
                counts = (Reading("host", "host", name, count, "count", "sampler") for name, count in gaps if count)
                writer.append(time_ns, *counts, *ladder.read())
                if not first_done:
                    gc.freeze()  # a collection of everything that was imported would delay a sample by 20 ms
                    parent.tell("ready")
                    first_done = True
                if ended:
                    break
                closed.wait(clock.wait_s())
    except ProcessLookupError:
        pass  # the job has ended; its samples are kept


if __name__ == "__main__":
    _parent = process.Parent()
    sample(_parent, **_parent.content)
