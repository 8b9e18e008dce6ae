"""Who else was on the machine: what other programs took of a run's cores, and who else computed on its GPU."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.hardware.occupants import MPS_SERVER, occupants

BUSY = 0.1
"""Share of the cores from which other programs disturb a run: below it they are lost in its own noise."""
LOOK_S = 0.25
"""How long CPU time is counted before a start"""


@dataclass(frozen=True)
class Others:
    """What was not the run's; shares from 0 to 1, None where this system does not say."""

    cpu_share: float
    """Of the CPU time of the run's cores: other programs and, where this machine is virtual, other machines"""
    steal_share: float
    """Of the same, other virtual machines"""
    waited_share: float | None
    """Of the CPU time of the run's cores, how long threads of the run were ready and had no core (run queue)"""
    pressure_share: float | None
    """Of the time, how long some thread of this host waited for a core (/proc/pressure/cpu)"""
    largest: str | None
    """The program that took most, where it took a tenth of a core"""
    on_gpu: tuple[str, ...] = ()
    """Other processes that computed on the run's GPU"""

    @property
    def disturb(self) -> bool:
        return self.cpu_share >= BUSY or bool(self.on_gpu)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, shares to three digits."""
        values = {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return values | {"on_gpu": list(self.on_gpu), "disturbed": self.disturb}


def in_words(others: Mapping[str, Any] | None) -> str:
    """What a record says of others, as a sentence's part; empty where they did not disturb the run.

    >>> in_words({"disturbed": True, "cpu_share": 0.34, "largest": "stress (process 42)", "on_gpu": []})
    'other programs took 34% of its cores, most of it stress (process 42)'
    """
    if not others or not others["disturbed"]:
        return ""
    words = []
    if others["cpu_share"] >= BUSY:
        most = f", most of it {others['largest']}" if others["largest"] else ""
        words.append(f"other programs took {others['cpu_share']:.0%} of its cores{most}")
    if others["on_gpu"]:
        words.append(f"its GPU also computed for {', '.join(others['on_gpu'])}")
    return " and ".join(words)


def worse(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What disturbed a run more, of what two of its processes recorded."""
    return max((one, other), key=lambda told: (told is not None, told and (told["disturbed"], told["cpu_share"])))


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
        self._root = os.getpid() if root is None else root
        self._gpu, self._on_gpu = gpu, _on_gpu(gpu, self._root)
        self._cores = own_affinity() if cores is None else cores
        self._count = min(count or len(self._cores), len(self._cores))
        self._before = self._now()

    def others(self) -> Others:
        """What others took since."""
        before, now = self._before, self._now()
        elapsed = max(now["at"] - before["at"], 1e-9)
        whole = elapsed * self._count
        took = (now["busy"] - before["busy"]) - (now["own"] - before["own"])
        spare = elapsed * (len(self._cores) - self._count)  # that the run could not have used
        return Others(
            cpu_share=_share(took - spare, whole),
            steal_share=_share(now["steal"] - before["steal"], elapsed * len(self._cores)),
            waited_share=_share_or_none(before["waited"], now["waited"], whole),
            pressure_share=_share_or_none(before["pressure"], now["pressure"], elapsed),
            largest=self._largest(before["programs"], now["programs"], elapsed),
            on_gpu=tuple(sorted({*self._on_gpu, *_on_gpu(self._gpu, self._root)})),
        )

    def _now(self) -> dict[str, Any]:
        busy, steal = _busy_s(self._cores)
        family = _family(self._root)
        return {
            "at": time.monotonic(),
            "busy": busy,
            "steal": steal,
            "own": sum(map(_cpu_s, family)),
            "waited": _waited_s(),
            "pressure": _pressure_s(),
            "programs": _programs({process.pid for process in family}),
        }

    def _largest(self, before: Mapping[int, float], now: Mapping[int, float], elapsed: float) -> str | None:
        took = {pid: cpu_s - before.get(pid, 0.0) for pid, cpu_s in now.items()}
        for pid in sorted(took, key=took.get, reverse=True):
            if took[pid] < BUSY * elapsed:
                return None
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
    return not others_now().disturb


def _on_gpu(gpu: Device | None, root: int) -> list[str]:
    """The other processes that compute on a GPU; none where the driver does not tell, or no name is known here."""
    if gpu is None:
        return []
    with Nvml() as session:
        found, _ = occupants(gpu, session, root)
    # in a container the driver's numbers may be those of the host, and this run its own neighbour
    seen = [each for each in found if each.kind == "compute" and psutil.pid_exists(each.pid)]
    return [f"{each.name or 'a program'} (process {each.pid})" for each in seen if each.name != MPS_SERVER]


def own_affinity() -> Sequence[int]:
    """The logical CPUs that this process may use."""
    cores = range(psutil.cpu_count() or 1)
    if not hasattr(os, "sched_getaffinity"):
        return cores
    # a container may number its cores otherwise than the system's list does
    return [core for core in sorted(os.sched_getaffinity(0)) if core in cores] or cores


def _busy_s(cores: Sequence[int]) -> tuple[float, float]:
    """CPU seconds so far in which these cores were not idle, and of them those that other virtual machines had."""
    times = psutil.cpu_times(percpu=True)
    busy = steal = 0.0
    for core in cores:
        # guest time is in user time already
        ignored = ("idle", "iowait", "guest", "guest_nice")
        busy += sum(times[core]) - sum(getattr(times[core], name, 0.0) for name in ignored)
        steal += getattr(times[core], "steal", 0.0)
    return busy, steal


def _family(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and of those that it started and that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:  # it has just ended, and its parent has its time
        return 0.0
    ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return times.user + times.system + ended


def _programs(family: set[int]) -> dict[int, float]:
    """CPU seconds of every process that is not of the family."""
    found = {}
    for process in psutil.process_iter():
        if process.pid not in family:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
    return found


def _waited_s() -> float | None:
    """Seconds that threads of this process were ready and had no core (Linux' sched-stats.rst, field 2)."""
    try:
        tasks = list(Path("/proc/self/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9
    except (OSError, IndexError, ValueError):  # not Linux, a kernel without them, or a thread that has just ended
        return None


def _pressure_s() -> float | None:
    """Seconds in which some thread of this host waited for a core (Linux' accounting/psi.rst)."""
    try:
        found = re.search(r"^some .*total=(\d+)", Path("/proc/pressure/cpu").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) / 1e6 if found else None


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))


def _share_or_none(before: float | None, now: float | None, whole: float) -> float | None:
    return None if before is None or now is None else _share(now - before, whole)
