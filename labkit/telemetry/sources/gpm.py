"""GPU performance monitoring through NVML: what multiprocessors and memory did, per GPU and per MIG slice.

Hopper and later only (`nvmlGpm*`). A value is the average between two samples, the first of which is taken at once. On
a MIG slice they are those of its GPU instance, which compute instances may share.
"""

from __future__ import annotations

import contextlib
import functools
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
        """Whether this device can be read now."""
        return any(target.device == device and target.is_ready for target in self._targets)

    def read(self) -> Iterator[Reading]:
        """Yield the averages since the last reading."""
        for target in self._targets:
            scope = "mig" if target.device.kind == "mig" else "device"
            try:
                values, why = target.averages(), None
            except _NoAnswer as reason:
                values, why = {}, str(reason)
            for counter, (metric, unit, scale) in _METRICS.items() if values is not None else ():
                value, reason = values.get(metric, (None, why))
                value = None if value is None else scale * value
                yield Reading(target.device.uuid, scope, counter, value, unit, SOURCE, reason)

    def close(self) -> None:
        """Give the samples' memory back to the driver."""
        for target in self._targets:
            target.close()


class _NoAnswer(Exception):
    """NVML does not answer, and why."""


class _Target:
    """A GPU or a slice, and its two latest samples."""

    def __init__(self, nvml: Nvml, device: Device):
        self.device, self._nvml = device, nvml
        self.why: str | None = None
        """Why there is nothing to read, for good"""
        self._samples: list[Any] = []
        self._take: Callable[[Any], Any] | None = None
        """Fills a sample; None until the GPU was found"""
        self._has_before, self._opening = False, 0
        with contextlib.suppress(_NoAnswer):  # said, or asked again, at the first reading
            self._find()

    @property
    def is_ready(self) -> bool:
        """Whether its first sample could be taken."""
        return self._take is not None

    def averages(self) -> dict[int, tuple[float | None, str | None]] | None:
        """By metric (value, reason); None at the first sample.

        Raises:
            _NoAnswer: there are none.
        """
        if self.why is not None:
            raise _NoAnswer(self.why)
        if self._take is None or self._opening != self._nvml.openings:
            was_known = self._take is not None
            self._find()
            if was_known:
                raise _NoAnswer("the session with the driver was opened anew")
            return None
        before, now = self._samples
        had_before, self._has_before = self._has_before, False
        self._must(self._take(now))
        self._samples, self._has_before = [now, before], True
        return self._between(before, now) if had_before else None

    def close(self) -> None:
        for sample in self._samples:
            self._nvml.read("nvmlGpmSampleFree", sample)
        self._samples, self.why = [], self.why or "closed"

    def _find(self) -> None:
        """Find the GPU and take the first sample."""
        nvml, self._take = self._nvml, None
        if self._opening != nvml.openings:
            self._opening, self._samples = nvml.openings, []  # they were of a session that is closed
        gpu = self._ask("nvmlDeviceGetHandleByUUID", self.device.gpu_uuid)
        if not self._ask("nvmlGpmQueryDeviceSupport", gpu).isSupportedDevice:
            self.why = "this GPU has no performance monitoring through NVML (Hopper and later have)"
            raise _NoAnswer(self.why)
        if self.device.kind == "mig":
            instance = self._ask("nvmlDeviceGetGpuInstanceId", self._ask("nvmlDeviceGetHandleByUUID", self.device.uuid))
            take = functools.partial(nvml.read, "nvmlGpmMigSampleGet", gpu, instance)
        else:
            take = functools.partial(nvml.read, "nvmlGpmSampleGet", gpu)
        while len(self._samples) < 2:
            self._samples.append(self._ask("nvmlGpmSampleAlloc"))
        self._must(take(self._samples[0]))  # support is believed once a sample could be taken
        self._take, self._has_before = take, True

    def _between(self, before: Any, now: Any) -> dict[int, tuple[float | None, str | None]]:
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        asked.sample1, asked.sample2 = before, now
        for place, (metric, _, _) in enumerate(_METRICS.values()):
            asked.metrics[place].metricId = metric
        answer = self._nvml.read("nvmlGpmMetricsGet", asked)
        if answer.reason is not None:  # what one question lacks is not the end of all
            raise _NoAnswer(answer.reason)
        return {each.metricId: _value(each) for each in answer.value.metrics[: len(_METRICS)]}

    def _ask(self, call: str, *arguments: Any) -> Any:
        return self._must(self._nvml.read(call, *arguments))

    def _must(self, answer: Any) -> Any:
        """The value of an answer without which nothing can be read."""
        if answer.reason is None:
            return answer.value
        if answer.is_final:
            self.why = answer.reason
        raise _NoAnswer(answer.reason)


def _value(metric: Any) -> tuple[float | None, str | None]:
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return None, f"{SOURCE} does not give it here ({pynvml.NVMLError(metric.nvmlReturn)})"
    return (None, "no samples between") if math.isnan(metric.value) else (metric.value, None)
