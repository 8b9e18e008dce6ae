"""NVML's counters of the GPUs and MIG slices that a job may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from labkit import hardware
from labkit.telemetry.counters import OnFault, Reading

SM_CLOCK, MEMORY_CLOCK = 1, 2
"""NVML_CLOCK_SM and NVML_CLOCK_MEM of nvmlClockType_t."""
CHIP_SENSOR = 0
"""NVML_TEMPERATURE_GPU of nvmlTemperatureSensors_t."""


class _Call(NamedTuple):
    counter: str
    unit: str
    call: str
    arguments: tuple[int, ...]
    convert: Callable[[Any], float | None]


_MEMORY = _Call("memory_used", "bytes", "nvmlDeviceGetMemoryInfo", (), lambda memory: memory.used)
_OF_A_GPU = (
    _Call("gpu_utilisation", "%", "nvmlDeviceGetUtilizationRates", (), lambda rates: rates.gpu),
    _Call("memory_utilisation", "%", "nvmlDeviceGetUtilizationRates", (), lambda rates: rates.memory),
    _MEMORY,
    _Call("power", "W", "nvmlDeviceGetPowerUsage", (), lambda milliwatts: milliwatts / 1e3),
    # GPUs before Volta may answer 0 instead of an error
    _Call("energy", "J", "nvmlDeviceGetTotalEnergyConsumption", (), lambda millijoules: millijoules / 1e3 or None),
    _Call("sm_clock", "MHz", "nvmlDeviceGetClockInfo", (SM_CLOCK,), float),
    _Call("memory_clock", "MHz", "nvmlDeviceGetClockInfo", (MEMORY_CLOCK,), float),
    _Call("temperature", "°C", "nvmlDeviceGetTemperature", (CHIP_SENSOR,), float),
    _Call("throttle_reasons", "bits", "nvmlDeviceGetCurrentClocksThrottleReasons", (), float),
)
# utilisation, power and clocks belong to the whole GPU, not to a slice
_OF_A_SLICE = (_MEMORY,)


class _Lost(Exception):
    """A GPU was lost."""


@dataclass
class _Target:
    """A GPU or a slice."""

    uuid: str
    scope: str
    handle: Any = None
    latest_us: int = 0
    """Time stamp of the latest utilisation of a process."""


class NvmlCounters:
    """Reads GPUs through an open NVML session.

    A counter that fails is null with its reason. A lost GPU is a fault, and its samples end.
    """

    def __init__(
        self, nvml: hardware.Nvml, devices: Iterable[hardware.Device], pids: Callable[[], set[int]], on_fault: OnFault
    ):
        self._nvml, self._pids, self._on_fault = nvml, pids, on_fault
        scopes = {device.uuid: "mig" if device.kind == "mig" else "device" for device in devices}
        around = {device.gpu_uuid: "device" for device in devices}  # the whole GPU of several slices only once
        self._targets = [_Target(uuid, scope) for uuid, scope in (around | scopes).items()]

    def read(self) -> Iterator[Reading]:
        for target in [*self._targets]:
            if target.handle is None:
                found = self._nvml.read("nvmlDeviceGetHandleByUUID", target.uuid)
                target.handle = found.value
                if found.reason is not None:
                    yield Reading(target.uuid, target.scope, "memory_used", None, "bytes", "NVML", found.reason)
                    continue
            try:
                for each in _OF_A_SLICE if target.scope == "mig" else _OF_A_GPU:
                    yield self._counter(target, each)
                yield from self._memory_of_job(target)
                yield from self._share_of_job(target)
            except _Lost as error:
                self._targets.remove(target)
                self._on_fault("gpu_lost", f"{target.uuid}: {error}")

    def _ask(self, target: _Target, call: str, *arguments: Any) -> tuple[Any, str | None]:
        answer = self._nvml.read(call, target.handle, *arguments)
        if answer.is_lost:
            raise _Lost(answer.reason)
        return answer.value, answer.reason

    def _counter(self, target: _Target, each: _Call) -> Reading:
        answer, why = self._ask(target, each.call, *each.arguments)
        value = each.convert(answer) if why is None else None
        if value is None and why is None:
            why = f"nonsense: {answer!r}"
        return Reading(target.uuid, target.scope, each.counter, value, each.unit, f"NVML {each.call}", why)

    def _memory_of_job(self, target: _Target) -> Iterator[Reading]:
        call = "nvmlDeviceGetComputeRunningProcesses"
        listed, why = self._ask(target, call)
        if listed == []:
            return  # no process uses this GPU yet
        value = None
        if why is None:
            pids = self._pids()
            mine = [process.usedGpuMemory for process in listed if process.pid in pids]
            if not mine:
                why = f"none of the {len(listed)} processes that the driver lists is the job's (containers change pids)"
            elif None in mine:
                why = "the driver does not report the memory of single processes here"
            else:
                value = sum(mine)
        # the device is the GPU or slice; the scope says that the memory is the job's
        yield Reading(target.uuid, "process", "memory_used", value, "bytes", f"NVML {call}", why)

    def _share_of_job(self, target: _Target) -> Iterator[Reading]:
        if target.scope == "mig":
            return
        call = "nvmlDeviceGetProcessUtilization"
        listed, why = self._ask(target, call, target.latest_us)
        pids, share = self._pids(), {}
        for sample in sorted(listed or [], key=lambda sample: sample.timeStamp):
            target.latest_us = sample.timeStamp
            if sample.pid in pids:
                share[sample.pid] = sample.smUtil  # the latest of each process
        if share or (why is not None and not target.latest_us):  # a later error only means that nothing has run
            value = float(sum(share.values())) if share else None
            yield Reading(target.uuid, "process", "sm_utilisation", value, "%", f"NVML {call}", why)


def gpus_and_slices(devices: Iterable[hardware.Device]) -> list[hardware.Device]:
    """The visible devices that NVML can read."""
    return [device for device in devices if device.kind != "cpu" and device.uuid not in (None, hardware.JETSON)]
