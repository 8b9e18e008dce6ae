"""Mode cpu-pinned: each job on cores and memory of its own, the CPU's MIG."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from labkit.collocation.modes.cpu import cpu_environment, why_no_cpu
from labkit.collocation.modes.place import Place, Refusal
from labkit.collocation.modes.share import Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.budgets.budget import THREAD_VARIABLES
from labkit.hardware.cpu import read_cpu
from labkit.hardware.leases import own_cores
from labkit.hardware.sizes import size_text


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the CPU cannot be divided so."""
    used, refused = place.devices_of(jobs)
    for device in dict.fromkeys(used.values()) or [place.device]:
        refused += [(None, reason) for reason in why_no_cpu(device, "cpu-pinned", "mig or mps")]
    if not hasattr(os, "sched_setaffinity"):
        refused.append((None, "this system has no CPU affinity, so no job can be kept on its cores: use cpu-shared"))
    if not refused:
        refused += _cores_refused(jobs, place.devices[0].cores) + _memory_refused(jobs, place)
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """Cores and memory of its own for each job; where there are more jobs than cores, several jobs have one."""
    cpu = place.devices[0]
    dealt = deal_cores(jobs, own_cores()[: cpu.cores])
    memory = deal_memory(jobs, read_cpu().memory_available_bytes)
    found = {}
    for job in jobs:
        cores = dealt[job.name]
        beside = sum(1 for other in dealt.values() if set(other) & set(cores)) - 1
        numbers = ", ".join(str(core) for core in sorted(cores))
        words = f"{cpu.name}, core{'s' * (len(cores) > 1)} {numbers}"
        words += f" with {beside} other job{'s' * (beside > 1)}" if beside else ""
        threads = dict.fromkeys(THREAD_VARIABLES, str(len(cores)))
        found[job.name] = Share(
            f"{words}, {size_text(memory[job.name])}",
            cpu_environment(place.spin) | threads,
            cores=tuple(sorted(cores)),
            memory_bytes=memory[job.name],
        )
    return found


def deal_cores(jobs: Sequence[PlannedJob], order: Sequence[int], root: Path = Path("/")) -> dict[str, tuple[int, ...]]:
    """Cores for each job: as many as it asks for, and an equal share of the others for those that ask for none.

    Hardware threads of one core go to one job as far as the numbers allow, because they share its caches. Where
    there are more jobs than cores left, the cores are dealt round robin.

    Args:
        jobs: none of which asks for more than there is.
        order: the logical CPUs, one of every physical core first.
        root: the root of the file system, for tests.
    """
    asking, others = _asking(jobs, "cores")
    wanted = [job.cores for job in asking]
    left = len(order) - sum(wanted)
    crowded = len(others) > left
    dealt_out = asking if crowded else [*asking, *others]
    if not crowded:
        # the first ones get what does not divide
        wanted += [left // len(others) + (place < left % len(others)) for place in range(len(others))]
    taken = order[: len(order) if crowded else sum(wanted)]
    together = sorted(taken, key=lambda cpu: (_physical(cpu, root), cpu))
    dealt, start = {}, 0
    for job, count in zip(dealt_out, wanted, strict=True):
        dealt[job.name] = tuple(together[start : start + count])
        start += count
    if crowded:
        dealt |= {job.name: (together[start + place % left],) for place, job in enumerate(others)}
    return dealt


def deal_memory(jobs: Sequence[PlannedJob], available_bytes: int) -> dict[str, int]:
    """Bytes for each job: what it asks for, and an equal share of the rest for those that ask for none."""
    asking, others = _asking(jobs, "memory_bytes")
    left = available_bytes - sum(job.memory_bytes for job in asking)
    return {job.name: job.memory_bytes or left // len(others) for job in jobs}


def _asking(jobs: Sequence[PlannedJob], wish: str) -> tuple[list[PlannedJob], list[PlannedJob]]:
    asking = [job for job in jobs if getattr(job, wish) is not None]
    return asking, [job for job in jobs if getattr(job, wish) is None]


def _cores_refused(jobs: Sequence[PlannedJob], cores: int) -> list[Refusal]:
    asking, others = _asking(jobs, "cores")
    there = f"this process may use {cores}"
    refused = [(job.name, f"{job.name} asks for {job.cores} cores: {there}") for job in asking if job.cores > cores]
    asked = sum(job.cores for job in asking)
    if not refused and asked > cores:
        each = ", ".join(f"{job.name} {job.cores}" for job in asking)
        refused.append((None, f"the jobs ask for {asked} cores together ({each}): {there}, so ask for fewer"))
    elif not refused and others and asked == cores:
        refused += [(job.name, f"no core is left for {job.name}: the others ask for all {cores}") for job in others]
    return refused


def _memory_refused(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    available = read_cpu().memory_available_bytes
    asking, others = _asking(jobs, "memory_bytes")
    there = f"{size_text(available)} are free"
    refused = [
        (job.name, f"{job.name} asks for {size_text(job.memory_bytes)} of memory: {there}")
        for job in asking
        if job.memory_bytes > available
    ]
    asked = sum(job.memory_bytes for job in asking)
    if refused:
        return refused
    if asked > available or (others and asked == available):
        each = ", ".join(f"{job.name} {size_text(job.memory_bytes)}" for job in asking)
        return [(None, f"the jobs ask for {size_text(asked)} of memory together ({each}): {there}, so ask for less")]
    dealt = deal_memory(jobs, available)
    for job in others:
        need = place.needs.get(job.name)
        if need is not None and need > dealt[job.name]:
            refused.append(
                (
                    job.name,
                    f"{job.name} needs {size_text(need)} by its estimate, and its partition has "
                    f"{size_text(dealt[job.name])}: run fewer jobs together, or give each its memory",
                )
            )
    return refused


def _physical(cpu: int, root: Path) -> int:
    """The first logical CPU of the physical core that a logical CPU is of."""
    siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    first = re.match(r"\d+", siblings.read_text()) if siblings.is_file() else None
    return int(first[0]) if first else cpu
