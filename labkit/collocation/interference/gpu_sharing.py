"""Predicts how jobs slow each other down on one GPU.

*Naive*: kernels of different processes take turns and never overlap (NVIDIA, "Multi-Process Service", When to Use MPS),
so the one resource is the GPU's time. Alone, job i keeps it busy for the share f_i; together, where Σ f_i > 1, that
time stretches (`stretching`). This is a bound from below: switching between processes costs, and kernels collide also
where Σ f_i < 1.

*MPS*: kernels overlap, and share each resource by itself: places for warps (the occupancy of the
multiprocessors) and the bandwidth of memory. Where occupancy is unknown, a multiprocessor with any warp counts as full.
The same `stretching`, with two resources. The caches of the GPU, and the host's cores that launch kernels, are not in
the model.

*MIG*: job i has the share s_i of the multiprocessors and m_i of the memory to itself, and neighbours do not matter. In
the time f_i in which its kernels run they use sm_i / f_i of the multiprocessors and dram_i / f_i of the bandwidth, so

    slowdown_i = 1 − f_i + f_i · max(1, sm_i / (f_i s_i), dram_i / (f_i m_i))
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from labkit.collocation.interference.cpu_sharing import Slowed
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.interference.stretching import stretched
from labkit.errors import UserError

SLICES, MEMORY_SLICES = 7, 8
"""Of an A100, H100 and H200 (NVIDIA MIG User Guide, "Concepts")."""
MEMORY_OF_SLICES = {
    # 40 GB, on which 1g.10gb would be two slices: it is taken for that of 80 GB, which is more common
    (1, 5): 1,
    (2, 10): 2,
    (3, 20): 4,
    (4, 20): 4,
    (7, 40): 8,
    (1, 10): 1,
    (1, 20): 2,
    (2, 20): 2,
    (3, 40): 4,
    (4, 40): 4,
    (7, 80): 8,
}
"""Memory slices by compute slices and GB (the same guide, "Supported MIG Profiles": A100 and H100)."""
WIDE = 1.05
"""From this stretch on, the slice is what binds."""


def time_sliced(profiles: Sequence[SoloProfile]) -> list[Slowed]:
    """Processes that take turns (mode naive)."""
    slowdowns, binding = stretched([profile.need("gpu_busy") for profile in profiles])
    said = "the GPU's time: kernels of different processes take turns"
    return [
        Slowed(slowdown, "nothing" if bound is None else said)
        for slowdown, bound in zip(slowdowns, binding, strict=True)
    ]


def overlapping(profiles: Sequence[SoloProfile]) -> list[Slowed]:
    """Kernels that run at once (mode mps)."""
    names = ("the multiprocessors' places for warps", "the GPU's memory bandwidth")
    demands = [[_warps(profile), *profile.need("dram_active")] for profile in profiles]
    slowdowns, binding = stretched(demands)
    return [
        Slowed(slowdown, "nothing" if bound is None else names[bound])
        for slowdown, bound in zip(slowdowns, binding, strict=True)
    ]


def _warps(profile: SoloProfile) -> float:
    return profile.sm_occupancy if profile.sm_occupancy is not None else profile.need("sm_active")[0]


def sliced(profiles: Sequence[SoloProfile], slices: Sequence[str]) -> list[Slowed]:
    """Jobs in slices of their own, each named as "3g.40gb" (mode mig)."""
    slowed = []
    for profile, name in zip(profiles, slices, strict=True):
        busy, sm, dram = profile.need("gpu_busy", "sm_active", "dram_active")
        multiprocessors, memory = slice_shares(name)
        needs = {"its slice's multiprocessors": sm / multiprocessors, "its slice's memory bandwidth": dram / memory}
        what, most = max(needs.items(), key=lambda need: need[1])
        stretch = max(1.0, most / busy) if busy else 1.0
        slowed.append(Slowed(1 - busy + busy * stretch, what if stretch > WIDE else "nothing"))
    return slowed


def slice_shares(name: str) -> tuple[float, float]:
    """Shares of a GPU's multiprocessors and memory bandwidth that a MIG profile has.

    >>> slice_shares("3g.40gb") == (3 / 7, 0.5)
    True

    Raises:
        UserError: it is no name of a profile.
    """
    found = re.fullmatch(r"(\d)g\.(\d+)gb", name)
    if not found or (int(found[1]), int(found[2])) not in MEMORY_OF_SLICES:
        raise UserError(
            f"What share of its GPU the MIG profile {name!r} has is not known: name one of those of an A100 or H100, "
            f"{', '.join(f'{slices}g.{gb}gb' for slices, gb in MEMORY_OF_SLICES)}."
        )
    slices, gb = int(found[1]), int(found[2])
    return slices / SLICES, MEMORY_OF_SLICES[slices, gb] / MEMORY_SLICES
