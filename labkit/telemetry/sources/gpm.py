"""GPU performance monitoring (GPM) through NVML: activity of multiprocessors and memory, per GPU and per MIG slice.

Only Hopper and later have it (`nvmlGpm*`). A value is the average between two samples; the first one is taken at the
start. The values of a MIG slice are those of its GPU instance, which several compute instances may share.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pynvml

from labkit import hardware
from labkit.telemetry.counters import Reading

SOURCE = "NVML GPM"
_MIB = 2**20
_METRICS: dict[str, tuple[int, str, float]] = {
    "graphics_active": (pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, "%", 1),
    "sm_active": (pynvml.NVML_GPM_METRIC_SM_UTIL, "%", 1),
    "sm_occupancy": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, "%", 1),
    "tensor_active": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, "%", 1),
    "dram_active": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, "%", 1),
    "pcie_tx": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, "bytes/s", _MIB),
    "pcie_rx": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, "bytes/s", _MIB),
    "nvlink_tx": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, "bytes/s", _MIB),
    "nvlink_rx": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, "bytes/s", _MIB),
}
"""NVML's number, our unit, and the factor from NVML's unit to ours, by counter."""


class GpmCounters:
    """Reads each GPU, or each of its MIG slices."""

    def __init__(self, nvml: hardware.Nvml, devices: Iterable[hardware.Device]):
        self._targets = [_Target(nvml, device) for device in devices]

    def supports(self, device: hardware.Device) -> bool:
        """Whether this device can be read."""
        return any(target.device == device and target.why is None for target in self._targets)

    def read(self) -> Iterator[Reading]:
        for target in self._targets:
            scope, averages = "mig" if target.device.kind == "mig" else "device", target.averages()
            for counter, (metric, unit, scale) in _METRICS.items():
                value, why = averages.get(metric, (None, target.why))
                value = None if value is None else scale * value
                yield Reading(target.device.uuid, scope, counter, value, unit, SOURCE, why)

    def close(self) -> None:
        for target in self._targets:
            target.close()


class _Target:
    """A GPU or a slice, and its latest two samples."""

    def __init__(self, nvml: hardware.Nvml, device: hardware.Device):
        self.device, self._nvml = device, nvml
        self._samples: list[Any] = []
        self.why: str | None = None
        """Reason why it cannot be read."""
        try:
            self._begin()
        except LookupError as error:
            self.why = str(error.args[0])

    def averages(self) -> dict[int, tuple[float | None, str | None]]:
        """Averages since the sample before, as (value, reason) by metric; empty if it cannot be read."""
        if self.why is not None:
            return {}
        before, now = self._samples
        answer = self._take(now)
        if answer.reason is None:
            request = pynvml.c_nvmlGpmMetricsGet_t()
            request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
            request.sample1, request.sample2 = before, now
            for place, (metric, _, _) in enumerate(_METRICS.values()):
                request.metrics[place].metricId = metric
            answer, self._samples = self._nvml.read("nvmlGpmMetricsGet", request), [now, before]
        if answer.reason is not None:
            return {metric: (None, answer.reason) for metric, _, _ in _METRICS.values()}
        return {each.metricId: _value(each) for each in answer.value.metrics[: len(_METRICS)]}

    def close(self) -> None:
        for sample in self._samples:
            self._nvml.read("nvmlGpmSampleFree", sample)

    def _begin(self) -> None:
        gpu = self._must("nvmlDeviceGetHandleByUUID", self.device.gpu_uuid)
        if not self._must("nvmlGpmQueryDeviceSupport", gpu).isSupportedDevice:
            raise LookupError("this GPU has no performance monitoring through NVML (only Hopper and later have)")
        if self.device.kind == "mig":
            of_slice = self._must("nvmlDeviceGetHandleByUUID", self.device.uuid)
            instance = self._must("nvmlDeviceGetGpuInstanceId", of_slice)
            self._take = functools.partial(self._nvml.read, "nvmlGpmMigSampleGet", gpu, instance)
        else:
            self._take = functools.partial(self._nvml.read, "nvmlGpmSampleGet", gpu)
        for _ in range(2):
            self._samples.append(self._must("nvmlGpmSampleAlloc"))
        if reason := self._take(self._samples[0]).reason:  # a driver may report support and then refuse samples
            raise LookupError(reason)

    def _must(self, call: str, *arguments: Any) -> Any:
        answer = self._nvml.read(call, *arguments)
        if answer.reason is not None:
            raise LookupError(answer.reason)
        return answer.value


def _value(metric: Any) -> tuple[float | None, str | None]:
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return None, f"{SOURCE} does not give it here ({pynvml.NVMLError(metric.nvmlReturn)})"
    return (None, "no samples between") if math.isnan(metric.value) else (metric.value, None)
