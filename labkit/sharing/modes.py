"""The modes: which are possible here, what is against one, and each job's share in it; MIG slices, used as found."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pynvml

from labkit import UserError, hardware, launch, telemetry
from labkit.sharing import shares
from labkit.sharing.shares import Place, Refusal, Share, gpu_share, gpu_text, why_occupied

CAPACITY = "nvmlDeviceGetGpuInstanceRemainingCapacity"
PLAIN = re.compile(r"\d+g\.\d+gb")
"""Profiles without the media or graphics engines that some variants add (1g.10gb+me) or lack."""


def why_no_slices(jobs: Sequence[launch.PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot each have a slice, and a layout in which they could."""
    if refused := place.refusals(jobs, lambda device, _: _why_no_mig(device)):
        return refused
    matched = matched_slices(jobs, place)
    if without := [job for job in jobs if job.name not in matched]:
        reasons = [(job.name, _why_no_slice(job, matched, place)) for job in without]
        return [*reasons, (None, _layout_text(without, place))]
    if not jobs and not _slices(place.device, place):
        return [(None, f"MIG is on, but {gpu_text(place.device)} has no slice yet")]
    return []


def slices(jobs: Sequence[launch.PlannedJob], place: Place) -> dict[str, Share]:
    """A slice for each job; a KeyError where the slices have changed since `why_no_slices` looked."""
    matched = matched_slices(jobs, place)
    return {job.name: gpu_share(matched[job.name]) for job in jobs}


def matched_slices(jobs: Sequence[launch.PlannedJob], place: Place) -> dict[str, hardware.Device]:
    """A free slice for each job by its name, as far as there are any; none is given twice.

    First choose those that name a slice, then those that ask for a profile, then the others, the largest first;
    each takes the smallest that fits.
    """
    matched: dict[str, hardware.Device] = {}
    free = {each for each in place.devices if each.kind == "mig" and why_occupied(each, place.nvml) is None}

    def rank(job: launch.PlannedJob) -> tuple:
        return not _names_a_slice(job), job.mig_profile is None, -(place.need(job) or 0)

    for job in sorted(jobs, key=rank):
        named = [each for each in _candidates(job, place) if job.mig_profile in (None, each.mig_profile)]
        if fitting := [each for each in named if each in free and (place.need(job) or 0) <= (each.memory_bytes or 0)]:
            matched[job.name] = min(fitting, key=lambda device: (device.memory_bytes or 0, device.sm_count or 0))
            free.remove(matched[job.name])
    return matched


def _layout_text(without: Sequence[launch.PlannedJob], place: Place) -> str:
    """Commands for the largest equal instances that fit next to the existing ones, one for each job without a slice.

    Where no layout is proposed, the text says why.
    """
    wanted = {job.mig_profile for job in without}
    need = max(place.need(job) or 0 for job in without)
    if len(wanted) > 1:
        profiles = ", ".join(sorted(map(str, wanted)))
        return f"no layout is proposed: the jobs want slices that differ ({profiles}): make them by hand"
    nvml, uuid, offered, fitting = place.nvml, place.device.gpu_uuid, [], []
    nvidia_smi = f"sudo nvidia-smi mig -i {uuid}"
    handle = nvml.read("nvmlDeviceGetHandleByUUID", uuid).value
    kinds = range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
    infos = (nvml.read("nvmlDeviceGetGpuInstanceProfileInfo", handle, kind).value for kind in kinds)
    for info in filter(None, infos):  # a GPU has some of all kinds
        name, free = info.name.removeprefix("MIG "), nvml.read(CAPACITY, handle, info.id).value
        if free is None:
            why = f"the driver reports only to administrators what is free: `{nvidia_smi} -lgip` lists it"
            return f"no layout is proposed: {why}"
        offered.append(name)
        named = name in wanted or (wanted == {None} and PLAIN.fullmatch(name))
        if named and info.memorySizeMB * 2**20 >= need and free >= len(without):
            fitting.append((info.sliceCount, info.memorySizeMB, name))
    if not fitting:
        why = f"no layout of this GPU has an equal slice for each job; it offers {', '.join(sorted(offered))}"
        return f"no layout is proposed: next to what there is, {why}"
    profile = max(fitting)[2]
    return (
        f"A layout that fits: `{nvidia_smi} -cgi {','.join([profile] * len(without))} -C`, which prints the IDs of "
        f"what it makes. To undo it: `{nvidia_smi} -dci -gi IDS && {nvidia_smi} -dgi -gi IDS` with these IDs, such as "
        "1,2"
    )


def _why_no_mig(device: hardware.Device) -> list[str]:
    if device.mig_mode == "on":
        return []
    if device.mig_mode is None:
        why = device.missing.get("mig_mode", "the driver does not say")
        return [f"{gpu_text(device)} has no MIG ({why}): use mode mps or naive"]
    return [
        f"MIG is off on {gpu_text(device)}, and labkit never turns it on: its administrator can while no process uses "
        f"the GPU, with `sudo nvidia-smi -i {device.uuid} -mig 1` (off again with -mig 0)"
    ]


def _why_no_slice(job: launch.PlannedJob, matched: dict[str, hardware.Device], place: Place) -> str:
    there, need = _candidates(job, place), place.need(job)
    wanted = f" of profile {job.mig_profile}" if job.mig_profile else ""
    wanted += f" with {hardware.size_text(need)}" if need else ""
    sizes = [f"{each.mig_profile} with {hardware.size_text(each.memory_bytes or 0)}" for each in there]
    busy = [reason for each in there if (reason := why_occupied(each, place.nvml))]
    given = sum(each in matched.values() for each in there)
    counted = f"slices: {', '.join(sizes) or 'none'}; {given} given to other jobs"
    return f"there is no free slice{wanted} for {job.name} ({'; '.join([counted, *busy])})"


def _candidates(job: launch.PlannedJob, place: Place) -> list[hardware.Device]:
    device = place.device_of(job)
    return [device] if _names_a_slice(job) else _slices(device, place)


def _names_a_slice(job: launch.PlannedJob) -> bool:
    return (job.device or "").startswith("MIG-")


def _slices(gpu: hardware.Device, place: Place) -> list[hardware.Device]:
    return [each for each in place.devices if each.kind == "mig" and each.gpu_uuid == gpu.gpu_uuid]


def _alone(jobs: Sequence[launch.PlannedJob], place: Place) -> dict[str, Share]:
    """The whole device for each job, one after another.

    With no other job, a job on a CPU is faster if its threads wait busily, as OpenMP's do by default; but where
    other programs run, that makes it many times slower than it is.
    """
    devices = {job.name: place.device_of(job) for job in jobs}
    on_cpu = any(device.kind == "cpu" for device in devices.values())
    quiet = telemetry.is_quiet() if on_cpu and place.quiet is None else place.quiet
    return {
        name: shares.cpu_share(device, bool(quiet)) if device.kind == "cpu" else gpu_share(device)
        for name, device in devices.items()
    }


BY_NAME = {
    "alone": (lambda jobs, place: place.refusals(jobs, lambda gpu, _: shares.why_no_gpu(gpu, place.nvml)), _alone),
    "naive": (
        lambda jobs, place: place.refusals(
            jobs, lambda gpu, count: shares.why_no_gpu(gpu, place.nvml, shared=count != 1)
        ),
        lambda jobs, place: {job.name: gpu_share(place.device_of(job), "time slices of ") for job in jobs},
    ),
    "mps": (shares.why_not_mps, shares.mps),
    "mig": (why_no_slices, slices),
    "cpu-shared": (
        lambda jobs, place: [],
        lambda jobs, place: {job.name: shares.cpu_share(place.device_of(job), place.spin) for job in jobs},
    ),
    "cpu-pinned": (shares.why_not_pinned, shares.partitions),
}
"""What is against each of MODES, and each job's share in it"""
INSTEAD = {
    "naive": "cpu-shared", "mps": "cpu-shared", "mig": "cpu-pinned", "cpu-shared": "naive", "cpu-pinned": "mig or mps",
}  # fmt: skip
"""On the other kind of device"""


def mode_refusals(mode: str, jobs: Sequence[launch.PlannedJob], place: Place) -> list[Refusal]:
    """Every reason against running the jobs so, with the job's name, or None where it is the mode's."""
    return kind_refusals(mode, jobs, place) or BY_NAME[mode][0](jobs, place)


def kind_refusals(mode: str, jobs: Sequence[launch.PlannedJob], place: Place) -> list[Refusal]:
    """The reasons that the kind of the device is against: a CPU has no modes of a GPU."""

    def other_kind(device: hardware.Device, _: int) -> list[str]:
        if mode == "alone" or (device.kind == "cpu") == (mode in launch.CPU_MODES):
            return []
        shares, choose = ("a GPU", "a GPU") if device.kind == "cpu" else ("the CPU", "the device cpu")
        name = "the CPU" if device.kind == "cpu" else device.name
        return [f"mode {mode} shares {shares}, and the device is {name}: use mode {INSTEAD[mode]}, or choose {choose}"]

    return place.refusals(jobs, other_kind)


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
            places = [Place(each, devices, session) for each in asked]
            against = [[reason for _, reason in mode_refusals(mode, (), place)] for place in places]
            if not against:
                why = f" ({session.reason})" if session.reason else ""
                found[mode] = f"mode {mode} shares a GPU, and there is none here that CUDA can use{why}"
            else:
                found[mode] = None if [] in against else "; ".join(against[0])
    return found
