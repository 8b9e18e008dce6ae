"""Devices from an autospec'd NVML: architectures x visibility x MIG x failures. No GPU is needed."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import create_autospec

import pynvml
import pytest

from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.tiers import match_tier

ARCHITECTURES = {
    # name: (compute capability, CUDA cores, multiprocessors, tier); the A10G's cores are its 80 SMs x 128
    "NVIDIA Tegra X1": ((5, 3), 128, 1, None),
    "NVIDIA GeForce GTX 1080 Ti": ((6, 1), 3584, 28, "gtx-1080-ti"),
    "Tesla V100-SXM2-16GB": ((7, 0), 5120, 80, "v100"),
    "Tesla T4": ((7, 5), 2560, 40, "t4"),
    "NVIDIA A100-SXM4-40GB": ((8, 0), 6912, 108, "a100-40"),
    "NVIDIA A10G": ((8, 6), 10240, 80, "a10g"),
    "NVIDIA L4": ((8, 9), 7680, 60, "l4"),
    "NVIDIA L40S": ((8, 9), 18176, 142, None),
    "NVIDIA H100 80GB HBM3": ((9, 0), 16896, 132, "h100"),
    "NVIDIA H200": ((9, 0), 16896, 132, "h200"),
}
A, B = "GPU-aaaa1111-0000", "GPU-aabb2222-0000"
SLICE_1, SLICE_2 = "MIG-11110000-0000", "MIG-22220000-0000"


def fake_nvml(names=("Tesla T4", "Tesla T4"), mig=(), fails=(), cores=None):
    """An NVML of these GPUs; `mig` maps a GPU's number to its slices, `fails` maps a call to its error."""
    mig, fails = dict(mig), dict(fails)
    library = create_autospec(pynvml)
    uuids = (A, B)
    slices = {uuid: (number, place) for number, group in mig.items() for place, uuid in enumerate(group)}
    not_found = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    unsupported = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def number(handle):
        return slices[handle][0] if handle in slices else handle

    def mig_mode(handle):
        if ARCHITECTURES[names[handle]][0] < (8, 0):
            raise unsupported
        return [int(handle in mig), int(handle in mig)]

    def mig_slice(handle, place):
        if place >= len(mig[handle]):
            raise not_found
        return mig[handle][place]

    def name(handle):
        return names[number(handle)] + (" MIG 1g.5gb" if handle in slices else "")

    library.nvmlDeviceGetCount.return_value = len(names)
    library.nvmlDeviceGetHandleByIndex.side_effect = lambda index: index
    library.nvmlDeviceGetName.side_effect = name
    library.nvmlDeviceGetUUID.side_effect = lambda handle: handle if handle in slices else uuids[handle]
    library.nvmlDeviceGetMemoryInfo.side_effect = lambda handle: SimpleNamespace(total=5 if handle in slices else 16)
    library.nvmlDeviceGetCudaComputeCapability.side_effect = lambda handle: ARCHITECTURES[names[handle]][0]
    library.nvmlDeviceGetNumGpuCores.side_effect = lambda handle: cores or ARCHITECTURES[names[handle]][1]
    library.nvmlDeviceGetPowerManagementLimit.return_value = 70_000
    library.nvmlSystemGetDriverVersion.return_value = "580.1"
    library.nvmlDeviceGetMigMode.side_effect = mig_mode
    library.nvmlDeviceGetMaxMigDeviceCount.return_value = 7
    library.nvmlDeviceGetMigDeviceHandleByIndex.side_effect = mig_slice
    library.nvmlDeviceGetAttributes.return_value = SimpleNamespace(multiprocessorCount=14)
    for call, code in fails.items():
        getattr(library, call).side_effect = pynvml.NVMLError(code)
    return library


def gpus(library):
    devices = get_devices(Nvml(library))
    assert devices[0].kind == "cpu" and devices[0].torch_name == "cpu"
    return devices[1:]


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_reports_its_multiprocessors_and_tier(name):
    capability, _, sm_count, tier = ARCHITECTURES[name]
    (gpu,) = gpus(fake_nvml([name]))
    assert gpu.compute_capability == f"{capability[0]}.{capability[1]}"
    assert gpu.sm_count == sm_count
    assert gpu.torch_name == "cuda:0"
    assert gpu.power_limit_w == 70
    assert gpu.driver_version == "580.1"
    found = match_tier(gpu)
    assert (found and found.name) == tier


BOTH = {"names": ["NVIDIA A100-SXM4-40GB"] * 2, "mig": {0: [SLICE_1, SLICE_2]}}


@pytest.mark.parametrize(
    ("machine", "setting", "expected"),
    [
        ({}, None, [(A, "cuda:0"), (B, "cuda:1")]),
        ({}, "0", [(A, "cuda:0")]),
        ({}, "1,0", [(B, "cuda:0"), (A, "cuda:1")]),
        ({}, A, [(A, "cuda:0")]),
        ({}, "GPU-aabb", [(B, "cuda:0")]),
        ({}, "GPU-aa", []),  # ambiguous
        ({}, f"{B}, 0", [(B, "cuda:0"), (A, "cuda:1")]),
        ({}, "", []),
        ({}, "-1", []),
        ({}, "7", []),
        ({}, "1,7,0", [(B, "cuda:0")]),  # CUDA stops at the first invalid entry
        ({}, "0,0", [(A, "cuda:0")]),
        ({}, "nonsense", []),
        # a process reaches one slice
        (BOTH, None, [(SLICE_1, "cuda:0"), (SLICE_2, None), (B, None)]),
        (BOTH, "0", [(SLICE_1, "cuda:0"), (SLICE_2, None)]),
        (BOTH, "1", [(B, "cuda:0")]),
        (BOTH, SLICE_2, [(SLICE_2, "cuda:0")]),
        (BOTH, "MIG-2222", [(SLICE_2, "cuda:0")]),
        (BOTH, A, [(SLICE_1, "cuda:0"), (SLICE_2, None)]),
        (BOTH, "MIG-gone", []),
        (BOTH, "", []),
    ],
)
def test_visibility_is_read_as_cuda_reads_it(monkeypatch, machine, setting, expected):
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    found = gpus(fake_nvml(**machine))
    assert [(device.uuid, device.torch_name) for device in found] == expected
    assert all((device.torch_name is None) == ("torch_name" in device.missing) for device in found)


def test_a_mig_slice_knows_its_profile_parent_and_share():
    library = fake_nvml(["NVIDIA A100-SXM4-40GB"], mig={0: [SLICE_1]})
    (device,) = gpus(library)
    assert (device.kind, device.mig_profile, device.mig_parent_uuid) == ("mig", "1g.5gb", A)
    assert (device.sm_count, device.memory_bytes, device.compute_capability) == (14, 5, "8.0")
    assert match_tier(device) is None


def test_what_nothing_can_run_on_is_listed_with_the_reason():
    (undivided,) = gpus(fake_nvml(["NVIDIA A100-SXM4-40GB"], mig={0: []}))
    assert undivided.torch_name is None and "no MIG slice" in undivided.missing["torch_name"]
    (fallen,) = gpus(fake_nvml(["Tesla T4"], fails={"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_GPU_IS_LOST}))
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


@pytest.mark.parametrize("call", FIELD_OF_CALL)
def test_one_failing_call_costs_one_value(call):
    library = fake_nvml(["NVIDIA A100-SXM4-40GB"], fails={call: pynvml.NVML_ERROR_NOT_SUPPORTED})
    (gpu,) = gpus(library)
    lost = FIELD_OF_CALL[call]
    assert getattr(gpu, lost) is None
    assert call in gpu.missing[lost]
    for field in set(FIELD_OF_CALL.values()) - {lost}:
        assert getattr(gpu, field) is not None


def test_without_compute_capability_the_multiprocessors_are_unknown_too():
    library = fake_nvml(["Tesla T4"], fails={"nvmlDeviceGetCudaComputeCapability": pynvml.NVML_ERROR_UNKNOWN})
    (gpu,) = gpus(library)
    assert gpu.sm_count is None and "compute capability" in gpu.missing["sm_count"]
    library.nvmlShutdown.assert_called_once_with()  # the session is closed again
