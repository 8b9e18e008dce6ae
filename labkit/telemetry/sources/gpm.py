"""GPU performance monitoring through NVML: what multiprocessors and memory did, per GPU and per MIG slice.

Hopper and later only (`nvmlGpm*`). A value is the average between two samples, the first of which is taken at once. On
a MIG slice they are those of its GPU instance, which compute instances may share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pynvml

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.telemetry.reading import Reading

SOURCE = "NVML GPM"
_MIB = 2**20
_METRICS: dict[str, tuple[int, str, float]] = {
    "sm_active": (pynvml.NVML_GPM_METRIC_SM_UTIL, "%", 1),
    "sm_occupancy": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, "%", 1),
    "tensor_active": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, "%", 1),
    "dram_active": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, "%", 1),
    "pcie_tx": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, "bytes/s", _MIB),
    "pcie_rx": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, "bytes/s", _MIB),
    "nvlink_tx": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, "bytes/s", _MIB),
    "nvlink_rx": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, "bytes/s", _MIB),
}
"""By counter: NVML's number, our unit, and ours in NVML's."""


class GpmCounters:
    """Reads each GPU, or each slice of one that is divided."""

    def __init__(self, nvml: Nvml, devices: Iterable[Device]):
        """Read these devices where they can be."""
        self._nvml = nvml
        self._targets = [_Target(nvml, device) for device in devices]

    def supports(self, device: Device) -> bool:
        """Whether this device can be read."""
        return any(target.device == device and target.why is None for target in self._targets)

    def read(self) -> Iterator[Reading]:
        """Yield the averages since the last reading."""
        for target in self._targets:
            scope = "mig" if target.device.kind == "mig" else "device"
            values, why = target.averages()
            if values is None and why is None:
                continue  # the first sample
            for counter, (metric, unit, scale) in _METRICS.items():
                value, reason = (None, why) if values is None else values[metric]
                yield Reading(
                    target.device.uuid, scope, counter, None if value is None else scale * value, unit, SOURCE, reason
                )

    def close(self) -> None:
        """Give the samples' memory back to the driver."""
        for target in self._targets:
            target.close()


class _Target:
    """A GPU or a slice, and its two latest samples."""

    def __init__(self, nvml: Nvml, device: Device):
        self.device, self._nvml = device, nvml
        self.why: str | None = None
        """Why there is nothing to read, for good"""
        self._samples: list[Any] = []
        self._taken = False
        parent = self._must("nvmlDeviceGetHandleByUUID", device.gpu_uuid)
        support = self._must("nvmlGpmQueryDeviceSupport", parent)
        if self.why is None and not support.isSupportedDevice:
            self.why = "this GPU has no performance monitoring through NVML (Hopper and later have)"
        self._take: Callable[[Any], Any] = lambda sample: nvml.read("nvmlGpmSampleGet", parent, sample)
        if device.kind == "mig":
            instance = self._must("nvmlDeviceGetGpuInstanceId", self._must("nvmlDeviceGetHandleByUUID", device.uuid))
            self._take = lambda sample: nvml.read("nvmlGpmMigSampleGet", parent, instance, sample)
        for _ in range(2):
            if (sample := self._must("nvmlGpmSampleAlloc")) is not None:
                self._samples.append(sample)
        if self.why is None:  # support is believed once a sample could be taken
            taken = self._take(self._samples[0])
            self._taken = taken.reason is None
            self.why = taken.reason if taken.is_final else None

    def averages(self) -> tuple[dict[int, tuple[float | None, str | None]] | None, str | None]:
        """By metric (value, reason); or None and why there is none, where it is not the first sample."""
        if self.why is not None:
            return None, self.why
        before, now = self._samples
        taken = self._take(now)
        if taken.reason is not None:
            self._taken = False
            if taken.is_final:
                self.why = taken.reason
            return None, taken.reason
        self._samples = [now, before]
        had_one, self._taken = self._taken, True
        if not had_one:
            return None, None
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        asked.sample1, asked.sample2 = before, now
        for place, (metric, _, _) in enumerate(_METRICS.values()):
            asked.metrics[place].metricId = metric
        answer = self._nvml.read("nvmlGpmMetricsGet", asked)
        if answer.reason is not None:
            return None, answer.reason
        return {each.metricId: _value(each) for each in answer.value.metrics[: len(_METRICS)]}, None

    def _must(self, call: str, *arguments: Any) -> Any:
        """The answer to a call without which nothing can be read; None once one has failed."""
        if self.why is not None:
            return None
        answer = self._nvml.read(call, *arguments)
        self.why = answer.reason
        return answer.value

    def close(self) -> None:
        for sample in self._samples:
            self._nvml.read("nvmlGpmSampleFree", sample)
        self._samples, self.why = [], self.why or "closed"


def _value(metric: Any) -> tuple[float | None, str | None]:
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return None, f"{SOURCE} does not give it here ({pynvml.NVMLError(metric.nvmlReturn)})"
    return (None, "no samples between") if math.isnan(metric.value) else (metric.value, None)
