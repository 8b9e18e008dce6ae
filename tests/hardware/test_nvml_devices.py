"""Devices from a made-up NVML: architectures x visibility x MIG x failures. No GPU is needed."""

from __future__ import annotations

import pynvml
import pytest
from fake_nvml import FIRST, OTHER_SLICE, SECOND, SLICE, fake_nvml

from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.tiers import match_tier

ARCHITECTURES = {
    # name: (compute capability, multiprocessors, tier); the A10G's cores are its 80 SMs x 128
    "NVIDIA Tegra X1": ("5.3", 1, None),
    "NVIDIA GeForce GTX 1080 Ti": ("6.1", 28, "gtx-1080-ti"),
    "Tesla V100-SXM2-16GB": ("7.0", 80, "v100"),
    "Tesla T4": ("7.5", 40, "t4"),
    "NVIDIA A100-SXM4-40GB": ("8.0", 108, "a100-40"),
    "NVIDIA A10G": ("8.6", 80, "a10g"),
    "NVIDIA L4": ("8.9", 60, "l4"),
    "NVIDIA L40S": ("8.9", 142, None),
    "NVIDIA H100 80GB HBM3": ("9.0", 132, "h100"),
    "NVIDIA H200": ("9.0", 132, "h200"),
}
A, B, T4, A100 = FIRST, SECOND, "Tesla T4", "NVIDIA A100-SXM4-40GB"


def gpus(library):
    devices = get_devices(Nvml(library))
    assert devices[0].kind == "cpu" and devices[0].torch_name == "cpu"
    return devices[1:]


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_reports_its_multiprocessors_and_tier(name):
    capability, sm_count, tier = ARCHITECTURES[name]
    (gpu,) = gpus(fake_nvml(name))
    assert (gpu.compute_capability, gpu.sm_count, gpu.torch_name) == (capability, sm_count, "cuda:0")
    assert (gpu.power_limit_w, gpu.driver_version) == (250, "580.1")
    found = match_tier(gpu)
    assert (found and found.name) == tier


ONE, BOTH = {SLICE: "1g.5gb"}, {SLICE: "1g.5gb", OTHER_SLICE: "1g.5gb"}


@pytest.mark.parametrize(
    ("slices", "setting", "expected"),
    [
        (None, None, [(A, "cuda:0"), (B, "cuda:1")]),
        (None, "0", [(A, "cuda:0")]),
        (None, "1,0", [(B, "cuda:0"), (A, "cuda:1")]),
        (None, A, [(A, "cuda:0")]),
        (None, "GPU-bbbb", [(B, "cuda:0")]),
        (None, "GPU-", []),  # ambiguous
        (None, f"{B}, 0", [(B, "cuda:0"), (A, "cuda:1")]),
        (None, "", []),
        (None, "-1", []),
        (None, "7", []),
        (None, "1,7,0", [(B, "cuda:0")]),  # CUDA stops at the first invalid entry
        (None, "0,0", [(A, "cuda:0")]),
        (None, "nonsense", []),
        # a process reaches one slice
        (BOTH, None, [(SLICE, "cuda:0"), (OTHER_SLICE, None), (B, None)]),
        (BOTH, "0", [(SLICE, "cuda:0"), (OTHER_SLICE, None)]),
        (BOTH, "1", [(B, "cuda:0")]),
        (BOTH, OTHER_SLICE, [(OTHER_SLICE, "cuda:0")]),
        (BOTH, "MIG-2222", [(OTHER_SLICE, "cuda:0")]),
        (BOTH, A, [(SLICE, "cuda:0"), (OTHER_SLICE, None)]),
        (BOTH, "MIG-gone", []),
        (BOTH, "", []),
    ],
)
def test_visibility_is_read_as_cuda_reads_it(monkeypatch, slices, setting, expected):
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    found = gpus(fake_nvml(A100, A100, mig=lambda: slices))
    assert [(device.uuid, device.torch_name) for device in found] == expected
    assert all((device.torch_name is None) == ("torch_name" in device.missing) for device in found)


def test_a_mig_slice_knows_its_profile_parent_and_share():
    library = fake_nvml(A100, mig=lambda: ONE)
    (device,) = gpus(library)
    assert (device.kind, device.mig_profile, device.mig_parent_uuid) == ("mig", "1g.5gb", A)
    assert (device.sm_count, device.memory_bytes, device.compute_capability) == (14, 5, "8.0")
    assert match_tier(device) is None


def test_what_nothing_can_run_on_is_listed_with_the_reason():
    (undivided,) = gpus(fake_nvml(A100, mig=dict))
    assert undivided.torch_name is None and "no MIG slice" in undivided.missing["torch_name"]
    (fallen,) = gpus(fake_nvml(T4, fails={"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_GPU_IS_LOST}))
    assert fallen.torch_name is None and fallen.missing["torch_name"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no permission"),
    ],
)
def test_without_a_driver_only_the_cpu_is_left_and_the_reason_is_kept(code, words):
    session = Nvml(fake_nvml(fails={"nvmlInit": code}))
    assert [device.kind for device in get_devices(session)] == ["cpu"]
    assert words in session.reason


FIELD_OF_CALL = {
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetMemoryInfo": "memory_bytes",
    "nvmlDeviceGetNumGpuCores": "sm_count",
    "nvmlDeviceGetPowerManagementLimit": "power_limit_w",
    "nvmlSystemGetDriverVersion": "driver_version",
    "nvmlDeviceGetMigMode": "mig_mode",
}


@pytest.mark.parametrize(("call", "lost"), FIELD_OF_CALL.items())
def test_one_failing_call_costs_one_value(call, lost):
    library = fake_nvml(A100, fails={call: pynvml.NVML_ERROR_NOT_SUPPORTED})
    (gpu,) = gpus(library)
    assert getattr(gpu, lost) is None
    assert call in gpu.missing[lost]
    for field in set(FIELD_OF_CALL.values()) - {lost}:
        assert getattr(gpu, field) is not None


def test_without_compute_capability_the_multiprocessors_are_unknown_too():
    library = fake_nvml(T4, fails={"nvmlDeviceGetCudaComputeCapability": pynvml.NVML_ERROR_UNKNOWN})
    (gpu,) = gpus(library)
    assert gpu.sm_count is None and "compute capability" in gpu.missing["sm_count"]
    library.nvmlShutdown.assert_called_once_with()  # the session is closed again
