"""Profiles for packing, and slowdowns, from jobs that were profiled alone."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.collocation.interference.machine import Machine
from labkit.collocation.interference.prediction import predict_slowdowns
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.packing.admission import Slowdown
from labkit.collocation.packing.job_profile import JobProfile
from labkit.errors import UserError


def profile_from_solo(
    solo: SoloProfile,
    duration_s: float | None = None,
    *,
    memory_estimate_bytes: int | None = None,
    power_w: float | None = None,
) -> JobProfile:
    """What a job asks for, from what it was alone.

    Args:
        solo: of the job. On a GPU its utilisation is the SM activity, as in CARMA, or else the share of the time in
            which a kernel ran; on a CPU, its share of all cores' time.
        duration_s: of the whole job alone; a solo profile is of a few of its steps.
        memory_estimate_bytes: as believed before it runs; what it was measured to hold if None.
        power_w: that it adds to the idle device.

    Raises:
        UserError: the profile says nothing of its utilisation, or of its memory.
    """
    shares = (solo.sm_active, solo.gpu_busy, solo.cpu_share)
    utilisation = next((share for share in shares if share), None) or solo.need("cpu_share")[0]
    return JobProfile(
        solo.need("memory_bytes")[0] if memory_estimate_bytes is None else memory_estimate_bytes,
        min(1.0, utilisation),
        duration_s,
        solo.memory_bytes,
        power_w,
        solo.provenance,
        f"{solo.job} alone on {solo.device}",
        solo,
    )


def predicted_slowdown(mode: str, machine: Machine) -> Slowdown:
    """The interference model as the scheduler and the simulator take it.

    Args:
        mode: in which the jobs of a device share it.
        machine: the device; where a queue has several, they are alike.
    """

    def slowdown(profiles: Sequence[JobProfile]) -> list[float]:
        if len(profiles) == 1:
            return [1.0]
        if any(profile.solo is None for profile in profiles):
            raise UserError(
                f"{sum(profile.solo is None for profile in profiles)} of {len(profiles)} jobs on one device were never "
                "profiled alone, and the interference model rests on that: profile them (profile_alone), or predict "
                "from utilisations (slowdown_by_utilisation)."
            )
        return [each.slowdown for each in predict_slowdowns([profile.solo for profile in profiles], mode, machine)]

    return slowdown
