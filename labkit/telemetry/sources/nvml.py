"""What NVML tells of the GPUs and MIG slices that a job may use, call by call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from labkit.hardware.device import Device
from labkit.hardware.devices import JETSON
from labkit.hardware.nvml import Nvml
from labkit.telemetry.reading import OnFault, Reading

SM_CLOCK, MEMORY_CLOCK = 1, 2
"""NVML_CLOCK_SM and NVML_CLOCK_MEM of nvmlClockType_t."""
CHIP_SENSOR = 0
"""NVML_TEMPERATURE_GPU of nvmlTemperatureSensors_t."""
LOOK_AGAIN_S = 5.0
"""Between two attempts to find a GPU that was lost, each of which opens a new session."""


class _Call(NamedTuple):
    counter: str
    unit: str
    call: str
    arguments: tuple[int, ...]
    convert: Callable[[Any], float]


def _counted(energy: float) -> float:
    if not energy:  # GPUs before Volta may answer so instead of declining
        raise ValueError("an energy counter that never counted")
    return energy


_OF_A_GPU = (
    _Call("gpu_utilisation", "%", "nvmlDeviceGetUtilizationRates", (), lambda rates: rates.gpu),
    _Call("memory_utilisation", "%", "nvmlDeviceGetUtilizationRates", (), lambda rates: rates.memory),
    _Call("memory_used", "bytes", "nvmlDeviceGetMemoryInfo", (), lambda memory: memory.used),
    _Call("power", "W", "nvmlDeviceGetPowerUsage", (), lambda milliwatts: milliwatts / 1e3),
    _Call("energy", "J", "nvmlDeviceGetTotalEnergyConsumption", (), lambda millijoules: _counted(millijoules) / 1e3),
    _Call("sm_clock", "MHz", "nvmlDeviceGetClockInfo", (SM_CLOCK,), float),
    _Call("memory_clock", "MHz", "nvmlDeviceGetClockInfo", (MEMORY_CLOCK,), float),
    _Call("temperature", "°C", "nvmlDeviceGetTemperature", (CHIP_SENSOR,), float),
    _Call("throttle_reasons", "bits", "nvmlDeviceGetCurrentClocksThrottleReasons", (), float),
)
# a slice has no utilisation, power or clock of its own: those are its GPU's
_OF_A_SLICE = (_Call("memory_used", "bytes", "nvmlDeviceGetMemoryInfo", (), lambda memory: memory.used),)


class NvmlCounters:
    """Reads GPUs through an open NVML session.

    A counter that fails is null with its reason. What the GPU will never have is asked for once; what failed otherwise,
    a time-out for one, is asked for again. A GPU that is lost is a fault, leaves a gap, and is looked for again.
    """

    def __init__(
        self,
        nvml: Nvml,
        devices: Iterable[Device],
        pids: Callable[[], set[int]],
        on_fault: OnFault,
        now: Callable[[], float] = time.monotonic,
    ):
        """Read these devices, and of their processes those in `pids`."""
        self._nvml, self._pids, self._on_fault, self._now = nvml, pids, on_fault, now
        self._targets = [_Target(device.uuid, "mig" if device.kind == "mig" else "device") for device in devices]
        known = {target.uuid for target in self._targets}
        for device in devices:  # the GPU around the slices, once
            if device.gpu_uuid not in known:
                known.add(device.gpu_uuid)
                self._targets.append(_Target(device.gpu_uuid, "device"))

    def read(self) -> Iterator[Reading]:
        """Yield what the GPUs tell now."""
        for target in self._targets:
            if target.opening != self._nvml.openings:
                target.handle = None
            if target.handle is None and not self._find(target):
                if target.reason:
                    yield Reading(target.uuid, target.scope, "memory_used", None, "bytes", "NVML", target.reason)
                continue
            answers: dict[tuple, Any] = {}  # two counters may come from one call
            for each in _OF_A_SLICE if target.scope == "mig" else _OF_A_GPU:
                yield from self._counter(target, each, answers)
                if target.handle is None:
                    break
            else:
                yield from self._memory_of_job(target)
                yield from self._share_of_job(target)

    def _find(self, target: _Target) -> bool:
        if target.was_lost:
            if self._now() < target.again_at or not self._nvml.reopen():
                return False
            target.again_at = self._now() + LOOK_AGAIN_S
        found = self._nvml.read("nvmlDeviceGetHandleByUUID", target.uuid)
        target.handle, target.reason, target.opening = found.value, found.reason, self._nvml.openings
        return found.reason is None

    def _ask(self, target: _Target, call: str, *arguments: Any) -> Any:
        """The answer to a call, or None where the target has none; `target.why` says why."""
        answer = self._nvml.read(call, target.handle, *arguments)
        target.why = answer.reason
        if answer.is_final:
            target.broken.add((call, *arguments))
        if answer.is_lost:
            if not target.was_lost:  # a handle may be had long before the GPU answers
                self._on_fault("gpu_lost", f"{target.uuid}: {answer.reason}")
            target.handle, target.was_lost, target.reason = None, True, None
            target.again_at = self._now() + LOOK_AGAIN_S
        elif answer.reason is None and target.was_lost:
            target.was_lost = False
            self._on_fault("gpu_back", f"{target.uuid} answers again")
        return answer.value

    def _counter(self, target: _Target, each: _Call, answers: dict[tuple, Any]) -> Iterator[Reading]:
        key = (each.call, *each.arguments)
        if key in target.broken and key not in answers:
            return
        if key not in answers:
            answers[key] = self._ask(target, *key), target.why
        value, why = answers[key]
        if why is None:
            value, why = _converted(each.convert, value)
        yield Reading(target.uuid, target.scope, each.counter, value, each.unit, f"NVML {each.call}", why)

    def _memory_of_job(self, target: _Target) -> Iterator[Reading]:
        call = "nvmlDeviceGetComputeRunningProcesses"
        if (call,) in target.broken:
            return
        listed, value = self._ask(target, call), None
        why = target.why
        if listed == []:
            return  # nobody has touched this GPU yet
        if why is None:
            pids = self._pids()
            mine = [process.usedGpuMemory for process in listed if process.pid in pids]
            if not mine:
                why = f"none of the {len(listed)} processes that the driver lists is the job's (containers renumber)"
            elif None in mine:
                why = "the driver does not tell one process' memory here"
            else:
                value, why = _converted(sum, mine)
        # by GPU or by slice, as the device says; the scope says that it is the job's
        yield Reading(target.uuid, "process", "memory_used", value, "bytes", f"NVML {call}", why)

    def _share_of_job(self, target: _Target) -> Iterator[Reading]:
        call = "nvmlDeviceGetProcessUtilization"
        if target.scope == "mig" or (call,) in target.broken:
            return
        answer, share = self._nvml.read(call, target.handle, target.latest_us), {}
        if answer.is_final:
            target.broken.add((call,))
            yield Reading(target.uuid, "process", "sm_utilisation", None, "%", f"NVML {call}", answer.reason)
        pids = self._pids()
        # "not found": nothing ran since the last time
        for sample in sorted(answer.value or [], key=lambda sample: sample.timeStamp):
            target.latest_us = sample.timeStamp
            if sample.pid in pids:
                share[sample.pid] = sample.smUtil  # the latest of each process
        if share:
            yield Reading(target.uuid, "process", "sm_utilisation", float(sum(share.values())), "%", f"NVML {call}")


class _Target:
    """A GPU or a slice."""

    def __init__(self, uuid: str, scope: str):
        self.uuid, self.scope = uuid, scope
        self.handle: Any = None
        self.opening = 0
        """Of the session that gave the handle"""
        self.reason: str | None = None
        """Why there is no handle, until that is said"""
        self.why: str | None = None
        """Why the latest call gave nothing"""
        self.was_lost, self.again_at = False, 0.0
        self.broken: set[tuple] = set()
        self.latest_us = 0
        """Time stamp of the latest utilisation of a process"""


def _converted(convert: Callable[[Any], float], value: Any) -> tuple[float | None, str | None]:
    try:
        return float(convert(value)), None
    except (AttributeError, TypeError, ValueError):
        return None, f"nonsense: {value!r}"


def gpus_and_slices(devices: Iterable[Device]) -> list[Device]:
    """Those of the visible devices that NVML can be asked about."""
    return [device for device in devices if device.kind != "cpu" and device.uuid not in (None, JETSON)]
