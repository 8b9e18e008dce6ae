"""Profiles made by hand, whose slowdowns can be worked out on paper."""

from labkit.collocation.interference.machine import Machine
from labkit.collocation.interference.solo_profile import SoloProfile

CPU = Machine("a CPU", cores=2, gflops=100.0, gb_per_s=10.0, cache_bytes=32_000_000)
GPU = Machine("a GPU", cores=16, gflops=60_000.0, gb_per_s=3000.0)


def cpu_job(step_time_ms=10.0, *, one_core_ms=None, crowded_ms=None, cpu_share=1.0, moved=None, touched=None):
    """A job that computes on both cores all the time, scales perfectly and moves nothing, where not said otherwise."""
    return SoloProfile(
        "job",
        CPU.device,
        CPU.cores,
        "measured",
        step_time_ms,
        cpu_share=cpu_share,
        step_time_one_core_ms=one_core_ms or 2 * step_time_ms,
        step_time_crowded_ms=crowded_ms or 2 * step_time_ms,
        bytes_per_step=moved,
        working_set_bytes=touched or moved,
    )


def gpu_job(busy, sm_active=None, sm_occupancy=None, dram_active=None):
    return SoloProfile(
        "job",
        GPU.device,
        GPU.cores,
        "measured",
        10.0,
        gpu_busy=busy,
        sm_active=sm_active,
        sm_occupancy=sm_occupancy,
        dram_active=dram_active,
    )
