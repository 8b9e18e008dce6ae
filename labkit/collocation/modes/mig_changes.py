"""MIG instances made for a workload and removed after it: only where the user allows it."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO

from labkit.collocation.modes.device_choice import find_device
from labkit.collocation.modes.gpu import gpu_text
from labkit.collocation.modes.mig import proposed_layout
from labkit.collocation.modes.mig_layout import MigLayout
from labkit.collocation.modes.place import Place
from labkit.collocation.plan.plan import Plan
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.occupants import occupants

CREATED = re.compile(r"created GPU instance ID\s+(\d+) on GPU")
"""What nvidia-smi says of each instance. Source: NVIDIA MIG User Guide, "Creating GPU Instances"."""
REMOVE_S, AGAIN_S = 20.0, 0.5
"""How long an instance may stay in use after its job has ended, and between two tries"""


@contextlib.contextmanager
def made_slices(
    plan: Plan, estimate: Callable[[PlannedJob, str], int | None], tell: Callable[[str], None]
) -> Iterator[None]:
    """Make what the workloads of mode mig lack, and remove just that at the end.

    Args:
        plan: what shares what.
        estimate: of a job's memory, which its slice must have.
        tell: told of each change.

    Raises:
        UserError: a layout cannot be made.
    """
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
                tell(f"making MIG slices on {layout.gpu_uuid}, removed at the end: {layout.tuples}")
                stack.enter_context(changed_layout(layout))
        yield


@contextlib.contextmanager
def changed_layout(layout: MigLayout, nvml: Nvml | None = None) -> Iterator[list[Device]]:
    """Make the instances of a layout, and remove exactly these at the end, also after an error or Ctrl-C.

    It never turns MIG on or off, and never removes what it did not make. The process that uses it must outlive the
    jobs: after `kill -9` the instances stay, and nvidia-smi removes them.

    Args:
        layout: from `labkit.collocation.modes.mig.proposed_layout`.
        nvml: a session that is not yet open; the default talks to the driver of this machine.

    Yields:
        The new slices.

    Raises:
        UserError: MIG is off, a process uses the GPU, nvidia-smi refuses, or an instance cannot be removed.
    """
    session = nvml or Nvml()
    before = _slices(layout, session)
    _check(layout, session)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        making = subprocess.Popen(
            layout.make_command(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal must not stop it half-way
        )
        try:
            if making.wait():
                raise UserError(
                    f"nvidia-smi did not make the MIG layout: {_text(said)} It needs an administrator's rights: "
                    f"{layout.advice()}."
                )
            known = {device.uuid for device in before}
            new = [device for device in _slices(layout, session) if device.uuid not in known]
            if len(new) != len(layout.instances):
                raise UserError(
                    f"nvidia-smi made {layout.tuples} on {layout.gpu_uuid}, but {len(new)} new slices can be seen: "
                    "widen CUDA_VISIBLE_DEVICES, or unset it."
                )
            yield new
        finally:
            making.wait()
            _remove(layout.gpu_uuid, CREATED.findall(_text(said)))


def _check(layout: MigLayout, nvml: Nvml) -> None:
    if shutil.which("nvidia-smi") is None:
        raise UserError("nvidia-smi is not on PATH, which changes MIG layouts: it comes with NVIDIA's driver.")
    concerned = [device for device in get_devices(nvml)[1:] if device.gpu_uuid == layout.gpu_uuid]
    if not any(device.mig_mode == "on" for device in concerned):
        raise UserError(
            f"The GPU {layout.gpu_uuid} has MIG off, and labkit never turns it on: its administrator can, with "
            f"`sudo nvidia-smi -i {layout.gpu_uuid} -mig 1`."
        )
    whole = Device(kind="gpu", index=concerned[0].index, name=concerned[0].name, uuid=layout.gpu_uuid)
    with nvml:
        for device in (whole, *(each for each in concerned if each.kind == "mig")):
            found, why = occupants(device, nvml)
            if why is not None:
                raise UserError(f"Whether somebody uses {gpu_text(device)} cannot be told ({why}): nothing is changed.")
            if found:
                listed = ", ".join(str(each) for each in found)
                raise UserError(
                    f"{gpu_text(device)} is in use by {listed}: its MIG layout is changed only while nobody uses it."
                )


def _slices(layout: MigLayout, nvml: Nvml) -> list[Device]:
    return [each for each in get_devices(nvml) if each.kind == "mig" and each.gpu_uuid == layout.gpu_uuid]


def _remove(gpu_uuid: str, numbers: list[str]) -> None:
    """Remove GPU instances and the compute instances in them; a driver may hold them for a moment after a job."""
    end = time.monotonic() + REMOVE_S
    left: dict[str, str] = {}
    for number in reversed(numbers):
        while (said := _removed(gpu_uuid, number)) is not None:
            if time.monotonic() > end:
                left[number] = said
                break
            time.sleep(AGAIN_S)
    if left:
        command = f"sudo nvidia-smi mig -i {gpu_uuid}"
        ids = ",".join(left)
        raise UserError(
            f"The MIG instances {ids} that labkit made stay ({' '.join(left.values())}): remove them with `{command} "
            f"-dci -gi {ids} && {command} -dgi -gi {ids}`."
        )


def _removed(gpu_uuid: str, number: str) -> str | None:
    """None where the instance is gone, else what nvidia-smi says."""
    for what in ("-dci", "-dgi"):
        done = subprocess.run(
            ["nvidia-smi", "mig", "-i", gpu_uuid, what, "-gi", number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            start_new_session=True,
        )
    return None if done.returncode == 0 else done.stdout.strip()


def _text(file: IO[str]) -> str:
    file.seek(0)
    return " ".join(file.read().split())
