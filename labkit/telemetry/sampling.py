"""The sampler's own process: it reads every counter on a schedule until the job ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

from labkit.runs.parts import spare_pandas
from labkit.telemetry.host_counters import host_counters
from labkit.telemetry.rapl_counters import RaplCounters
from labkit.telemetry.reading import Reading
from labkit.telemetry.sampler import READY
from labkit.telemetry.schedule import Schedule


def sample(folder: Path, pid: int, hz: float, restarts: int = 0) -> None:
    """Sample until standard input closes or process `pid` is gone; `restarts` samplers of it died before this one."""
    from labkit.hardware.devices import get_devices
    from labkit.hardware.nvml import Nvml
    from labkit.runs.parts import TELEMETRY, PartWriter
    from labkit.telemetry.gpu_counters import GpuCounters, visible_gpus

    writer = PartWriter(folder / "telemetry", TELEMETRY)
    gpus = visible_gpus(get_devices())
    with Nvml() if gpus else contextlib.nullcontext() as nvml:
        closed = _when_input_closes()
        noted: set[Reading] = set()
        schedule, first_done = Schedule(hz), False
        died = restarts
        try:
            counters = [*host_counters(pid, os.getpid()), RaplCounters()]
            counters += [GpuCounters(nvml, gpus, pid)] if gpus else []
            while True:
                ended = closed.is_set()  # then one last sample is taken
                time_ns = schedule.now_ns()
                gaps = {"samplers_died": died, "samples_missed": schedule.arrive()}
                died = 0
                for counter, count in gaps.items():
                    if count:
                        gap = Reading("host", "host", counter, count, "count", "sampler")
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
                if ended:
                    break
                closed.wait(schedule.wait_s())
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
    parser = argparse.ArgumentParser(prog="python -m labkit.telemetry.sampling")
    parser.add_argument("folder", type=Path)
    parser.add_argument("pid", type=int)
    parser.add_argument("hz", type=float)
    parser.add_argument("restarts", type=int)
    args = parser.parse_args()
    spare_pandas()
    # Ctrl-C in the terminal is for the job, which then ends the sampler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sample(args.folder, args.pid, args.hz, args.restarts)


if __name__ == "__main__":
    main()
