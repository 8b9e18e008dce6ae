"""An NVML of GPUs of many generations, for tests: what each can tell, and how it fails."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import create_autospec

import pynvml

from labkit.hardware.device import Device

UNSUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
GPU, OTHER, SLICE, OTHER_SLICE = "GPU-aaaa-0", "GPU-bbbb-1", "MIG-aaaa-0-1", "MIG-aaaa-0-2"
JOB, CHILD, STRANGER = 42, 43, 77

GENERATIONS = {
    "Pascal": {"nvmlDeviceGetTotalEnergyConsumption"},
    "Turing": set(),
    "Ampere with MIG": {"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetProcessUtilization"},
    "Hopper": set(),
    "GeForce": {"nvmlDeviceGetProcessUtilization"},
}
"""What each does not support."""
GPM = ("Hopper",)


def fake_nvml(generation: str):
    """An autospec'd NVML with two GPUs of a generation, the first with two slices where that has MIG."""
    library = create_autospec(pynvml)
    has_mig = "MIG" in generation
    handles = {GPU: 0, OTHER: 1} | ({SLICE: 10, OTHER_SLICE: 11} if has_mig else {})
    by_handle = {handle: uuid for uuid, handle in handles.items()}

    def handle_of(uuid):
        if uuid not in handles:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return handles[uuid]

    def is_slice(handle):
        return by_handle[handle].startswith("MIG")

    def mig_slice(handle, place):
        if not has_mig or handle != 0 or place > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 10 + place

    library.nvmlDeviceGetCount.return_value = 2
    library.nvmlDeviceGetHandleByIndex.side_effect = lambda index: index
    library.nvmlDeviceGetUUID.side_effect = lambda handle: by_handle[handle]
    library.nvmlDeviceGetName.side_effect = lambda handle: generation + (" MIG 1g.5gb" if is_slice(handle) else "")
    library.nvmlDeviceGetCudaComputeCapability.side_effect = lambda handle: (8, 0)
    library.nvmlDeviceGetNumGpuCores.side_effect = lambda handle: 6912
    library.nvmlDeviceGetPowerManagementLimit.side_effect = lambda handle: 300_000
    library.nvmlSystemGetDriverVersion.return_value = "580.1"
    library.nvmlDeviceGetMigMode.side_effect = lambda handle: [int(has_mig and handle == 0)] * 2
    library.nvmlDeviceGetMaxMigDeviceCount.return_value = 7
    library.nvmlDeviceGetMigDeviceHandleByIndex.side_effect = mig_slice
    library.nvmlDeviceGetAttributes.side_effect = lambda handle: SimpleNamespace(multiprocessorCount=14)

    def processes(handle):
        held = {JOB: 2**30, CHILD: 2**29, STRANGER: 2**31}
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in held.items()]

    def shares(handle, since_us):
        if since_us >= 2000:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        rows = [(JOB, 1000, 10), (JOB, 2000, 30), (CHILD, 2000, 5), (STRANGER, 2000, 60)]
        return [SimpleNamespace(pid=pid, timeStamp=at, smUtil=share) for pid, at, share in rows]

    def averages(asked):
        for metric in asked.metrics[: asked.numMetrics]:
            metric.nvmlReturn, metric.value = pynvml.NVML_SUCCESS, float(metric.metricId)
        return asked

    library.nvmlDeviceGetHandleByUUID.side_effect = handle_of
    library.nvmlDeviceGetUtilizationRates.side_effect = lambda handle: SimpleNamespace(gpu=97, memory=40)
    library.nvmlDeviceGetMemoryInfo.side_effect = lambda handle: SimpleNamespace(
        total=40 * 2**30, used=(1 if is_slice(handle) else 3) * 2**30
    )
    library.nvmlDeviceGetPowerUsage.side_effect = lambda handle: 250_000
    library.nvmlDeviceGetTotalEnergyConsumption.side_effect = lambda handle: 5_000_000
    library.nvmlDeviceGetClockInfo.side_effect = lambda handle, kind: {1: 1410, 2: 5001}[kind]
    library.nvmlDeviceGetTemperature.side_effect = lambda handle, sensor: 61
    library.nvmlDeviceGetCurrentClocksThrottleReasons.side_effect = lambda handle: 4
    library.nvmlDeviceGetComputeRunningProcesses.side_effect = processes
    library.nvmlDeviceGetProcessUtilization.side_effect = shares
    library.nvmlDeviceGetGpuInstanceId.side_effect = lambda handle: handle - 9
    library.nvmlGpmQueryDeviceSupport.side_effect = lambda handle: SimpleNamespace(
        isSupportedDevice=int(generation in GPM)
    )
    library.nvmlGpmSampleAlloc.side_effect = pynvml.c_nvmlGpmSample_t
    library.nvmlGpmSampleGet.side_effect = lambda handle, sample: sample
    library.nvmlGpmMigSampleGet.side_effect = lambda handle, instance, sample: sample
    library.nvmlGpmMetricsGet.side_effect = averages
    for call in GENERATIONS[generation]:
        fail(library, call, UNSUPPORTED)
    return library


def fail(library, call: str, code: int) -> None:
    """Let a call of the library fail from now on."""
    getattr(library, call).side_effect = pynvml.NVMLError(code)


def devices(generation: str) -> list[Device]:
    """What a job on the first GPU of `fake_nvml` sees: the GPU, or its first slice."""
    if "MIG" in generation:
        return [Device(kind="mig", index=0, name="a slice", torch_name="cuda:0", uuid=SLICE, mig_parent_uuid=GPU)]
    return [Device(kind="gpu", index=0, name=f"a {generation}", torch_name="cuda:0", uuid=GPU)]
