"""Disturbances of a run: what other programs took of its cores, and which ones computed on its GPU."""

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from labkit import hardware, runs
from labkit.telemetry.sources.host import busy_and_idle_s

LOOK_S = 0.25
"""Seconds that CPU time is counted before a start."""


class Look:
    """Counts what other programs take, from the moment it is made."""

    def __init__(
        self,
        count: int | None = None,
        root: int | None = None,
        gpu: "hardware.Device | None" = None,
        cores: Sequence[int] | None = None,
    ):
        """Start counting on these cores and on this GPU.

        Args:
            count: cores that the run can keep busy, if a quota or its threads limit it to fewer than `cores`.
            root: the run's process, which does not count, with its descendants; None is this process.
            gpu: the GPU that the run computes on.
            cores: logical CPUs; None means those that this process may use.
        """
        self._root = root if root is not None and psutil.pid_exists(root) else os.getpid()
        self._gpu, self._on_gpu = gpu, _on_gpu(gpu, self._root)
        self._cores = own_affinity() if cores is None else cores
        self._count = min(count or len(self._cores), len(self._cores))
        self._before = self._now()

    def others(self) -> "runs.Others":
        """What other programs have taken since then."""
        before, now = self._before, self._now()
        elapsed = max(now["at"] - before["at"], 1e-9)
        programs = {pid: cpu_s - before["programs"].get(pid, 0.0) for pid, cpu_s in now["programs"].items()}
        # two estimates, of which the larger counts: the first is too low if the run also used other cores, the second
        # if some programs cannot be seen
        took = max((now["busy"] - before["busy"]) - (now["own"] - before["own"]), self._took_here(programs))
        spare = elapsed * (len(self._cores) - self._count)  # time that the run could not have used
        share = round(min(1.0, max(0.0, (took - spare) / (elapsed * self._count))), 3)
        on_gpu = sorted({*self._on_gpu, *_on_gpu(self._gpu, self._root)})
        return runs.Others(
            cpu_share=share,
            largest=self._largest(programs, elapsed),
            on_gpu=on_gpu,
            disturbed=share >= runs.BUSY or share * self._count >= runs.MOST_OF_A_CORE or bool(on_gpu),
        )

    def _now(self) -> dict[str, Any]:
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._root)
            family = [root, *root.children(recursive=True)]
        times = dict(zip(_listed_cores(), psutil.cpu_times(percpu=True), strict=False))
        return {
            "at": time.monotonic(),
            # time in which the cores were not idle, including what other virtual machines took
            "busy": sum(busy_and_idle_s(times[core])[0] for core in self._cores),
            "own": sum(_cpu_s(process, with_ended=True) for process in family),
            "programs": {each.pid: _cpu_s(each) for each in psutil.process_iter() if each not in family},
        }

    def _took_here(self, took: dict[int, float]) -> float:
        """CPU seconds of the programs that are bound to these cores."""
        here = 0.0
        for pid in (pid for pid in took if took[pid] > 0):
            with contextlib.suppress(psutil.Error, AttributeError):  # some systems do not report affinity
                here += took[pid] if {*psutil.Process(pid).cpu_affinity()} <= {*self._cores} else 0.0
        return here

    def _largest(self, took: dict[int, float], elapsed: float) -> str | None:
        busy = [pid for pid in took if took[pid] >= runs.BUSY * elapsed]
        for pid in sorted(busy, key=took.__getitem__, reverse=True):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if not hasattr(process, "cpu_affinity") or {*process.cpu_affinity()} & {*self._cores}:
                    return f"{process.name()} (process {pid})"
        return None


def others_now(seconds: float = LOOK_S, **what) -> "runs.Others":
    """What other programs take now, measured for that many seconds; `what` are arguments of `Look`."""
    look = Look(**what)
    time.sleep(seconds)
    return look.others()


def is_quiet() -> bool:
    """Whether no other program disturbs this process' cores, measured for a moment."""
    return not others_now()["disturbed"]


def own_affinity() -> Sequence[int]:
    """The logical CPUs that this process may use."""
    cores = _listed_cores()
    if not hasattr(os, "sched_getaffinity"):
        return cores
    # a container may number its cores differently from the system's list
    return [core for core in sorted(os.sched_getaffinity(0)) if core in cores] or cores


def _on_gpu(gpu: "hardware.Device | None", root: int) -> list[str]:
    """Other processes that have a GPU open for computing; none where the driver does not list them."""
    if gpu is None:
        return []
    with hardware.Nvml() as session:
        found, _ = hardware.occupants(gpu, session, root)
    # in a container the driver may list the host's pids, and the run would count as its own neighbour
    seen = [each for each in found if each.kind == "compute" and psutil.pid_exists(each.pid)]
    named = [(each.name or "a program", each.pid) for each in seen]
    return [f"{name} (process {pid})" for name, pid in named if not name.endswith(hardware.MPS_SERVER)]


def _listed_cores() -> Sequence[int]:
    """Numbers of the cores that the system lists times for, in its order: the cores that are online."""
    try:
        return [int(core) for core in re.findall(r"^cpu(\d+)", Path("/proc/stat").read_text(), re.MULTILINE)]
    except OSError:
        return range(psutil.cpu_count() or 1)


def _cpu_s(process: psutil.Process, *, with_ended: bool = False) -> float:
    """CPU seconds of a process; `with_ended` adds those of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:  # it has just ended, and its parent now includes its time
        return 0.0
    ended = (getattr(times, "children_user", 0.0), getattr(times, "children_system", 0.0)) if with_ended else ()
    return times.user + times.system + sum(ended)
