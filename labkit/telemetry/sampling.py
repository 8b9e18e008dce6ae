"""The sampler's own process: it reads every counter on a schedule until the job ends."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from pathlib import Path

import pyarrow

from labkit.process.child import Parent
from labkit.runs.parts import spare_pandas
from labkit.telemetry.reading import Reading
from labkit.telemetry.schedule import Schedule


def sample(parent: Parent, folder: str, pid: int, hz: float, restarts: int) -> None:
    """Sample until the parent asks to stop or process `pid` is gone; `restarts` samplers of it died before this one."""
    from labkit.hardware.devices import get_devices
    from labkit.telemetry.sources.machine import open_ladder
    from labkit.telemetry.telemetry_writer import TelemetryWriter

    closed = threading.Event()
    parent.listen(at_end=closed.set)
    schedule, first_done, died = Schedule(hz), False, restarts
    try:
        with (
            open_ladder(pid, get_devices(), hz, lambda kind, what: parent.tell(kind, what=what)) as ladder,
            TelemetryWriter(Path(folder), pid) as writer,  # closed first: a driver may hang when it is left
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
                    parent.tell("ready")
                    first_done = True
                if ended:
                    break
                closed.wait(schedule.wait_s())
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
