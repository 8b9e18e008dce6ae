"""The sampler's own process: it reads every counter on a schedule until the job ends."""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path

import pyarrow

from labkit.runs.parts import spare_pandas
from labkit.telemetry.reading import Reading
from labkit.telemetry.sampler import FAULT, READY
from labkit.telemetry.schedule import Schedule


def sample(folder: Path, pid: int, hz: float, restarts: int = 0) -> None:
    """Sample until standard input closes or process `pid` is gone; `restarts` samplers of it died before this one."""
    from labkit.hardware.devices import get_devices
    from labkit.telemetry.sources.machine import open_ladder
    from labkit.telemetry.telemetry_writer import TelemetryWriter

    closed = _when_input_closes()
    schedule, first_done, died = Schedule(hz), False, restarts
    try:
        with (
            open_ladder(pid, get_devices(), hz, _tell_fault) as ladder,
            TelemetryWriter(folder, pid) as writer,  # closed first: a driver may hang when it is left
        ):
            while True:
                ended = closed.is_set()  # then one last sample is taken
                time_ns = schedule.now_ns()
                gaps = {"samplers_died": died, "samples_missed": schedule.arrive()}
                died = 0
                for counter, count in gaps.items():
                    if count:
                        writer.append(time_ns, Reading("host", "host", counter, count, "count", "sampler"))
                for reading in ladder.read():
                    writer.append(time_ns, reading)
                if not first_done:
                    gc.freeze()  # going through all that was imported would make a sample late by 20 ms
                    _tell(READY)
                    first_done = True
                if ended:
                    break
                closed.wait(schedule.wait_s())
    except ProcessLookupError:
        pass  # the job is gone: what was sampled is kept


def _tell_fault(kind: str, what: str) -> None:
    _tell(FAULT + json.dumps([kind, what]).encode() + b"\n")


def _tell(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _when_input_closes() -> threading.Event:
    closed = threading.Event()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # not through the buffer, whose lock would be held at exit
            pass
        closed.set()

    threading.Thread(target=wait, daemon=True).start()
    return closed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m labkit.telemetry.sampling")
    parser.add_argument("folder", type=Path)
    parser.add_argument("pid", type=int)
    parser.add_argument("hz", type=float)
    parser.add_argument("restarts", type=int)
    args = parser.parse_args()
    spare_pandas()
    pyarrow.set_cpu_count(1)  # nor may it take cores from the job
    sys.setswitchinterval(5e-4)  # the thread that writes parts must not make a sample late
    # Ctrl-C in the terminal is for the job, which then ends the sampler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sample(args.folder, args.pid, args.hz, args.restarts)


if __name__ == "__main__":
    main()
