"""Mode mig: each job on a MIG slice of its own, used as found; slices are made only where the user allows it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pynvml

from labkit.errors import UserError
from labkit.hardware import Device, Nvml, find_device, get_devices, size_text
from labkit.sharing.modes.gpu import gpu_share, gpu_text, why_occupied
from labkit.sharing.modes.place import Place, Refusal, Share
from labkit.sharing.plan.plan import Plan
from labkit.sharing.plan.planned_job import PlannedJob

CREATED = re.compile(r"created GPU instance ID\s+(\d+) on GPU")
"""What nvidia-smi says of each instance. Source: NVIDIA MIG User Guide, "Creating GPU Instances"."""
CAPACITY = "nvmlDeviceGetGpuInstanceRemainingCapacity"
REMOVE_S, AGAIN_S = 20.0, 0.5
"""How long an instance may stay in use after its job has ended, and between two tries"""
PLAIN = re.compile(r"\d+g\.\d+gb")
"""Profiles without the media or graphics engines that some variants add (1g.10gb+me) or lack."""


@dataclass(frozen=True)
class MigLayout:
    """Equal GPU instances to make beside those that there are."""

    gpu_uuid: str
    profile: str
    count: int

    def command(self, *what: str) -> list[str]:
        """What nvidia-smi is told of the GPU; without words, to make the instances, with a compute instance each."""
        what = what or ("-cgi", ",".join([self.profile] * self.count), "-C")
        return ["nvidia-smi", "mig", "-i", self.gpu_uuid, *what]

    def remove_command(self, ids: str) -> str:
        """What an administrator types to remove instances with these IDs."""
        remove = " ".join(["sudo", *self.command("")])
        return f"{remove}-dci -gi {ids} && {remove}-dgi -gi {ids}"

    def advice(self) -> str:
        """What an administrator types to make and to remove it, as a sentence."""
        return (
            f"A layout that fits: `sudo {' '.join(self.command())}`, which prints the IDs of what it makes. To undo "
            f"it: `{self.remove_command('IDS')}` with these IDs, such as 1,2"
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
    free = {each for each in place.devices if each.kind == "mig" and why_occupied(each, place.nvml) is None}

    def rank(job: PlannedJob) -> tuple:
        return not _names_a_slice(job), job.mig_profile is None, -(place.need(job) or 0)

    for job in sorted(jobs, key=rank):
        named = [each for each in _candidates(job, place) if job.mig_profile in (None, each.mig_profile)]
        if fitting := [each for each in named if each in free and (place.need(job) or 0) <= (each.memory_bytes or 0)]:
            matched[job.name] = min(fitting, key=lambda device: (device.memory_bytes or 0, device.sm_count or 0))
            free.remove(matched[job.name])
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
    nvml, uuid, offered, fitting = place.nvml, place.device.gpu_uuid, [], []
    handle = nvml.read("nvmlDeviceGetHandleByUUID", uuid)
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT) if handle.reason is None else ():
        info = nvml.read("nvmlDeviceGetGpuInstanceProfileInfo", handle.value, kind).value
        if info is None:  # this GPU has none of this kind
            continue
        name, free = info.name.removeprefix("MIG "), nvml.read(CAPACITY, handle.value, info.id).value
        if free is None:
            by_hand = f"sudo nvidia-smi mig -i {uuid} -lgip"
            return None, f"the driver tells administrators only what is free: `{by_hand}` lists it"
        offered.append(name)
        named = name in wanted or (wanted == {None} and PLAIN.fullmatch(name))
        if named and info.memorySizeMB * 2**20 >= need and free >= len(without):
            fitting.append((info.sliceCount, info.memorySizeMB, name))
    if not fitting:
        there = ", ".join(sorted(offered))
        return None, f"beside what there is, no layout of this GPU has an equal slice for each job; it offers {there}"
    return MigLayout(uuid, max(fitting)[2], len(without)), ""


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
                tell(f"making MIG slices, removed at the end: {' '.join(layout.command())}")
                stack.enter_context(changed_layout(layout))
        yield


@contextlib.contextmanager
def changed_layout(layout: MigLayout) -> Iterator[None]:
    """Make the instances of a layout, and remove exactly these at the end, also after an error or Ctrl-C.

    It never turns MIG on or off, and never removes what it did not make. The process that uses it must outlive the
    jobs: after `kill -9` the instances stay. A UserError where nvidia-smi refuses, or cannot remove one.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:

        def words() -> str:
            said.seek(0)
            return " ".join(said.read().split())

        try:
            # in a session of its own, so that Ctrl-C in the terminal does not stop it half-way
            making = subprocess.Popen(layout.command(), stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise UserError(f"nvidia-smi, which comes with NVIDIA's driver, cannot be started: {error}") from None
        try:
            if making.wait():
                why = f"nvidia-smi did not make the MIG layout: {words()} It needs an administrator's rights"
                raise UserError(f"{why}: {layout.advice()}.")
            yield
        finally:
            making.wait()
            _remove(layout, CREATED.findall(words()))


def _remove(layout: MigLayout, numbers: list[str]) -> None:
    """Remove GPU instances and the compute instances in them; a driver may hold them for a moment after a job."""
    end, left = time.monotonic() + REMOVE_S, {}
    for number in reversed(numbers):
        while True:
            for what in ("-dci", "-dgi"):
                command = layout.command(what, "-gi", number)
                done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
            if done.returncode == 0:
                break
            if time.monotonic() > end:
                left[number] = " ".join((done.stdout + done.stderr).split())
                break
            time.sleep(AGAIN_S)
    if left:
        ids = ",".join(left)
        raise UserError(
            f"The MIG instances {ids} that labkit made stay ({' '.join(left.values())}): remove them with "
            f"`{layout.remove_command(ids)}`."
        )
