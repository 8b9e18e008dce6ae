"""The MIG profiles that a GPU offers, and where on it they fit."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass

import pynvml

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml

PLAIN = re.compile(r"\d+g\.\d+gb")
"""Profiles without the media or graphics engines that some variants add (1g.10gb+me) or lack."""


@dataclass(frozen=True)
class Placement:
    """Where an instance lies on the GPU, in its memory slices."""

    start: int
    size: int

    def meets(self, other: Placement) -> bool:
        """Whether both need the same memory slice."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True)
class MigProfile:
    """One size of GPU instance."""

    name: str
    """Such as 3g.20gb"""
    number: int
    """That NVML and nvidia-smi know it by"""
    slices: int
    """Of the GPU's compute slices"""
    memory_bytes: int
    placements: tuple[Placement, ...]

    @property
    def is_plain(self) -> bool:
        """Whether it is a size and nothing else."""
        return PLAIN.fullmatch(self.name) is not None


def mig_profiles(gpu: Device, nvml: Nvml) -> list[MigProfile]:
    """The profiles that a GPU offers, the smallest first; none where it has no MIG, or the driver does not say.

    Args:
        gpu: a GPU or one of its slices.
        nvml: an open session.
    """
    handle = nvml.read("nvmlDeviceGetHandleByUUID", gpu.gpu_uuid)
    if handle.reason is not None:
        return []
    found = []
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = nvml.read("nvmlDeviceGetGpuInstanceProfileInfo", handle.value, kind).value
        if info is None:
            continue  # this GPU has none of this kind
        name = info.name.removeprefix("MIG ")
        placements = _placements(handle.value, info.id, nvml)
        found.append(MigProfile(name, info.id, info.sliceCount, info.memorySizeMB * 2**20, placements))
    return sorted(found, key=lambda profile: (profile.slices, profile.memory_bytes, profile.name))


def taken_placements(gpu: Device, nvml: Nvml) -> tuple[list[Placement], str | None]:
    """Where instances lie already, and why that cannot be told, or None; NVML tells it to administrators."""
    handle = nvml.read("nvmlDeviceGetHandleByUUID", gpu.gpu_uuid)
    if handle.reason is not None:
        return [], handle.reason
    taken = []
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = nvml.read("nvmlDeviceGetGpuInstanceProfileInfo", handle.value, kind).value
        if info is None:
            continue
        count = ctypes.c_uint(info.instanceCount)
        instances = (pynvml.c_nvmlGpuInstance_t * max(1, info.instanceCount))()
        listed = nvml.read("nvmlDeviceGetGpuInstances", handle.value, info.id, instances, ctypes.byref(count))
        if listed.reason is not None:
            return [], listed.reason
        for instance in instances[: count.value]:
            place = nvml.read("nvmlGpuInstanceGetInfo", instance)
            if place.reason is not None:
                return [], place.reason
            taken.append(Placement(place.value.placement.start, place.value.placement.size))
    return taken, None


def _placements(handle, number: int, nvml: Nvml) -> tuple[Placement, ...]:
    count = ctypes.c_uint(0)
    # NVML says how many there are, then which
    nvml.read("nvmlDeviceGetGpuInstancePossiblePlacements", handle, number, None, ctypes.byref(count))
    places = (pynvml.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
    nvml.read("nvmlDeviceGetGpuInstancePossiblePlacements", handle, number, places, ctypes.byref(count))
    return tuple(Placement(place.start, place.size) for place in places[: count.value])
