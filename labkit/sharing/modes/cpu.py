"""Modes on a CPU: cpu-shared, plain processes on all cores, and cpu-pinned, each on cores and memory of its own."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.hardware import THREAD_VARIABLES, Device, leased_cores, own_cores, read_cpu, size_text
from labkit.sharing.modes.place import Place, Refusal, Share
from labkit.sharing.plan.planned_job import PlannedJob


def leased_cpu(device: Device, **how: Any) -> contextlib.AbstractContextManager[list[int]]:
    """Holds all cores of this process while jobs share them, as `lease_cores` takes them; of a GPU's jobs, none."""
    how = {"say": lambda words: print(words, file=sys.stderr)} | how
    return leased_cores(device.cores if device.kind == "cpu" else 0, **how)


def cpu_environment(spin: bool) -> dict[str, str]:
    """Variables of every job on a CPU: it sees no GPU; unless they may spin, idle threads give up their core.

    OpenMP's threads wait busily for their next loop, which is best alone and ruinous together: on two cores, two
    DLRM jobs of two threads each reached 0.19 of one job's throughput together so, and 1.25 with PASSIVE (measured).
    """
    return {"CUDA_VISIBLE_DEVICES": "-1"} | ({} if spin else {"OMP_WAIT_POLICY": "PASSIVE"})


def cpu_share(device: Device, spin: bool) -> Share:
    """A share of all cores, which nothing binds."""
    cores = f"{device.cores} core{'s' * (device.cores != 1)}"
    waits = ", threads that wait busily" if spin else ""
    return Share(f"{device.name}, all {cores}{waits}", cpu_environment(spin))


def all_cores(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """All cores for each job."""
    return {job.name: cpu_share(place.device_of(job), place.spin) for job in jobs}


def why_not_pinned(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the CPU cannot be divided so."""
    if not hasattr(os, "sched_setaffinity"):
        return [(None, "this system has no CPU affinity, so no job can be kept on its cores: use cpu-shared")]
    cores, memory, refused = place.devices[0].cores, read_cpu().memory_available_bytes, []
    for wish, there, text, of, at_most in (
        ("cores", cores, str, "cores", f"this process may use {cores}"),
        ("memory_bytes", memory, size_text, "of memory", f"{size_text(memory)} are free"),
    ):
        asked = {job.name: getattr(job, wish) for job in jobs if getattr(job, wish) is not None}
        total = sum(asked.values())
        if total > there or (total == there and len(asked) < len(jobs)):
            each = ", ".join(f"{name} {text(n)}" for name, n in asked.items())
            left = "" if total > there else ", and the others need some, too"
            why = f"the jobs ask for {text(total)} {of} together ({each}): {at_most}{left}; ask for less"
            refused.append((None, why))
    return refused


def partitions(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """Cores and memory of its own for each job; where there are more jobs than cores, several jobs have one."""
    cpu = place.devices[0]
    dealt = deal_cores(jobs, own_cores()[: cpu.cores])
    left = read_cpu().memory_available_bytes - sum(job.memory_bytes or 0 for job in jobs)
    others = sum(job.memory_bytes is None for job in jobs)
    found = {}
    for job in jobs:
        cores = dealt[job.name]
        beside = sum(1 for other in dealt.values() if set(other) & set(cores)) - 1
        words = f"{cpu.name}, core{'s' * (len(cores) > 1)} {', '.join(map(str, sorted(cores)))}"
        words += f" with {beside} other job{'s' * (beside > 1)}" if beside else ""
        memory = job.memory_bytes or left // others
        variables = cpu_environment(place.spin) | dict.fromkeys(THREAD_VARIABLES, str(len(cores)))
        found[job.name] = Share(f"{words}, {size_text(memory)}", variables, tuple(sorted(cores)), memory)
    return found


def deal_cores(jobs: Sequence[PlannedJob], order: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Cores for each job: as many as it asks for, and an equal share of the others for those that ask for none.

    Hardware threads of one core go to one job as far as the numbers allow, because they share its caches. Where
    there are more jobs than cores left, the cores are dealt round robin. `order` is the logical CPUs, one of every
    physical core first.
    """
    asking = [job for job in jobs if job.cores is not None]
    others = [job for job in jobs if job.cores is None]
    taken = order if others else order[: sum(job.cores for job in asking)]
    free = sorted(taken, key=lambda cpu: (_physical(cpu), cpu))
    dealt = {}
    for job in asking:
        dealt[job.name], free = tuple(free[: job.cores]), free[job.cores :]
    for place, job in enumerate(others):
        begin, end = place * len(free) // len(others), (place + 1) * len(free) // len(others)
        dealt[job.name] = tuple(free[begin:end]) if len(others) <= len(free) else (free[place % len(free)],)
    return dealt


def _physical(cpu: int) -> int:
    """The first logical CPU of the physical core that a logical CPU is of."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    first = re.match(r"\d+", siblings.read_text()) if siblings.is_file() else None
    return int(first[0]) if first else cpu
