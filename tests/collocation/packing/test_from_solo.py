"""The scheduler decides on the interference model's word."""

from __future__ import annotations

import pytest

from labkit.collocation.interference.machine import Machine
from labkit.collocation.interference.prediction import predict_slowdowns
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.from_solo import predicted_slowdown, profile_from_solo
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.policy import get_policy
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.simulate import simulate
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError

GIB = 2**30
GPU = Machine("a GPU", 4, 1e4, 1e3)


def solo(gpu_busy: float | None, **others) -> SoloProfile:
    return SoloProfile("dlrm:tour", "a GPU", 4, "measured", 10.0, gpu_busy=gpu_busy, **others)


def test_a_profile_takes_over_what_was_measured_alone():
    profile = profile_from_solo(solo(0.6, sm_active=0.3, memory_bytes=2 * GIB), 60)
    assert (profile.utilisation, profile.duration_s, profile.provenance) == (0.3, 60, "measured")
    assert profile.memory_bytes == profile.memory_estimate_bytes == 2 * GIB
    busy = profile_from_solo(solo(0.6, memory_bytes=2 * GIB), memory_estimate_bytes=GIB)
    assert (busy.utilisation, busy.memory_bytes, busy.memory_estimate_bytes) == (0.6, 2 * GIB, GIB)
    assert profile_from_solo(solo(None, cpu_share=0.9, memory_bytes=GIB)).utilisation == 0.9
    with pytest.raises(UserError, match="no memory_bytes"):
        profile_from_solo(solo(0.6))
    with pytest.raises(UserError, match="no cpu_share"):
        profile_from_solo(solo(None, memory_bytes=GIB))


def test_slowdowns_are_those_of_the_interference_model():
    alone = [solo(0.9, memory_bytes=GIB), solo(0.6, memory_bytes=GIB)]
    profiles = [profile_from_solo(each, 100) for each in alone]
    model = predicted_slowdown("naive", GPU)
    expected = [each.slowdown for each in predict_slowdowns(alone, "naive", GPU)]
    assert model(profiles) == expected and min(expected) > 1
    assert model(profiles[:1]) == [1.0]
    with pytest.raises(UserError, match="1 of 2 jobs on one device were never profiled alone"):
        model([profiles[0], JobProfile(GIB, 0.5, 100, GIB)])


def test_a_queue_is_packed_by_the_model():
    # SM activity is low, so that utilisations see no harm; the model sees two jobs that keep the GPU's time full
    profiles = [profile_from_solo(solo(1.0, sm_active=0.2, memory_bytes=GIB), 100)] * 2
    queue = [QueuedJob(PlannedJob(name, "dlrm"), 0.0, each) for name, each in zip("ab", profiles, strict=True)]
    device = [PackingDevice("gpu-0", 8 * GIB)]
    naive = simulate(queue, device, get_policy("best-fit"), slowdown=predicted_slowdown("naive", GPU))
    assert list(naive.jobs["starts_s"]) == pytest.approx([0, 100]), "it shared, though nothing was to be gained"
    by_utilisation = simulate(queue, device, get_policy("best-fit"))
    assert list(by_utilisation.jobs["starts_s"]) == [0, 0]
