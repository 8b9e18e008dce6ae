"""Mode mig: each job on a MIG slice of its own, used as it is found, and the layout that would give each job one."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pynvml

from labkit.collocation.modes.gpu import gpu_share, gpu_text, why_occupied
from labkit.collocation.modes.place import Place, Refusal, Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.hardware.sizes import size_text

PLAIN = re.compile(r"\d+g\.\d+gb")
"""Profiles without the media or graphics engines that some variants add (1g.10gb+me) or lack."""
Span = tuple[int, int]
"""Where an instance lies: its first memory slice, and how many"""


@dataclass(frozen=True)
class MigProfile:
    """One size of GPU instance."""

    name: str
    """Such as 3g.20gb"""
    slices: int
    """Of the GPU's compute slices"""
    memory_bytes: int
    places: tuple[Span, ...]
    """Where it can lie"""


@dataclass(frozen=True)
class MigLayout:
    """GPU instances to make beside those that there are."""

    gpu_uuid: str
    instances: tuple[tuple[MigProfile, Span], ...]

    @property
    def tuples(self) -> str:
        """The instances as nvidia-smi takes them: profile and start, such as 3g.20gb:0,3g.20gb:4."""
        return ",".join(f"{profile.name}:{start}" for profile, (start, _) in self.instances)

    def make_command(self) -> list[str]:
        """The command that makes the instances, with a compute instance each."""
        return ["nvidia-smi", "mig", "-i", self.gpu_uuid, "-cgi", self.tuples, "-C"]

    def advice(self) -> str:
        """What an administrator types to make and to remove it, as a sentence."""
        remove = f"sudo nvidia-smi mig -i {self.gpu_uuid}"
        return (
            f"A layout that fits: `sudo {' '.join(self.make_command())}`, which prints the IDs of what it makes. To "
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
        refused.append((None, layout.advice() if layout else f"No other layout is proposed: {why}"))
    elif not jobs and not _slices(place.device, place):
        refused.append((None, f"MIG is on, but {gpu_text(place.device)} has no slice yet"))
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """A slice for each job.

    Raises:
        UserError: the slices have changed since `why_not` looked.
    """
    matched = matched_slices(jobs, place)
    if missing := [job.name for job in jobs if job.name not in matched]:
        raise UserError(f"There is no MIG slice for {', '.join(missing)}: the slices have changed since the check.")
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


def proposed_layout(jobs: Sequence[PlannedJob], place: Place) -> tuple[MigLayout | None, str | None]:
    """Instances to make, beside those that there are, for the jobs without a slice; or None and why there are none.

    Args:
        jobs: all that are to run together.
        place: whose device is a GPU with MIG, or a slice of it.
    """
    matched = matched_slices(jobs, place)
    without = [job for job in jobs if job.name not in matched]
    if not without:
        return None, "each job has a slice already"
    gpu = place.device
    profiles, taken, why = mig_profiles(gpu, place.nvml)
    if not profiles:
        return None, "the driver does not tell the GPU's profiles; `sudo nvidia-smi mig -lgip` lists them"
    if why is not None and _slices(gpu, place):
        return None, (
            f"what its instances leave free cannot be told ({why}): `sudo nvidia-smi mig -i {gpu.gpu_uuid} -lgi` lists "
            "them"
        )
    wishes = [(job.mig_profile, place.need(job) or 0) for job in without]
    layout = fitting_layout(gpu.gpu_uuid, wishes, profiles, taken)
    return layout, None if layout else "no layout of this GPU has a slice for each job beside what there is"


def fitting_layout(
    gpu_uuid: str, wishes: Sequence[tuple[str | None, int]], profiles: Sequence[MigProfile], taken: Sequence[Span] = ()
) -> MigLayout | None:
    """The layout with the largest equal slices in which each job has one; None where there is none.

    A job that asks for a profile gets that. Each other one gets the smallest slice that holds its memory and is no
    smaller than what all get: the whole GPU if that fits, then the next profile, and so on.

    Args:
        gpu_uuid: of the GPU.
        wishes: profile (None for any) and bytes of each job.
        profiles: what the GPU offers.
        taken: where other instances lie, which stay.
    """
    sizes = sorted(profiles, key=lambda each: (each.slices, each.memory_bytes, len(each.name)))
    plain = [each for each in sizes if PLAIN.fullmatch(each.name)]
    for least in reversed(plain):
        equal = [each for each in plain if each.slices >= least.slices and each.memory_bytes >= least.memory_bytes]
        chosen = []
        for name, need in wishes:
            offered = equal if name is None else [each for each in sizes if each.name == name]
            chosen.append(next((each for each in offered if each.memory_bytes >= need), None))
        if None in chosen:
            continue
        chosen.sort(key=lambda each: -each.memory_bytes)  # the large ones first: they have the fewest places
        if (placed := _placed(chosen, list(taken))) is not None:
            return MigLayout(gpu_uuid, tuple(zip(chosen, placed, strict=True)))
    return None


def mig_profiles(gpu: Device, nvml: Nvml) -> tuple[list[MigProfile], list[Span], str | None]:
    """The profiles that a GPU offers, where instances lie already, and why that cannot be told, or None.

    Args:
        gpu: a GPU or one of its slices.
        nvml: an open session; NVML tells where instances lie to administrators.
    """
    profiles, taken, why = [], [], None
    handle = nvml.read("nvmlDeviceGetHandleByUUID", gpu.gpu_uuid)
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT) if handle.reason is None else ():
        info = nvml.read("nvmlDeviceGetGpuInstanceProfileInfo", handle.value, kind).value
        if info is None:
            continue  # this GPU has none of this kind
        count = ctypes.c_uint(0)
        # NVML says how many places there are, then which
        nvml.read("nvmlDeviceGetGpuInstancePossiblePlacements", handle.value, info.id, None, ctypes.byref(count))
        found = (pynvml.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
        nvml.read("nvmlDeviceGetGpuInstancePossiblePlacements", handle.value, info.id, found, ctypes.byref(count))
        places = tuple((each.start, each.size) for each in found[: count.value])
        profiles.append(MigProfile(info.name.removeprefix("MIG "), info.sliceCount, info.memorySizeMB * 2**20, places))
        count = ctypes.c_uint(info.instanceCount)
        instances = (pynvml.c_nvmlGpuInstance_t * max(1, info.instanceCount))()
        why = (
            why or nvml.read("nvmlDeviceGetGpuInstances", handle.value, info.id, instances, ctypes.byref(count)).reason
        )
        for instance in instances[: count.value] if why is None else ():
            told = nvml.read("nvmlGpuInstanceGetInfo", instance)
            why = why or told.reason
            if told.reason is None:
                taken.append((told.value.placement.start, told.value.placement.size))
    return profiles, taken, why


def _placed(profiles: Sequence[MigProfile], taken: list[Span]) -> list[Span] | None:
    """A place for each profile that meets no other; tries them all, of which a GPU has at most eight."""
    if not profiles:
        return []
    for start, size in profiles[0].places:
        if all(start >= other + others_size or other >= start + size for other, others_size in taken):
            rest = _placed(profiles[1:], [*taken, (start, size)])
            if rest is not None:
                return [(start, size), *rest]
    return None


def _why_no_mig(device: Device) -> list[str]:
    if device.kind == "cpu":
        return ["mode mig divides a GPU, and the device is the CPU: use mode cpu-pinned, or choose a GPU"]
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
    there = _candidates(job, place)
    device = place.device_of(job)
    if job.mig_profile is not None:
        known = sorted(profile.name for profile in mig_profiles(device, place.nvml)[0])
        if known and job.mig_profile not in known:
            return (
                f"{job.name} asks for the profile {job.mig_profile}, which {device.name} does not have: it has "
                f"{', '.join(known)}"
            )
    need = place.need(job)
    largest = max((each.memory_bytes or 0 for each in there), default=0)
    if there and need is not None and need > largest:
        return f"{job.name} needs {size_text(need)}, and the largest slice has {size_text(largest)}"
    busy = [reason for each in there if (reason := why_occupied(each, place.nvml))]
    given = sum(each in matched.values() for each in there)
    wanted = f" of profile {job.mig_profile}" if job.mig_profile else ""
    listed = ", ".join(each.mig_profile or each.name for each in there) or "none"
    counted = f"slices: {listed}; {given} given to other jobs"
    return f"there is no free slice{wanted} for {job.name} ({'; '.join([counted, *busy])})"


def _names_a_slice(job: PlannedJob) -> bool:
    return job.device is not None and (job.device.startswith("MIG-") or ":" in job.device)


def _candidates(job: PlannedJob, place: Place) -> list[Device]:
    device = place.device_of(job)
    return [device] if _names_a_slice(job) else _slices(device, place)


def _slices(gpu: Device, place: Place) -> list[Device]:
    return [each for each in place.devices if each.kind == "mig" and each.gpu_uuid == gpu.gpu_uuid]
