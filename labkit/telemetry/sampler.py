"""The sampler: a process of its own, so that it never shares the job's interpreter, and never outlives the job."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from labkit.runs.parts import spare_pandas
from labkit.runs.process import OUT_OF_CTRL_C
from labkit.telemetry.host_counters import host_counters
from labkit.telemetry.rapl_counters import RaplCounters
from labkit.telemetry.reading import Reading
from labkit.telemetry.schedule import Schedule

DEFAULT_HZ = 2.0
READY = b"ready\n"
"""What the sampler writes when its first sample is taken."""


class Sampler:
    """Starts the sampler for this process and ends it with the block; both are done whatever the block does.

    The sampler also ends by itself when its standard input closes, which the kernel does for a killed parent.
    """

    def __init__(self, folder: Path, hz: float = DEFAULT_HZ):
        """Sample this process into `folder`/telemetry, `hz` times a second."""
        self.folder, self.hz = folder, hz
        self.failure: str | None = None
        """Why nothing is sampled; None where all is well."""

    def __enter__(self) -> Sampler:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "labkit.telemetry.sampler", str(self.folder), str(os.getpid()), str(self.hz)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **OUT_OF_CTRL_C,
        )
        # its imports take half a second of a core, which must not be taken from the run's clock
        last_words = b""
        for line in self._process.stdout:
            if line == READY:
                return self
            last_words = line
        self.failure = last_words.decode(errors="replace").strip() or "the sampler ended at once"
        return self

    def __exit__(self, *exception) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        last_words = self._process.stdout.read().decode(errors="replace").strip().splitlines()
        self._process.stdout.close()
        if self._process.returncode and self.failure is None:
            self.failure = last_words[-1] if last_words else f"the sampler ended with {self._process.returncode}"


def sample(folder: Path, pid: int, hz: float) -> None:
    """Sample until standard input closes or process `pid` is gone; the loop of the sampler process."""
    from labkit.hardware.devices import get_devices
    from labkit.hardware.nvml import Nvml
    from labkit.runs.parts import TELEMETRY, PartWriter
    from labkit.telemetry.gpu_counters import GpuCounters, visible_gpus

    writer = PartWriter(folder / "telemetry", TELEMETRY)
    gpus = visible_gpus(get_devices())
    with Nvml() if gpus else contextlib.nullcontext() as nvml:
        closed = _when_input_closes()
        noted: set[Reading] = set()
        schedule, missed, first_done = Schedule(hz), 0, False
        try:
            counters = [*host_counters(pid, os.getpid()), RaplCounters()]
            counters += [GpuCounters(nvml, gpus, pid)] if gpus else []
            while True:
                time_ns = schedule.now_ns()
                if missed:
                    gap = Reading("host", "host", "samples_missed", missed, "count", "sampler")
                    writer.append({"time_ns": time_ns, "pid": pid, **gap._asdict()})
                for source in counters:
                    for reading in source.read():
                        # a missing counter is said once, not at every sample
                        if reading.value is None and reading in noted:
                            continue
                        if reading.value is None:
                            noted.add(reading)
                        writer.append({"time_ns": time_ns, "pid": pid, **reading._asdict()})
                if not first_done:
                    sys.stdout.buffer.write(READY)
                    sys.stdout.buffer.flush()
                    first_done = True
                if closed.is_set():  # one last sample has been taken after the job's end
                    break
                wait_s, missed = schedule.advance()
                closed.wait(wait_s)
        except ProcessLookupError:
            pass  # the job is gone: keep what was sampled
        finally:
            writer.flush()


def _when_input_closes() -> threading.Event:
    closed = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        closed.set()

    threading.Thread(target=wait, daemon=True).start()
    return closed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m labkit.telemetry.sampler")
    parser.add_argument("folder", type=Path)
    parser.add_argument("pid", type=int)
    parser.add_argument("hz", type=float)
    args = parser.parse_args()
    spare_pandas()
    # Ctrl-C in the terminal is for the job, which then ends the sampler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sample(args.folder, args.pid, args.hz)


if __name__ == "__main__":
    main()
