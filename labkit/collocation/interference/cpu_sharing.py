"""Predicts how jobs slow each other down on the cores of one CPU.

In three stages, each from what was measured of the jobs alone; nothing is fitted to jobs that ran together.

1. Cores. *Pinned*, job i has c_i cores of its own, and its step takes, between its times T₁ on one and T_C on all C,

       T(c) = p + q / c                       (Amdahl's law; p and q from T₁ and T_C)

   *Shared*, the system gives all threads turns. Jobs that together want more than there is get equal shares, and what
   one does not want goes to the others (max-min fairness):  a_i = min(d_i, λ) with Σ a_i = C, where d_i = C · (its
   share of the CPU alone). Job i then sees the cores that the others leave, C − Σ_{j≠i} a_j, but with all of its
   threads, which take turns on them. What that costs is T_X, measured with all threads on half of the cores:
   T(c) runs through T_X and T_C as above; below half of the cores it is T_X · max(1, b / c), where b are the cores that
   it keeps busy there. T_X is not T₁: threads that wait for each other at every operator wait for one that is not
   running.

2. Cache. A step that touches W_i bytes finds in a last-level cache of L bytes a share h = min(1, L / ΣW) of them, where
   alone it was min(1, L / W_i). What it no longer finds comes from memory of bandwidth M: (h_alone − h) · B_i / M more,
   B_i being the bytes of a step.

3. Bandwidth. Of its step it then waits (1 − h) · B_i / M for memory, and where all jobs ask for more than M this time
   stretches (`stretching`).

The slowdown is the time so found over that in mode alone, T_C but for the busy waits. It can be below 1: where a
job's threads wait for each other for longer than they gain, it is faster with fewer of them. Arithmetic units belong
to cores, so stage 1 covers them. Not in the model: clocks that fall when more cores are busy, cores that are two
threads of one (SMT), and an uneven L.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.collocation.interference.machine import Machine
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.interference.stretching import stretched

WORTH_A_NAME = 0.05
"""Part of a step that a cause must add to be named; what is less drowns in noise."""


@dataclass(frozen=True)
class Slowed:
    """A job beside others."""

    slowdown: float
    """Its step's time over that alone"""
    why: str
    """The cause that weighs most, in words"""


def shared_cores(profiles: Sequence[SoloProfile], machine: Machine) -> list[Slowed]:
    """Jobs whose threads take turns on all cores (mode cpu-shared)."""
    demands = [machine.cores * profile.need("cpu_share")[0] for profile in profiles]
    given = fair_shares(demands, machine.cores)
    seen = [machine.cores - sum(given) + own for own in given]
    times = [_crowded_ms(profile, cores, machine.cores) for profile, cores in zip(profiles, seen, strict=True)]
    return _with_memory(profiles, machine, times)


def pinned_cores(profiles: Sequence[SoloProfile], machine: Machine, cores: Sequence[float]) -> list[Slowed]:
    """Jobs bound to so many cores each, with as many threads; half a core is one for two jobs (mode cpu-pinned)."""
    times = [_few_cores_ms(profile, own, machine.cores) for profile, own in zip(profiles, cores, strict=True)]
    return _with_memory(profiles, machine, times)


def fair_shares(demands: Sequence[float], capacity: float) -> list[float]:
    """What each gets of a capacity that is shared max-min fairly: nobody gets more than it wants.

    >>> fair_shares([0.5, 2.0, 2.0], 2.0)
    [0.5, 0.75, 0.75]
    """
    given, left = [0.0] * len(demands), capacity
    waiting = sorted(range(len(demands)), key=demands.__getitem__)
    while waiting:
        job = waiting[0]
        given[job] = min(demands[job], left / len(waiting))
        left -= given[job]
        waiting = waiting[1:]
    return given


def _few_cores_ms(profile: SoloProfile, cores: float, all_cores: int) -> float:
    one_ms = profile.step_time_one_core_ms
    if one_ms is None:
        one_ms = _cpu_time_ms(profile)
    return one_ms / cores if cores <= 1 else _between(cores, 1, one_ms, all_cores, profile.step_time_ms)


def _crowded_ms(profile: SoloProfile, cores: float, all_cores: int) -> float:
    half = max(1, all_cores // 2)
    half_ms = profile.step_time_crowded_ms
    if half_ms is None:
        half_ms = max(profile.step_time_ms, _cpu_time_ms(profile) / half)
    if cores <= half:
        busy = min(half, _cpu_time_ms(profile) / half_ms)
        return half_ms * max(1.0, busy / cores)
    return _between(cores, half, half_ms, all_cores, profile.step_time_ms)


def _cpu_time_ms(profile: SoloProfile) -> float:
    """CPU time of a step: what it would take on one core, if nothing else changed."""
    return profile.need("cpu_share")[0] * profile.cores * profile.step_time_ms


def _between(cores: float, few: int, few_ms: float, many: int, many_ms: float) -> float:
    """On the line through two times over 1 / cores."""
    if many == few:
        return many_ms
    weight = (1 / cores - 1 / many) / (1 / few - 1 / many)
    return many_ms + weight * (few_ms - many_ms)


def _with_memory(profiles: Sequence[SoloProfile], machine: Machine, times_ms: list[float]) -> list[Slowed]:
    """Stages 2 and 3, after the times that the cores make."""
    touched = sum(profile.working_set_bytes or 0 for profile in profiles)
    grown, demands = [], []
    for profile, time_ms in zip(profiles, times_ms, strict=True):
        moving_ms = (profile.bytes_per_step or 0) / machine.gb_per_s / 1e6
        hit, hit_alone = (_hit(machine, size) for size in (touched, profile.working_set_bytes or 0))
        grown.append((hit_alone - hit) * moving_ms)
        demands.append([min(1.0, (1 - hit) * moving_ms / (time_ms + grown[-1]))])
    stretches, _ = stretched(demands)
    slowed = []
    for profile, time_ms, more_ms, stretch in zip(profiles, times_ms, grown, stretches, strict=True):
        total_ms = (time_ms + more_ms) * stretch
        causes = {
            "cores: it has fewer of them, or must take turns": time_ms - profile.alone_ms,
            "cache: the others' data takes its place": more_ms,
            "memory bandwidth: together they ask for more than there is": total_ms - time_ms - more_ms,
        }
        cause, weight = max(causes.items(), key=lambda each: each[1])
        if weight > WORTH_A_NAME * profile.alone_ms:
            why = cause
        elif total_ms < (1 - WORTH_A_NAME) * profile.alone_ms:
            why = "nothing: its own threads wait for each other less on fewer cores"
        else:
            why = "nothing"
        slowed.append(Slowed(total_ms / profile.alone_ms, why))
    return slowed


def _hit(machine: Machine, touched_bytes: float) -> float:
    """Share of what is touched that the last-level cache holds."""
    if machine.cache_bytes is None or not touched_bytes:
        return 0.0
    return min(1.0, machine.cache_bytes / touched_bytes)
