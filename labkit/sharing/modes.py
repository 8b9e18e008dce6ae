"""The modes: which are possible here, what is against one, and what each job gets in it."""

from __future__ import annotations

from collections.abc import Sequence

from labkit import UserError, hardware, launch, telemetry
from labkit.sharing import gpu, mig, shares
from labkit.sharing.shares import Place, Refusal, Share


def _alone(jobs: Sequence[launch.PlannedJob], place: Place) -> dict[str, Share]:
    """The whole device for each job, one after another.

    With no other job, a job on a CPU is faster if its threads wait busily, as OpenMP's do by default; but where
    other programs run, that makes it many times slower than it is.
    """
    devices = {job.name: place.device_of(job) for job in jobs}
    on_cpu = any(device.kind == "cpu" for device in devices.values())
    quiet = telemetry.is_quiet() if on_cpu and place.quiet is None else place.quiet
    return {
        name: shares.cpu_share(device, quiet) if device.kind == "cpu" else gpu.gpu_share(device)
        for name, device in devices.items()
    }


BY_NAME = {
    "alone": (lambda jobs, place: place.refusals(jobs, lambda gpu_, _: gpu.why_no_gpu(gpu_, place.nvml)), _alone),
    "naive": (gpu.why_not_naive, gpu.naive),
    "mps": (gpu.why_not_mps, gpu.mps),
    "mig": (mig.why_not, mig.shares),
    "cpu-shared": (lambda jobs, place: [], shares.all_cores),
    "cpu-pinned": (shares.why_not_pinned, shares.partitions),
}
"""What is against each of MODES, and what each job gets in it"""
INSTEAD = {
    "naive": "cpu-shared", "mps": "cpu-shared", "mig": "cpu-pinned", "cpu-shared": "naive", "cpu-pinned": "mig or mps",
}  # fmt: skip
"""On the other kind of device"""


def mode_refusals(mode: str, jobs: Sequence[launch.PlannedJob], place: Place) -> list[Refusal]:
    """Every reason against running the jobs so, with the job's name, or None where it is the mode's."""

    def other_kind(device: hardware.Device, _: int) -> list[str]:
        if mode == "alone" or (device.kind == "cpu") == (mode in launch.CPU_MODES):
            return []
        shares, choose = ("a GPU", "a GPU") if device.kind == "cpu" else ("the CPU", "the device cpu")
        name = "the CPU" if device.kind == "cpu" else device.name
        return [f"mode {mode} shares {shares}, and the device is {name}: use mode {INSTEAD[mode]}, or choose {choose}"]

    return place.refusals(jobs, other_kind) or BY_NAME[mode][0](jobs, place)


def mode_shares(mode: str, jobs: Sequence[launch.PlannedJob], place: Place) -> dict[str, Share]:
    """What each job gets, by its name; a UserError with every reason where the mode is not possible so."""
    if refused := mode_refusals(mode, jobs, place):
        raise UserError("\n".join(f"Mode {mode}: {reason}." for _, reason in refused))
    return BY_NAME[mode][1](jobs, place)


def modes_here(devices: Sequence[hardware.Device], nvml: hardware.Nvml | None = None) -> dict[str, str | None]:
    """Each mode, with the reason why none of the devices (the CPU first) has it, or None where one has."""
    found: dict[str, str | None] = {}
    with nvml or hardware.Nvml() as session:
        for mode in BY_NAME:
            # a GPU's reason says more than that the CPU is none
            asked = devices if mode in ("alone", *launch.CPU_MODES) else devices[1:]
            against = [
                [reason for _, reason in mode_refusals(mode, (), Place(each, devices, session))] for each in asked
            ]
            if not against:
                why = f" ({session.reason})" if session.reason else ""
                found[mode] = f"mode {mode} shares a GPU, and there is none here that CUDA can use{why}"
            else:
                found[mode] = None if [] in against else "; ".join(against[0])
    return found
