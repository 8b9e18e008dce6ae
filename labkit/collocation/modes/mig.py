"""Mode mig: each job on a MIG slice of its own, used as found; slices are made only where the user allows it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

import pynvml

from labkit.collocation.modes.gpu import gpu_share, gpu_text, why_occupied
from labkit.collocation.modes.place import Place, Refusal, Share
from labkit.collocation.plan.plan import Plan
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.hardware.devices import find_device, get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.sizes import size_text

CREATED = re.compile(r"created GPU instance ID\s+(\d+) on GPU")
"""What nvidia-smi says of each instance. Source: NVIDIA MIG User Guide, "Creating GPU Instances"."""
REMOVE_S, AGAIN_S = 20.0, 0.5
"""How long an instance may stay in use after its job has ended, and between two tries"""
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
    """The profiles that a GPU offers, the smallest first; none where it has no MIG, or the driver does not say."""
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


@contextlib.contextmanager
def made_slices(plan: Plan, known: Mapping[str, int], tell: Callable[[str], None]) -> Iterator[None]:
    """Make what the workloads of mode mig lack, and remove just that at the end; `known` are bytes by WORKLOAD/JOB."""
    with contextlib.ExitStack() as stack:
        for workload in plan.workloads:
            if workload.mode != "mig":
                continue
            devices = get_devices()
            device = find_device(plan.device, devices)
            if device.mig_mode != "on":
                continue  # the check says so
            needs = {job.name: known.get(f"{workload.name}/{job.name}", 0) for job in workload.jobs}
            with Nvml() as session:
                layout, _ = proposed_layout(workload.jobs, Place(device, devices, session, needs))
            if layout is not None:
                tell(f"making MIG slices, removed at the end: {' '.join(layout.make_command)}")
                stack.enter_context(changed_layout(layout))
        yield


@contextlib.contextmanager
def changed_layout(layout: MigLayout, nvml: Nvml | None = None) -> Iterator[None]:
    """Make the instances of a layout, and remove exactly these at the end, also after an error or Ctrl-C.

    It never turns MIG on or off, and never removes what it did not make. The process that uses it must outlive the
    jobs: after `kill -9` the instances stay, and nvidia-smi removes them.

    Raises:
        UserError: a process uses the GPU, nvidia-smi refuses, or an instance cannot be removed.
    """
    _check_unused(layout, nvml or Nvml())
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        try:
            # in a session of its own, so that Ctrl-C in the terminal does not stop it half-way
            making = subprocess.Popen(
                layout.make_command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
        except FileNotFoundError:
            raise UserError(
                "nvidia-smi is not on PATH, which changes MIG layouts: it comes with NVIDIA's driver."
            ) from None
        try:
            if making.wait():
                raise UserError(
                    f"nvidia-smi did not make the MIG layout: {_text(said)} It needs an administrator's rights: "
                    f"{layout.advice()}."
                )
            yield
        finally:
            making.wait()
            _remove(layout.gpu_uuid, CREATED.findall(_text(said)))


def _check_unused(layout: MigLayout, nvml: Nvml) -> None:
    slices = [device for device in get_devices(nvml)[1:] if device.gpu_uuid == layout.gpu_uuid]
    whole = Device(kind="gpu", index=slices[0].index, name=slices[0].name, uuid=layout.gpu_uuid)
    with nvml:
        for device in (whole, *slices):
            if why := why_occupied(device, nvml):
                raise UserError(f"{why}: its MIG layout is changed only while nobody uses it.")


def _remove(gpu_uuid: str, numbers: list[str]) -> None:
    """Remove GPU instances and the compute instances in them; a driver may hold them for a moment after a job."""
    end, left = time.monotonic() + REMOVE_S, {}
    for number in reversed(numbers):
        while why := _why_it_stays(gpu_uuid, number):
            if time.monotonic() > end:
                left[number] = why
                break
            time.sleep(AGAIN_S)
    if left:
        command, ids = f"sudo nvidia-smi mig -i {gpu_uuid}", ",".join(left)
        raise UserError(
            f"The MIG instances {ids} that labkit made stay ({' '.join(left.values())}): remove them with "
            f"`{command} -dci -gi {ids} && {command} -dgi -gi {ids}`."
        )


def _why_it_stays(gpu_uuid: str, number: str) -> str:
    """Empty where the instance is gone, else what nvidia-smi says."""
    for what in ("-dci", "-dgi"):
        command = ["nvidia-smi", "mig", "-i", gpu_uuid, what, "-gi", number]
        done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    return " ".join((done.stdout + done.stderr).split()) or "it said nothing" if done.returncode else ""


def _text(file: IO[str]) -> str:
    file.seek(0)
    return " ".join(file.read().split())
