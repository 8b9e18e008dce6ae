"""Who else was on the machine: what other programs took of a run's cores, and who else computed on its GPU."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from labkit.hardware import MPS_SERVER, Device, Nvml, occupants
from labkit.runs import BUSY, MOST_OF_A_CORE, Others
from labkit.telemetry.sources.host import busy_and_idle_s

LOOK_S = 0.25
"""How long CPU time is counted before a start"""


class Look:
    """Counts from the moment it is made."""

    def __init__(
        self,
        count: int | None = None,
        root: int | None = None,
        gpu: Device | None = None,
        cores: Sequence[int] | None = None,
    ):
        """Look at cores, and at a GPU.

        Args:
            count: cores that the run can keep busy, where a quota or its threads leave it fewer than it may use.
            root: the process whose descendants, with it, are no others; this one if None.
            gpu: that the run computes on.
            cores: logical CPUs; those that this process may use if None.
        """
        self._root = root if root is not None and psutil.pid_exists(root) else os.getpid()
        self._gpu, self._on_gpu = gpu, _on_gpu(gpu, self._root)
        self._cores = own_affinity() if cores is None else cores
        self._count = min(count or len(self._cores), len(self._cores))
        self._before = self._now()

    def others(self) -> Others:
        """What others took since."""
        before, now = self._before, self._now()
        elapsed = max(now["at"] - before["at"], 1e-9)
        programs = {pid: cpu_s - before["programs"].get(pid, 0.0) for pid, cpu_s in now["programs"].items()}
        # part of what is the run's own may be on other cores, and not all others can be seen: the more of two readings
        took = max((now["busy"] - before["busy"]) - (now["own"] - before["own"]), self._took_here(programs))
        spare = elapsed * (len(self._cores) - self._count)  # that the run could not have used
        share = round(min(1.0, max(0.0, (took - spare) / (elapsed * self._count))), 3)
        on_gpu = sorted({*self._on_gpu, *_on_gpu(self._gpu, self._root)})
        return Others(
            cpu_share=share,
            largest=self._largest(programs, elapsed),
            on_gpu=on_gpu,
            disturbed=share >= BUSY or share * self._count >= MOST_OF_A_CORE or bool(on_gpu),
        )

    def _now(self) -> dict[str, Any]:
        family = _family(self._root)
        return {
            "at": time.monotonic(),
            "busy": _busy_s(self._cores),
            "own": sum(_cpu_s(process, with_ended=True) for process in family),
            "programs": {each.pid: _cpu_s(each) for each in psutil.process_iter() if each not in family},
        }

    def _took_here(self, took: dict[int, float]) -> float:
        """CPU seconds of the programs that may use no other cores."""
        here = 0.0
        for pid in (pid for pid in took if took[pid] > 0):
            with contextlib.suppress(psutil.Error, AttributeError):  # not every system can tell
                here += took[pid] if {*psutil.Process(pid).cpu_affinity()} <= {*self._cores} else 0.0
        return here

    def _largest(self, took: dict[int, float], elapsed: float) -> str | None:
        for pid in sorted((pid for pid in took if took[pid] >= BUSY * elapsed), key=took.get, reverse=True):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if not hasattr(process, "cpu_affinity") or {*process.cpu_affinity()} & {*self._cores}:
                    return f"{process.name()} (process {pid})"
        return None


def others_now(seconds: float = LOOK_S, **what) -> Others:
    """What others take at the moment, which takes so many seconds; `what` as for `Look`."""
    look = Look(**what)
    time.sleep(seconds)
    return look.others()


def is_quiet() -> bool:
    """Whether other programs leave this process' cores alone; takes a moment."""
    return not others_now()["disturbed"]


def own_affinity() -> Sequence[int]:
    """The logical CPUs that this process may use."""
    cores = _listed_cores()
    if not hasattr(os, "sched_getaffinity"):
        return cores
    # a container may number its cores otherwise than the system's list does
    return [core for core in sorted(os.sched_getaffinity(0)) if core in cores] or cores


def _on_gpu(gpu: Device | None, root: int) -> list[str]:
    """The other processes that have a GPU open to compute; none where the driver does not tell."""
    if gpu is None:
        return []
    with Nvml() as session:
        found, _ = occupants(gpu, session, root)
    # in a container the driver's numbers may be those of the host, and this run its own neighbour
    seen = [each for each in found if each.kind == "compute" and psutil.pid_exists(each.pid)]
    named = [(each.name or "a program", each.pid) for each in seen]
    return [f"{name} (process {pid})" for name, pid in named if not name.endswith(MPS_SERVER)]


def _listed_cores() -> Sequence[int]:
    """The numbers of the cores that the system tells times of, in its order: those that are switched on."""
    try:
        return [int(core) for core in re.findall(r"^cpu(\d+)", Path("/proc/stat").read_text(), re.MULTILINE)]
    except OSError:
        return range(psutil.cpu_count() or 1)


def _busy_s(cores: Sequence[int]) -> float:
    """CPU seconds so far in which these cores were not idle, those that other virtual machines had included."""
    times = dict(zip(_listed_cores(), psutil.cpu_times(percpu=True), strict=False))
    return sum(busy_and_idle_s(times[core])[0] for core in cores)


def _family(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _cpu_s(process: psutil.Process, *, with_ended: bool = False) -> float:
    """CPU seconds of a process, and of those that it started and that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:  # it has just ended, and its parent has its time
        return 0.0
    ended = (getattr(times, "children_user", 0.0), getattr(times, "children_system", 0.0)) if with_ended else ()
    return times.user + times.system + sum(ended)
