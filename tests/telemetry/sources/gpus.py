"""GPUs of many generations with their counters, for tests: what each can tell."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
from fake_nvml import FIRST, OTHER_SLICE, SLICE, fake_nvml, refuse

from labkit.hardware.device import Device

JOB, CHILD, STRANGER = 42, 43, 77
GENERATIONS = {
    # the GPU, and the calls that it does not support
    "Pascal": ("NVIDIA GeForce GTX 1080 Ti", ["nvmlDeviceGetTotalEnergyConsumption"]),
    "Turing": ("Tesla T4", ["nvmlDeviceGetProcessUtilization"]),
    "Ampere with MIG": ("NVIDIA A100-SXM4-40GB", ["nvmlDeviceGetUtilizationRates"]),
    "Hopper": ("NVIDIA H100 80GB HBM3", []),
}
GPM = ("Hopper",)


def _shares(handle, since_us):
    rows = [(JOB, 1000, 10), (JOB, 2000, 30), (CHILD, 2000, 5), (STRANGER, 2000, 60)]
    told = [SimpleNamespace(pid=pid, timeStamp=at, smUtil=share) for pid, at, share in rows if at > since_us]
    return told or refuse(pynvml.NVML_ERROR_NOT_FOUND)


def _averages(asked):
    for metric in asked.metrics[: asked.numMetrics]:
        metric.nvmlReturn, metric.value = pynvml.NVML_SUCCESS, float(metric.metricId)
    return asked


COUNTERS = {
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
        total=40 * 2**30, used=(1 + 2 * (handle != SLICE)) * 2**30
    ),
    "nvmlDeviceGetPowerUsage": lambda handle: 250_000,
    "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 5_000_000,
    "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1410, 2: 5001}[kind],
    "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 4,
    "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
        SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in ((JOB, 2**30), (CHILD, 2**29), (STRANGER, 2**31))
    ],
}
MORE = {
    "nvmlDeviceGetProcessUtilization": _shares,
    "nvmlDeviceGetGpuInstanceId": lambda handle: (SLICE, OTHER_SLICE).index(handle) + 1,
    "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
    "nvmlGpmSampleFree": lambda sample: None,
    "nvmlGpmSampleGet": lambda handle, sample: sample,
    "nvmlGpmMigSampleGet": lambda handle, instance, sample: sample,
    "nvmlGpmMetricsGet": _averages,
}


def gpus(generation: str, *, gpm: bool | None = None, **answers):
    """An NVML with two GPUs of a generation, the first with two slices where that has MIG."""
    name, unsupported = GENERATIONS[generation]
    mig = (lambda: {SLICE: "1g.5gb", OTHER_SLICE: "1g.5gb"}) if "MIG" in generation else None
    supported = SimpleNamespace(isSupportedDevice=int(generation in GPM if gpm is None else gpm))
    answers = {"nvmlGpmQueryDeviceSupport": lambda handle: supported} | COUNTERS | MORE | answers
    return fake_nvml(name, name, mig=mig, fails=dict.fromkeys(unsupported, pynvml.NVML_ERROR_NOT_SUPPORTED), **answers)


def devices(generation: str) -> list[Device]:
    """What a job on the first GPU sees: the GPU, or its first slice."""
    if "MIG" in generation:
        return [Device("mig", 0, "a slice", torch_name="cuda:0", uuid=SLICE, mig_parent_uuid=FIRST)]
    return [Device("gpu", 0, f"a {generation}", torch_name="cuda:0", uuid=FIRST)]
