"""Mode mig: each job on a MIG slice of its own. Slices are used as they are found."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.collocation.modes.gpu import gpu_share, gpu_text
from labkit.collocation.modes.mig_layout import MigLayout, SliceWish, fitting_layout
from labkit.collocation.modes.mig_profiles import mig_profiles, taken_placements
from labkit.collocation.modes.occupants import why_occupied
from labkit.collocation.modes.place import Place, Refusal
from labkit.collocation.modes.share import Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.hardware.sizes import size_text


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot each have a slice, and a layout in which they could."""
    used, refused = place.devices_of(jobs)
    gpus = {device.gpu_uuid or device.name: device for device in [place.device, *used.values()]}
    reasons = [reason for device in gpus.values() if (reason := _why_no_mig(device, place))]
    if reasons:
        return refused + [(None, reason) for reason in reasons]
    known = [job for job in jobs if job.name in used]
    matched = matched_slices(known, place)
    without = [job for job in known if job.name not in matched]
    refused += [(job.name, _why_no_slice(job, matched, place)) for job in without]
    if without:
        layout, why = proposed_layout(known, place)
        refused.append((None, layout.advice() if layout else f"No other layout is proposed: {why}"))
    elif not jobs and not _slices(place.device, place):
        refused.append((None, f"MIG is on, but {gpu_text(place.device)} has no slice yet"))
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """A slice for each job.

    Raises:
        UserError: there are not enough, as `why_not` says.
    """
    matched = matched_slices(jobs, place)
    missing = [job.name for job in jobs if job.name not in matched]
    if missing:
        raise UserError(f"There is no MIG slice for {', '.join(missing)}: the slices have changed since the check.")
    return {job.name: gpu_share(matched[job.name]) for job in jobs}


def matched_slices(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Device]:
    """A free slice for each job by its name, as far as there are any; none is given twice.

    First choose those that name a slice, then those that ask for a profile, then the others, the largest first;
    each takes the smallest that fits.
    """
    matched: dict[str, Device] = {}

    def order(job: PlannedJob) -> tuple:
        return (not _names_a_slice(job), job.mig_profile is None, -(place.need(job) or 0))

    free = {}
    for job in sorted(jobs, key=order):
        fitting = [
            each
            for each in _candidates(job, place)
            if each not in matched.values()
            and job.mig_profile in (None, each.mig_profile)
            and (place.need(job) or 0) <= (each.memory_bytes or 0)
        ]
        for each in sorted(fitting, key=lambda device: (device.memory_bytes or 0, device.sm_count or 0)):
            if each.uuid not in free:
                free[each.uuid] = why_occupied(each, place.nvml) is None
            if free[each.uuid]:
                matched[job.name] = each
                break
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
    profiles = mig_profiles(gpu, place.nvml)
    if not profiles:
        return None, "the driver does not tell the GPU's profiles; `sudo nvidia-smi mig -lgip` lists them"
    taken, why = taken_placements(gpu, place.nvml)
    if why is not None and _slices(gpu, place):
        return None, (
            f"what its instances leave free cannot be told ({why}): `sudo nvidia-smi mig -i {gpu.gpu_uuid} -lgi` lists "
            "them"
        )
    wishes = [SliceWish(job.mig_profile, place.need(job)) for job in without]
    layout = fitting_layout(gpu.gpu_uuid, wishes, profiles, taken)
    return layout, None if layout else "no layout of this GPU has a slice for each job beside what there is"


def _why_no_mig(device: Device, place: Place) -> str | None:
    if device.kind == "cpu":
        return "mode mig divides a GPU, and the device is the CPU: use mode cpu-pinned, or choose a GPU"
    if device.mig_mode == "on":
        return None
    if device.mig_mode is None:
        return (
            f"{gpu_text(device)} has no MIG ({device.missing.get('mig_mode', 'the driver does not say')}): use mode "
            "mps or naive"
        )
    return (
        f"MIG is off on {gpu_text(device)}, and labkit never turns it on: its administrator can while nobody uses the "
        f"GPU, with `sudo nvidia-smi -i {device.uuid} -mig 1` (off again with -mig 0)"
    )


def _why_no_slice(job: PlannedJob, matched: dict[str, Device], place: Place) -> str:
    there = _candidates(job, place)
    device = place.device_of(job)
    if job.mig_profile is not None:
        known = {profile.name for profile in mig_profiles(device, place.nvml)}
        if known and job.mig_profile not in known:
            return (
                f"{job.name} asks for the profile {job.mig_profile}, which {device.name} does not have: it has "
                f"{', '.join(sorted(known))}"
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
