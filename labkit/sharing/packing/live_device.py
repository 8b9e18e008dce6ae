"""The devices that a queue really runs on: what a job gets of each, and what each is seen to have free."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.errors import UserError
from labkit.hardware import Device, Nvml, find_device, get_devices, read_cpu
from labkit.sharing.modes.choice import mode_shares
from labkit.sharing.modes.place import Place, Share, free_bytes
from labkit.sharing.packing.policy import PackingDevice
from labkit.sharing.plan.planned_job import PlannedJob
from labkit.telemetry import Sample, cpu_energy, gpu_energy, open_ladder, whole

EVERY_S = 1.0
"""So often devices are looked at."""


@dataclass(frozen=True)
class LiveDevice:
    """A GPU, a MIG slice, or the CPU."""

    packing: PackingDevice
    """Its memory is what was free when the queue was checked: what others hold is theirs"""
    share: Share
    """What every job on it gets"""
    device: Device
    """As found"""

    @property
    def on_cpu(self) -> bool:
        """Whether it is the CPU; the devices of a queue are of one kind."""
        return self.device.kind == "cpu"


def live_devices(
    wanted: Sequence[str] = (),
    *,
    shared: bool = True,
    memory_bytes: int | None = None,
    nvml: Callable[[], Nvml] = Nvml,
) -> list[LiveDevice]:
    """The devices of a queue: each GPU or MIG slice that CUDA reaches, or else the CPU.

    Args:
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
    live, faults, jobs = [], [], [PlannedJob("one", ""), PlannedJob("another", "")][: 1 + shared]
    for device in dict.fromkeys(found):
        mode = "cpu-shared" if device.kind == "cpu" else "naive" if shared else "alone"
        try:
            with nvml() as session:
                share = mode_shares(mode, jobs, Place(device, devices, session))["one"]
                name, free = device.uuid or device.torch_name or device.kind, _free_bytes(device, session)
                live.append(LiveDevice(PackingDevice(name, min(free, memory_bytes or free)), share, device))
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(dict.fromkeys(faults)))
    return live


def _is_reached(gpu: Device) -> bool:
    """Whether a process that names a GPU or slice sees it; one that does not sees a slice only, and hides the rest."""
    return gpu.torch_name is not None or gpu.kind == "mig" or (gpu.uuid is not None and gpu.mig_mode != "on")


def _free_bytes(device: Device, nvml: Nvml) -> int:
    free = free_bytes("cpu" if device.kind == "cpu" else device.uuid, nvml)
    free = device.memory_bytes if free is None else free
    if free is None:
        why = device.missing.get("memory_bytes", "its driver does not say")
        raise UserError(f"{device.name}: its memory is unknown ({why}), so no job can be fitted to it: leave it out.")
    return free


class DeviceMonitor:
    """Looks at the devices of a queue: free memory, how busy they are, the energy they took. A context manager."""

    def __init__(self, devices: Sequence[LiveDevice]):
        self._live = devices
        self._samples: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        """By device and counter, what energy adds up from"""

    def __enter__(self) -> DeviceMonitor:
        self._open = open_ladder(None, [each.device for each in self._live], 1 / EVERY_S, lambda kind, what: None)
        self._ladder, self._began_ns = self._open.__enter__(), time.time_ns()
        self.look()
        return self

    def __exit__(self, *exception) -> None:
        self._open.__exit__(*exception)

    def look(self) -> list[dict[str, float]]:
        """Of all devices, in their order, what `Devices.look` tells; without what nobody can tell."""
        readings = list(self._ladder.read())
        for reading in readings:
            if "energy" in reading.counter or "power" in reading.counter:
                sample = Sample(time.time_ns(), reading.value, reading.note)
                self._samples[reading.device][reading.counter].append(sample)
        now = {(reading.device, reading.counter): reading.value for reading in readings}
        return [_seen(live, now) for live in self._live]

    def energy_j(self) -> tuple[float | None, str]:
        """Joules of all devices since the block began and their source, or None and why."""
        self.look()
        found = {}
        for live in self._live:
            source = "host" if live.on_cpu else live.device.mig_parent_uuid or live.device.uuid
            moments = {0: [self._began_ns, time.time_ns()]}
            samples = {name: whole(series, moments) for name, series in self._samples[source].items()}
            found[source] = cpu_energy(samples) if live.on_cpu else gpu_energy(samples, mig=live.device.kind == "mig")
        unknown = [energy.note for energy in found.values() if energy.value_j is None]
        if unknown:
            return None, unknown[0]
        sources = "; ".join(dict.fromkeys(f"{energy.source}, {energy.note}" for energy in found.values()))
        return sum(energy.value_j for energy in found.values()), f"measured by {sources}"


def _seen(live: LiveDevice, now: dict[tuple[str, str], float | None]) -> dict[str, float]:
    if live.on_cpu:
        return {"monitored_free_bytes": read_cpu().memory_available_bytes}
    used, active = (now.get((live.device.uuid, counter)) for counter in ("memory_used", "sm_active"))
    seen = {} if active is None else {"monitored_utilisation": active / 100}
    return seen if used is None else seen | {"monitored_free_bytes": live.device.memory_bytes - used}
