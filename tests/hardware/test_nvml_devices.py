"""Devices from a made-up NVML: architectures x visibility x MIG x failures. No GPU is needed."""

import pynvml
import pytest
from fake_nvml import FIRST, OTHER_SLICE, SECOND, SLICE, fake_nvml

from labkit.hardware.devices import Nvml, get_devices
from labkit.hardware.tiers import match_tier, tier_name

ARCHITECTURES = {
    # name: (compute capability, multiprocessors, tier)
    "NVIDIA GeForce GTX 1080 Ti": ("6.1", 28, "gtx-1080-ti"),
    "Tesla V100-SXM2-16GB": ("7.0", 80, "v100"),
    "Tesla T4": ("7.5", 40, "t4"),
    "NVIDIA A100-SXM4-40GB": ("8.0", 108, "a100-40"),
    "NVIDIA L4": ("8.9", 60, "l4"),
    "NVIDIA L40S": ("8.9", 142, None),
    "NVIDIA H100 80GB HBM3": ("9.0", 132, "h100"),
}
A, B, T4, A100 = FIRST, SECOND, "Tesla T4", "NVIDIA A100-SXM4-40GB"


def gpus(library):
    devices = get_devices(Nvml(library))
    assert devices[0].kind == "cpu" and devices[0].torch_name == "cpu"
    return devices[1:]


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_every_architecture_reports_its_multiprocessors_and_tier():
    for name, expected in ARCHITECTURES.items():
        (gpu,) = gpus(fake_nvml(name))
        assert (gpu.compute_capability, gpu.sm_count, tier_name(gpu)) == expected
        assert (gpu.power_limit_w, gpu.driver_version, gpu.torch_name) == (250, "580.1", "cuda:0")


BOTH = {SLICE: "1g.5gb", OTHER_SLICE: "1g.5gb"}


@pytest.mark.parametrize(
    ("slices", "setting", "expected"),
    [
        (None, None, [(A, "cuda:0"), (B, "cuda:1")]),
        (None, "GPU-bbbb", [(B, "cuda:0")]),
        (None, "GPU-", []),  # ambiguous
        (None, f"{B}, 0", [(B, "cuda:0"), (A, "cuda:1")]),
        (None, "", []),
        (None, "1,7,0", [(B, "cuda:0")]),  # CUDA stops at the first invalid entry
        (None, "0,0", [(A, "cuda:0")]),
        # a process reaches one slice
        (BOTH, None, [(SLICE, "cuda:0"), (OTHER_SLICE, None), (B, None)]),
        (BOTH, "0", [(SLICE, "cuda:0"), (OTHER_SLICE, None)]),
        (BOTH, "MIG-2222", [(OTHER_SLICE, "cuda:0")]),
        (BOTH, A, [(SLICE, "cuda:0"), (OTHER_SLICE, None)]),
    ],
)
def test_visibility_is_read_as_cuda_reads_it(monkeypatch, slices, setting, expected):
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    found = gpus(fake_nvml(A100, A100, mig=lambda: slices))
    assert [(device.uuid, device.torch_name) for device in found] == expected
    assert all((device.torch_name is None) == ("torch_name" in device.missing) for device in found)


def test_a_mig_slice_knows_its_profile_parent_and_share():
    (device,) = gpus(fake_nvml(A100, mig=lambda: {SLICE: "1g.5gb"}))
    assert (device.kind, device.mig_profile, device.mig_parent_uuid) == ("mig", "1g.5gb", A)
    assert (device.sm_count, device.memory_bytes, device.compute_capability) == (14, 4864 * 2**20, "8.0")
    assert match_tier(device) is None


def test_what_nothing_can_run_on_is_listed_with_the_reason():
    (undivided,) = gpus(fake_nvml(A100, mig=dict))
    assert undivided.torch_name is None and "no MIG slice" in undivided.missing["torch_name"]
    (fallen,) = gpus(fake_nvml(T4, fails={"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_GPU_IS_LOST}))
    assert fallen.torch_name is None and fallen.missing["torch_name"]
    session = Nvml(fake_nvml(fails={"nvmlInit": pynvml.NVML_ERROR_DRIVER_NOT_LOADED}))
    assert [device.kind for device in get_devices(session)] == ["cpu"]
    assert "not loaded" in session.reason


FIELD_OF_CALL = {
    "nvmlDeviceGetMemoryInfo": "memory_bytes",
    "nvmlDeviceGetNumGpuCores": "sm_count",
    "nvmlDeviceGetPowerManagementLimit": "power_limit_w",
    "nvmlSystemGetDriverVersion": "driver_version",
}


def test_one_failing_call_costs_one_value():
    for call, lost in FIELD_OF_CALL.items():
        library = fake_nvml(A100, fails={call: pynvml.NVML_ERROR_NOT_SUPPORTED})
        (gpu,) = gpus(library)
        assert call in gpu.missing[lost]
        assert [field for field in FIELD_OF_CALL.values() if getattr(gpu, field) is None] == [lost]
        library.nvmlShutdown.assert_called_once_with()  # the session is closed again
    (gpu,) = gpus(fake_nvml(T4, fails={"nvmlDeviceGetCudaComputeCapability": pynvml.NVML_ERROR_UNKNOWN}))
    assert gpu.sm_count is None and "compute capability" in gpu.missing["sm_count"]
