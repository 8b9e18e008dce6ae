"""Which sources of counters this machine has, best first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from labkit.hardware.device import Device
from labkit.hardware.devices import JETSON, is_jetson
from labkit.hardware.nvml import Nvml
from labkit.telemetry.reading import OnFault
from labkit.telemetry.sources.dcgm import DcgmCounters
from labkit.telemetry.sources.gpm import GpmCounters
from labkit.telemetry.sources.host import HostCounters, ProcessCounters, RaplCounters
from labkit.telemetry.sources.jetson import JetsonCounters
from labkit.telemetry.sources.ladder import Counters, Ladder, Patient
from labkit.telemetry.sources.nvml import NvmlCounters, gpus_and_slices


@contextlib.contextmanager
def open_ladder(
    pid: int | None, devices: Sequence[Device], hz: float, on_fault: OnFault, *, nvml: Nvml | None = None
) -> Iterator[Ladder]:
    """The ladder of this machine, open for the length of the block.

    Args:
        pid: the job, or None for the machine alone.
        devices: what the job may use; their GPUs are read.
        hz: how often the ladder will be read in a second.
        on_fault: told of what breaks meanwhile.
        nvml: a session that is not yet open; the default talks to the driver of this machine.

    Raises:
        ProcessLookupError: there is no such job.
    """
    job = None if pid is None else ProcessCounters(pid, os.getpid())
    gpus = gpus_and_slices(devices)
    sources: list[Counters] = [HostCounters(), *([job] if job else []), RaplCounters()]
    with contextlib.ExitStack() as stack:
        if gpus:
            session = stack.enter_context(nvml or Nvml())
            gpm = GpmCounters(session, gpus)
            sources.append(Patient(gpm, "NVML GPM", on_fault))
            # a process of its own, which is started only for what GPM cannot tell; it knows no slices
            if rest := [gpu for gpu in gpus if gpu.kind == "gpu" and not gpm.supports(gpu)]:
                sources.append(DcgmCounters(rest, hz))
            told = NvmlCounters(session, gpus, job.pids if job else set, on_fault)
            sources.append(Patient(told, "NVML", on_fault))
        if is_jetson():
            sources.append(JetsonCounters(gpus[0].uuid if gpus else JETSON))
        ladder = Ladder(sources)
        stack.callback(ladder.close)
        yield ladder
