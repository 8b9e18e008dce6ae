"""The devices that a queue really runs on, and what a job gets of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.collocation.modes.choice import mode_refusals, mode_shares
from labkit.collocation.modes.device_choice import find_device
from labkit.collocation.modes.place import Place, Share
from labkit.collocation.packing.policy import PackingDevice
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.cpu import read_cpu
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml

PARTITIONS = 2
"""Of a CPU in mode cpu-pinned: halves, our choice; a job in one takes turns with nobody but those in the same half."""


@dataclass(frozen=True)
class LiveDevice:
    """A GPU, a MIG slice, the CPU, or a partition of it."""

    packing: PackingDevice
    """Its memory is what was free when the queue was checked: what others hold is theirs"""
    share: Share
    """What every job on it gets"""
    device: Device
    """As found; of partitions, the whole CPU"""

    @property
    def on_cpu(self) -> bool:
        """Whether it is the CPU or a partition of it; the devices of a queue are of one kind."""
        return self.device.kind == "cpu"

    @property
    def part(self) -> float:
        """Of the CPU's cores that jobs on it share."""
        return 1.0 if self.share.cores is None else len(self.share.cores) / self.device.cores


def live_devices(
    mode: str,
    wanted: Sequence[str] = (),
    *,
    shared: bool = True,
    memory_bytes: int | None = None,
    nvml: Callable[[], Nvml] = Nvml,
) -> list[LiveDevice]:
    """The devices of a queue: each GPU or MIG slice that CUDA reaches, or else the CPU, whole or in partitions.

    Args:
        mode: cpu-shared or cpu-pinned, how jobs share the CPU; on GPUs they are plain processes (naive).
        wanted: names as `find_device` takes them; none takes all GPUs, or the CPU.
        shared: whether jobs are to run beside each other at all.
        memory_bytes: of each device that counts; None takes all that is free.
        nvml: makes a session that is not yet open.

    Raises:
        UserError: a device that is not there, or cannot be used so; with every reason.
    """
    devices = get_devices(nvml())
    found = [find_device(name, devices) for name in dict.fromkeys(wanted)]
    found = found or [each for each in devices[1:] if _is_reached(each)] or [devices[0]]
    if len({each.kind == "cpu" for each in found}) > 1:
        raise UserError("a queue runs on the CPU or on GPUs: name devices of one kind.")
    live, faults = [], []
    for device in dict.fromkeys(found):
        way = mode if device.kind == "cpu" else "naive" if shared else "alone"
        jobs = [PlannedJob(f"part-{part}", "") for part in range(PARTITIONS if way == "cpu-pinned" else 1)]
        with nvml() as session:
            place = Place(device, devices, session)
            against = mode_refusals(way, [] if way == "naive" else jobs, place)
            shares = [] if against else list(mode_shares(way, jobs, place).values())
        if way == "cpu-pinned" and device.cores < PARTITIONS:
            against.append((None, f"{device.cores} core cannot be cut into {PARTITIONS} partitions: use cpu-shared"))
        faults += [reason for _, reason in against]
        if not against:
            live += [_live(device, number, share, memory_bytes, nvml) for number, share in enumerate(shares)]
    if faults:
        raise UserError("\n".join(dict.fromkeys(faults)))
    return live


def _is_reached(gpu: Device) -> bool:
    """Whether a process that names a GPU or slice sees it; one that does not sees a slice only, and hides the rest."""
    return gpu.torch_name is not None or gpu.kind == "mig" or (gpu.uuid is not None and gpu.mig_mode != "on")


def _live(device: Device, number: int, share: Share, counted_bytes: int | None, nvml: Callable[[], Nvml]) -> LiveDevice:
    name = device.uuid or device.torch_name or device.kind
    memory_bytes = share.memory_bytes
    if share.cores is not None:
        name = f"{name}:{number}"
    else:
        with nvml() as session:
            memory_bytes = free_memory(device, session) or device.memory_bytes
    if memory_bytes is None:
        why = device.missing.get("memory_bytes", "its driver does not say")
        raise UserError(f"device {name}: its memory is unknown ({why}), so no job can be fitted to it: leave it out.")
    return LiveDevice(PackingDevice(name, min(memory_bytes, counted_bytes or memory_bytes)), share, device)


def free_memory(device: Device, nvml: Nvml) -> int | None:
    """Bytes that are free on a CPU, GPU or slice now; None where its driver, of this open session, does not say."""
    if device.kind == "cpu":
        return read_cpu().memory_available_bytes
    handle = nvml.read("nvmlDeviceGetHandleByUUID", device.uuid)
    memory = handle if handle.reason else nvml.read("nvmlDeviceGetMemoryInfo", handle.value)
    return None if memory.reason else memory.value.free
