"""The devices that a queue runs on: GPUs and slices by UUID, the CPU whole or in halves, and why not."""

import psutil
import pynvml
import pytest
from fake_gpu_tools import process, slices_in, write_mig
from fake_nvml import AMPERE, FIRST, SECOND, fake_nvml

from labkit.errors import UserError
from labkit.hardware import Nvml
from labkit.sharing import live_devices

GIB = 2**30


def devices(library=None, wanted=(), **more):
    return live_devices(wanted, nvml=lambda: Nvml(library or fake_nvml()), **more)


def test_every_gpu_and_slice_is_a_device_and_a_job_on_it_sees_that_one_only(tmp_path):
    live = devices(fake_nvml(*AMPERE))
    assert [each.packing.name for each in live] == [FIRST, SECOND]
    assert [each.share.environment["CUDA_VISIBLE_DEVICES"] for each in live] == [FIRST, SECOND]
    assert [each.packing.name for each in devices(fake_nvml(*AMPERE), wanted=["1"])] == [SECOND]
    live = devices(fake_nvml(*AMPERE, mig=slices_in(write_mig(tmp_path / "mig", instances=["1g.5gb", "3g.20gb"]))))
    assert [each.device.kind for each in live] == ["mig", "mig", "gpu"]
    assert live[0].packing.memory_bytes < live[1].packing.memory_bytes < live[2].packing.memory_bytes


def test_without_a_gpu_the_cpu_is_one_device():
    (live,) = devices()
    assert live.packing.name == "cpu"
    assert 0 < live.packing.memory_bytes <= psutil.virtual_memory().total
    assert devices(memory_bytes=GIB)[0].packing.memory_bytes == GIB
    assert [each.packing.name for each in devices(fake_nvml(*AMPERE), wanted=["cpu"])] == ["cpu"]


def test_devices_that_cannot_be_shared_are_refused_with_the_reason():
    exclusive = fake_nvml(*AMPERE, nvmlDeviceGetComputeMode=lambda handle: pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    with pytest.raises(UserError, match="EXCLUSIVE_PROCESS"):
        devices(exclusive)
    assert len(devices(exclusive, shared=False)) == 2, "a job at a time is what the mode is for"
    for options, words in (
        ({"library": fake_nvml(*AMPERE, computing={SECOND: [process(1)]})}, "is used by someone else"),
        ({"library": fake_nvml(*AMPERE), "wanted": ["cpu", "0"]}, "devices of one kind"),
        ({"library": fake_nvml(*AMPERE), "wanted": ["7"]}, "this machine has no device '7'"),
    ):
        with pytest.raises(UserError, match=words):
            devices(**options)
