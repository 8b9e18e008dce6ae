"""MIG instances made for a workload and removed after it: only where the user allows it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO

from labkit.collocation.modes.device_choice import find_device
from labkit.collocation.modes.gpu import why_occupied
from labkit.collocation.modes.mig import MigLayout, proposed_layout
from labkit.collocation.modes.place import Place
from labkit.collocation.plan.plan import Plan
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml

CREATED = re.compile(r"created GPU instance ID\s+(\d+) on GPU")
"""What nvidia-smi says of each instance. Source: NVIDIA MIG User Guide, "Creating GPU Instances"."""
REMOVE_S, AGAIN_S = 20.0, 0.5
"""How long an instance may stay in use after its job has ended, and between two tries"""


@contextlib.contextmanager
def made_slices(
    plan: Plan, estimate: Callable[[PlannedJob, str], int | None], tell: Callable[[str], None]
) -> Iterator[None]:
    """Make what the workloads of mode mig lack, with the memory that is estimated, and remove just that at the end."""
    with contextlib.ExitStack() as stack:
        for workload in plan.workloads:
            if workload.mode != "mig":
                continue
            devices = get_devices()
            device = find_device(plan.device, devices)
            if device.mig_mode != "on":
                continue  # the check says so
            needs = {job.name: need for job in workload.jobs if (need := job.memory_bytes or estimate(job, "cuda"))}
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
