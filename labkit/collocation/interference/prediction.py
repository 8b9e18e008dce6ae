"""Predicts how much each of several jobs slows down when they share a device, from what each is alone.

`cpu_sharing`, `gpu_sharing` and `stretching` have the model, its equations and what it assumes. A slowdown is a step's
time beside the others over that alone, the normalised turnaround time of Eyerman and Eeckhout ("System-Level
Performance Metrics for Multiprogram Workloads", IEEE Micro 28(3), 2008); the sum of their inverses is the throughput
of all jobs together, in jobs that run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.collocation.interference.cpu_sharing import Slowed, pinned_cores, shared_cores
from labkit.collocation.interference.gpu_sharing import overlapping, sliced, time_sliced
from labkit.collocation.interference.machine import Machine
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.plan.plan import MODES
from labkit.errors import UserError


@dataclass(frozen=True)
class Prediction:
    """One job among those that share a device; its provenance is "predicted"."""

    job: str
    """As the profile names it"""
    mode: str
    """In which they share, one of `MODES`"""
    jobs: int
    """That share, this one among them"""
    slowdown: float
    """Time of its step over that alone"""
    why: str
    """What causes it, in words"""


def predict_slowdowns(
    profiles: Sequence[SoloProfile],
    mode: str,
    machine: Machine,
    *,
    cores: Sequence[float] | None = None,
    slices: Sequence[str] | None = None,
) -> list[Prediction]:
    """Predict the slowdown of each job, in the order of the profiles.

    Args:
        profiles: of the jobs, each alone on this machine.
        mode: one of `MODES`.
        machine: that they share.
        cores: that each job is bound to, for mode cpu-pinned, one that two jobs share counting half for each; None
            divides them equally.
        slices: each job's MIG profile, for mode mig.

    Raises:
        UserError: the mode is unknown, a profile lacks what it needs or is of another device, or the parts do not fit.
    """
    for profile in profiles:
        if profile.device != machine.device:
            raise UserError(
                f"{profile.job} was profiled on {profile.device}, and slowdowns on {machine.device} were asked for: "
                "profile it alone there."
            )
    if mode == "alone":
        slowed = [Slowed(1.0, "nothing") for _ in profiles]
    elif mode == "cpu-shared":
        slowed = shared_cores(profiles, machine)
    elif mode == "cpu-pinned":
        slowed = pinned_cores(profiles, machine, _partitions(len(profiles), machine, cores))
    elif mode == "naive":
        slowed = time_sliced(profiles)
    elif mode == "mps":
        slowed = overlapping(profiles)
    elif mode == "mig":
        if slices is None or len(slices) != len(profiles):
            raise UserError(f"mode mig with {len(profiles)} jobs: name one MIG profile a job, such as 3g.40gb.")
        slowed = sliced(profiles, slices)
    else:
        raise UserError(f"mode {mode!r} is unknown: choose one of {', '.join(MODES)}.")
    return [
        Prediction(profile.job, mode, len(profiles), each.slowdown, each.why)
        for profile, each in zip(profiles, slowed, strict=True)
    ]


def _partitions(jobs: int, machine: Machine, cores: Sequence[float] | None) -> list[float]:
    if cores is None:
        return [machine.cores // jobs or machine.cores / jobs] * jobs
    if len(cores) != jobs or min(cores) <= 0 or sum(cores) > machine.cores + 1e-9:
        raise UserError(
            f"mode cpu-pinned: {jobs} jobs cannot have {', '.join(f'{each:g}' for each in cores)} of the "
            f"{machine.cores} cores there are: give a number above zero a job, and no more than all in sum."
        )
    return list(cores)
