"""Counters of the GPUs a job may use, from NVML; each failing counter is reported once and leaves the others alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.telemetry.reading import Reading

SM_CLOCK = 1
"""NVML_CLOCK_SM of nvmlClockType_t."""


class GpuCounters:
    """Reads the GPUs of one job through an open NVML session."""

    def __init__(self, nvml: Nvml, devices: list[Device], pid: int):
        self._nvml, self._pid = nvml, pid
        self._broken: set[tuple[str, str]] = set()
        self._handles = []
        for device in devices:
            handle = nvml.read("nvmlDeviceGetHandleByUUID", device.gpu_uuid)
            if handle.reason is None:
                self._handles.append((device, handle.value))

    def read(self) -> Iterator[Reading]:
        for device, handle in self._handles:
            # a MIG slice has no utilisation, power or clock of its own: those are its GPU's
            yield from self._counter(
                device, "gpu_utilisation", "%", "nvmlDeviceGetUtilizationRates", handle, lambda v: v.gpu
            )
            yield from self._counter(
                device, "memory_used", "bytes", "nvmlDeviceGetMemoryInfo", handle, lambda v: v.used
            )
            yield from self._counter(device, "power", "W", "nvmlDeviceGetPowerUsage", handle, lambda v: v / 1e3)
            yield from self._counter(
                device, "energy", "J", "nvmlDeviceGetTotalEnergyConsumption", handle, lambda v: v / 1e3
            )
            yield from self._counter(device, "sm_clock", "MHz", "nvmlDeviceGetClockInfo", (handle, SM_CLOCK), float)
            yield from self._process_memory(device, handle)

    def _counter(
        self, device: Device, counter: str, unit: str, call: str, argument: Any, convert: Callable[[Any], float]
    ) -> Iterator[Reading]:
        if (device.gpu_uuid, counter) in self._broken:
            return
        arguments = argument if isinstance(argument, tuple) else (argument,)
        reading = self._nvml.read(call, *arguments)
        if reading.reason is None:
            yield Reading(device.gpu_uuid, "device", counter, float(convert(reading.value)), unit, f"NVML {call}")
        else:
            self._broken.add((device.gpu_uuid, counter))
            yield Reading(device.gpu_uuid, "device", counter, None, unit, f"NVML {call}", reading.reason)

    def _process_memory(self, device: Device, handle: Any) -> Iterator[Reading]:
        call = "nvmlDeviceGetComputeRunningProcesses"
        if (device.gpu_uuid, call) in self._broken:
            return
        reading = self._nvml.read(call, handle)
        note = reading.reason
        if note is None:
            mine = [process.usedGpuMemory for process in reading.value if process.pid == self._pid]
            if not mine:
                return  # the job has not touched this GPU yet
            if mine[0] is not None:
                yield Reading(device.gpu_uuid, "process", "memory_used", float(mine[0]), "bytes", f"NVML {call}")
                return
            note = "the driver does not tell one process' memory here"
        self._broken.add((device.gpu_uuid, call))
        yield Reading(device.gpu_uuid, "process", "memory_used", None, "bytes", f"NVML {call}", note)


def visible_gpus(devices: list[Device]) -> list[Device]:
    """One entry a physical GPU among the visible devices."""
    seen: dict[str, Device] = {}
    for device in devices:
        if device.kind != "cpu" and device.gpu_uuid:
            seen.setdefault(device.gpu_uuid, device)
    return list(seen.values())
