"""NVIDIA counters of GPUs and MIG slices: NVML, its performance monitoring (GPM), and DCGM."""

from __future__ import annotations

import functools
import math
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pynvml

from labkit import errors, hardware
from labkit.telemetry.counters import OnFault, Reading


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
    _Call("sm_clock", "MHz", "nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,), float),
    _Call("memory_clock", "MHz", "nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_MEM,), float),
    _Call("temperature", "°C", "nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,), float),
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
        scopes = {errors.certain(device.uuid): "mig" if device.kind == "mig" else "device" for device in devices}
        # the whole GPU of several slices only once
        around = {errors.certain(device.gpu_uuid): "device" for device in devices}
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


_PROFILED = (
    ("graphics_active", "%", pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, "GRACT", 1001),
    ("sm_active", "%", pynvml.NVML_GPM_METRIC_SM_UTIL, "SMACT", 1002),
    ("sm_occupancy", "%", pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, "SMOCC", 1003),
    ("tensor_active", "%", pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, "TENSO", 1004),
    ("dram_active", "%", pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, "DRAMA", 1005),
    ("pcie_tx", "bytes/s", pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, "PCITX", 1009),
    ("pcie_rx", "bytes/s", pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, "PCIRX", 1010),
    ("nvlink_tx", "bytes/s", pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, "NVLTX", 1011),
    ("nvlink_rx", "bytes/s", pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, "NVLRX", 1012),
)
"""Counters of GPM and DCGM: our name and unit, NVML's number, DCGM's column in dmon's table and its number."""
GPM, _GPM_SCALE = "NVML GPM", {"%": 1, "bytes/s": 2**20}
DCGM, _DCGM_SCALE = "DCGM dmon", {"%": 100, "bytes/s": 1}
"""Name of each source, and the factors from its units to ours."""


class GpmCounters:
    """GPU performance monitoring through NVML: activity of multiprocessors and memory, per GPU and per MIG slice.

    Only Hopper and later have it. A value is the average between two samples; the first one is taken at the start. The
    values of a MIG slice are those of its GPU instance, which several compute instances may share.
    """

    def __init__(self, nvml: hardware.Nvml, devices: Iterable[hardware.Device]):
        self._nvml, self._targets = nvml, [_GpmTarget(nvml, device) for device in devices]

    def supports(self, device: hardware.Device) -> bool:
        """Whether this device can be read."""
        return any(target.device == device and target.why is None for target in self._targets)

    def read(self) -> Iterator[Reading]:
        for target in self._targets:
            yield from target.read()

    def close(self) -> None:
        for sample in [sample for target in self._targets for sample in target.samples]:
            self._nvml.read("nvmlGpmSampleFree", sample)


class _GpmTarget:
    """A GPU or a slice, and its latest two samples."""

    def __init__(self, nvml: hardware.Nvml, device: hardware.Device):
        self.device, self._nvml = device, nvml
        self.samples: list[Any] = []
        self.why: str | None = None
        """Reason why it cannot be read."""
        try:
            gpu = nvml.value("nvmlDeviceGetHandleByUUID", device.gpu_uuid)
            if not nvml.value("nvmlGpmQueryDeviceSupport", gpu).isSupportedDevice:
                raise LookupError("this GPU has no performance monitoring through NVML (only Hopper and later have)")
            self._take = functools.partial(nvml.read, "nvmlGpmSampleGet", gpu)
            if device.kind == "mig":
                of_slice = nvml.value("nvmlDeviceGetHandleByUUID", device.uuid)
                instance = nvml.value("nvmlDeviceGetGpuInstanceId", of_slice)
                self._take = functools.partial(nvml.read, "nvmlGpmMigSampleGet", gpu, instance)
            for _ in range(2):
                self.samples.append(nvml.value("nvmlGpmSampleAlloc"))
            if reason := self._take(self.samples[0]).reason:  # a driver may report support and then refuse samples
                raise LookupError(reason)
        except LookupError as error:
            self.why = str(error)

    def read(self) -> Iterator[Reading]:
        """The averages since the sample before."""
        metrics, why = (None, self.why) if self.why is not None else self._averages()
        scope = "mig" if self.device.kind == "mig" else "device"
        for place, (counter, unit, *_) in enumerate(_PROFILED):
            value, note = (None, why) if metrics is None else _gpm_value(metrics[place], _GPM_SCALE[unit])
            yield Reading(errors.certain(self.device.uuid), scope, counter, value, unit, GPM, note)

    def _averages(self) -> tuple[Any, str | None]:
        """NVML's metrics in the order of `_PROFILED`, or None and the reason."""
        before, now = self.samples
        answer = self._take(now)
        if answer.reason is not None:
            return None, answer.reason
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_PROFILED)
        request.sample1, request.sample2 = before, now
        for place, (_, _, metric, *_) in enumerate(_PROFILED):
            request.metrics[place].metricId = metric
        self.samples = [now, before]
        answer = self._nvml.read("nvmlGpmMetricsGet", request)
        return answer.value and answer.value.metrics, answer.reason


def _gpm_value(metric: Any, scale: float) -> tuple[float | None, str | None]:
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return None, f"{GPM} does not give it here ({pynvml.NVMLError(metric.nvmlReturn)})"
    return (None, "no samples between") if math.isnan(metric.value) else (scale * metric.value, None)


LEAST_MS = 100
"""Shortest period at which DCGM samples its profiling counters."""
STALE_PERIODS = 3
"""Number of periods, of at least a second together, after which a value is too old to report."""
ANSWER_S, DCGMI_GRACE_S = 10.0, 2.0
"""Seconds for `dcgmi` to list GPUs, and to end."""
NOT_LISTED, NO_ROW = "dcgmi does not list this GPU", "dcgmi has printed no row of this GPU yet"
_ROW = re.compile(r"GPU[\s-]*(\d+)\s+(.*)")


class DcgmCounters:
    """Reads whole GPUs, from Volta on, through one `dcgmi dmon` process, which runs until `close`.

    It needs the host engine of NVIDIA's Data Center GPU Manager, and usually its rights; else each counter says why.
    """

    def __init__(self, devices: Iterable[hardware.Device], hz: float):
        self._wanted = sorted({errors.certain(device.gpu_uuid) for device in devices})
        # DCGM's numbers are those of the host, which can differ from NVML's, as in a container
        self._numbers: dict[str, int] = {}
        self._period_ms = max(LEAST_MS, round(1000 / hz))
        self._rows: dict[int, dict[str, str]] = {}
        """Cells of the latest row by column, by GPU."""
        self._heard_at = time.monotonic()
        self._process: subprocess.Popen | None = None
        self._why = self._start()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        if self._process is not None:
            self._listener.start()

    def read(self) -> Iterator[Reading]:
        is_silent = time.monotonic() - self._heard_at > max(1.0, STALE_PERIODS * self._period_ms / 1000)
        rows, why_not = ({}, "dcgmi says nothing") if is_silent else (self._rows, NO_ROW)
        for uuid in self._wanted:
            cells = rows.get(self._numbers.get(uuid, -1))
            why = self._why or (why_not if uuid in self._numbers else NOT_LISTED)
            for counter, unit, _, column, _ in _PROFILED:
                value, note = (None, why) if cells is None else _dmon_value(cells.get(column), _DCGM_SCALE[unit])
                yield Reading(uuid, "device", counter, value, unit, DCGM, note)

    def close(self) -> None:
        if self._process is not None:
            for end in (self._process.terminate, self._process.kill):
                end()
                self._listener.join(DCGMI_GRACE_S)

    def _start(self) -> str | None:
        """Start `dcgmi dmon` for the GPUs that `dcgmi discovery` lists. Returns the reason if it cannot, else None."""
        if shutil.which("dcgmi") is None:
            return "dcgmi is not on PATH"
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        how |= {"text": True, "errors": "replace"}
        try:
            said = subprocess.run(["dcgmi", "discovery", "-l"], timeout=ANSWER_S, check=False, **how).stdout
            listed, number = {}, -1
            for line in said.splitlines():
                if row := re.match(r"\|\s*(\d+)\s*\|", line):
                    number = int(row[1])
                if uuid := re.search(r"Device UUID:\s*(GPU-[\w-]+)", line):
                    listed[uuid[1]] = number
            if not listed:
                return f"dcgmi lists no GPU: {said.strip() or 'it says nothing'}"
            self._numbers = {uuid: listed[uuid] for uuid in self._wanted if uuid in listed}
            if not self._numbers:
                return NOT_LISTED
            fields = ",".join(str(number) for *_, number in _PROFILED)
            gpus = ",".join(map(str, sorted(self._numbers.values())))
            command = ["dcgmi", "dmon", "-e", fields, "-i", gpus, "-d", str(self._period_ms)]
            self._process = subprocess.Popen(command, **how)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"dcgmi does not start: {error}"
        return None

    def _listen(self) -> None:
        columns, last, dmon = [], "", errors.certain(self._process)
        for line in filter(None, map(str.strip, errors.certain(dmon.stdout))):
            self._heard_at, last = time.monotonic(), line
            if line.startswith("#"):
                columns = line.lstrip("# ").split()[1:]
            elif (row := _ROW.match(line)) and columns:
                self._rows[int(row[1])] = dict(zip(columns, row[2].split(), strict=False))
        self._why = f"dcgmi ended with status {dmon.wait()}{last and f': {last}'}"
        self._rows.clear()


def _dmon_value(text: str | None, scale: float) -> tuple[float | None, str | None]:
    try:
        return scale * float(text or ""), None
    except ValueError:
        return None, f"dcgmi says {text or 'nothing'}"
