"""Mode mig: each job on a MIG slice of its own, used as it is found, and the layout that would give each job one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pynvml

from labkit.collocation.modes.gpu import gpu_share, gpu_text, why_occupied
from labkit.collocation.modes.place import Place, Refusal, Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.hardware.sizes import size_text

PLAIN = re.compile(r"\d+g\.\d+gb")
"""Profiles without the media or graphics engines that some variants add (1g.10gb+me) or lack."""


class MigProfile(NamedTuple):
    """One size of GPU instance: its name, such as 3g.20gb, and how many more of it fit beside what there is."""

    slices: int
    memory_bytes: int
    name: str
    free: int | None
    """None where the driver tells that to administrators only"""


@dataclass(frozen=True)
class MigLayout:
    """Equal GPU instances to make beside those that there are."""

    gpu_uuid: str
    profile: str
    count: int

    @property
    def make_command(self) -> list[str]:
        """The command that makes the instances, with a compute instance each."""
        return ["nvidia-smi", "mig", "-i", self.gpu_uuid, "-cgi", ",".join([self.profile] * self.count), "-C"]

    def advice(self) -> str:
        """What an administrator types to make and to remove it, as a sentence."""
        remove = f"sudo nvidia-smi mig -i {self.gpu_uuid}"
        return (
            f"A layout that fits: `sudo {' '.join(self.make_command)}`, which prints the IDs of what it makes. To "
            f"undo it: `{remove} -dci -gi IDS && {remove} -dgi -gi IDS` with these IDs, such as 1,2"
        )


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot each have a slice, and a layout in which they could."""
    if refused := place.refusals(jobs, lambda device, _: _why_no_mig(device)):
        return refused
    matched = matched_slices(jobs, place)
    refused = [(job.name, _why_no_slice(job, matched, place)) for job in jobs if job.name not in matched]
    if refused:
        layout, why = proposed_layout(jobs, place)
        refused.append((None, layout.advice() if layout else f"no layout is proposed: {why}"))
    elif not jobs and not _slices(place.device, place):
        refused.append((None, f"MIG is on, but {gpu_text(place.device)} has no slice yet"))
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """A slice for each job; a KeyError where the slices have changed since `why_not` looked."""
    matched = matched_slices(jobs, place)
    return {job.name: gpu_share(matched[job.name]) for job in jobs}


def matched_slices(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Device]:
    """A free slice for each job by its name, as far as there are any; none is given twice.

    First choose those that name a slice, then those that ask for a profile, then the others, the largest first;
    each takes the smallest that fits.
    """
    matched: dict[str, Device] = {}
    free = {each: why_occupied(each, place.nvml) is None for each in place.devices if each.kind == "mig"}
    for job in sorted(
        jobs, key=lambda job: (not _names_a_slice(job), job.mig_profile is None, -(place.need(job) or 0))
    ):
        fitting = [
            each
            for each in _candidates(job, place)
            if free.get(each)
            and job.mig_profile in (None, each.mig_profile)
            and (place.need(job) or 0) <= (each.memory_bytes or 0)
        ]
        if fitting:
            matched[job.name] = min(fitting, key=lambda device: (device.memory_bytes or 0, device.sm_count or 0))
            free[matched[job.name]] = False
    return matched


def proposed_layout(jobs: Sequence[PlannedJob], place: Place) -> tuple[MigLayout | None, str]:
    """The largest equal instances that fit beside those that there are, one for each job without a slice.

    Args:
        jobs: all that are to run together.
        place: whose device is a GPU with MIG, or a slice of it.

    Returns:
        None, and why, where there is no such layout.
    """
    matched = matched_slices(jobs, place)
    without = [job for job in jobs if job.name not in matched]
    wanted = {job.mig_profile for job in without}
    need = max((place.need(job) or 0 for job in without), default=0)
    if len(wanted) > 1:
        return None, f"the jobs want slices that differ ({', '.join(sorted(map(str, wanted)))}): make them by hand"
    fitting, profiles = [], mig_profiles(place.device, place.nvml)
    for profile in profiles:
        named = profile.name in wanted or (wanted == {None} and PLAIN.fullmatch(profile.name))
        if named and profile.memory_bytes >= need:
            if profile.free is None:
                by_hand = f"sudo nvidia-smi mig -i {place.device.gpu_uuid} -lgip"
                return None, f"the driver tells administrators only what is free: `{by_hand}` lists it"
            fitting += [profile] * (profile.free >= len(without))
    if not fitting:
        offered = ", ".join(profile.name for profile in profiles)
        return None, f"beside what there is, no layout of this GPU has an equal slice for each job; it offers {offered}"
    return MigLayout(place.device.gpu_uuid, fitting[-1].name, len(without)), ""


def mig_profiles(gpu: Device, nvml: Nvml) -> list[MigProfile]:
    """The profiles that a GPU offers, the smallest first; none where it has no MIG, or the driver does not say.

    Args:
        gpu: a GPU or one of its slices.
        nvml: an open session.
    """
    found = []
    handle = nvml.read("nvmlDeviceGetHandleByUUID", gpu.gpu_uuid)
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT) if handle.reason is None else ():
        info = nvml.read("nvmlDeviceGetGpuInstanceProfileInfo", handle.value, kind).value
        if info is not None:  # else this GPU has none of this kind
            free = nvml.read("nvmlDeviceGetGpuInstanceRemainingCapacity", handle.value, info.id).value
            name = info.name.removeprefix("MIG ")
            found.append(MigProfile(info.sliceCount, info.memorySizeMB * 2**20, name, free))
    return sorted(found, key=lambda profile: profile[:3])


def _why_no_mig(device: Device) -> list[str]:
    if device.mig_mode == "on":
        return []
    if device.mig_mode is None:
        why = device.missing.get("mig_mode", "the driver does not say")
        return [f"{gpu_text(device)} has no MIG ({why}): use mode mps or naive"]
    return [
        f"MIG is off on {gpu_text(device)}, and labkit never turns it on: its administrator can while nobody uses the "
        f"GPU, with `sudo nvidia-smi -i {device.uuid} -mig 1` (off again with -mig 0)"
    ]


def _why_no_slice(job: PlannedJob, matched: dict[str, Device], place: Place) -> str:
    there, need = _candidates(job, place), place.need(job)
    wanted = f" of profile {job.mig_profile}" if job.mig_profile else ""
    wanted += f" with {size_text(need)}" if need else ""
    listed = ", ".join(f"{each.mig_profile} with {size_text(each.memory_bytes or 0)}" for each in there) or "none"
    busy = [reason for each in there if (reason := why_occupied(each, place.nvml))]
    counted = f"slices: {listed}; {sum(each in matched.values() for each in there)} given to other jobs"
    return f"there is no free slice{wanted} for {job.name} ({'; '.join([counted, *busy])})"


def _names_a_slice(job: PlannedJob) -> bool:
    return (job.device or "").startswith("MIG-")


def _candidates(job: PlannedJob, place: Place) -> list[Device]:
    device = place.device_of(job)
    return [device] if _names_a_slice(job) else _slices(device, place)


def _slices(gpu: Device, place: Place) -> list[Device]:
    return [each for each in place.devices if each.kind == "mig" and each.gpu_uuid == gpu.gpu_uuid]
