"""What a queue counts with, from jobs that were profiled alone."""

from __future__ import annotations

import pytest

from labkit.collocation.interference.machine import Machine
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.packing.recorded_profiles import profile_from_solo
from labkit.errors import UserError

GIB = 2**30
GPU = Machine("a GPU", 4, 1e4, 1e3)


def solo(gpu_busy: float | None, **others) -> SoloProfile:
    return SoloProfile("dlrm:tour", "a GPU", 4, "measured", 10.0, gpu_busy=gpu_busy, **others)


def test_a_profile_takes_over_what_was_measured_alone():
    profile = profile_from_solo(solo(0.6, sm_active=0.3, memory_bytes=2 * GIB), 60, GIB)
    assert (profile.utilisation, profile.duration_s, profile.provenance) == (0.3, 60, "measured")
    assert (profile.memory_bytes, profile.memory_estimate_bytes) == (2 * GIB, GIB)
    assert profile_from_solo(solo(0.6), None, GIB).utilisation == 0.6
    assert profile_from_solo(solo(None, cpu_share=0.9), None, GIB).utilisation == 0.9
    with pytest.raises(UserError, match="no cpu_share"):
        profile_from_solo(solo(None), None, GIB)
