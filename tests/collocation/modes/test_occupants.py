"""Who uses a device."""

import os
import subprocess
import sys

import psutil
import pynvml
import pytest
from fake_gpu_tools import FIRST, SECOND, fake_nvml, process

from labkit.collocation import plan_check
from labkit.collocation.modes.gpu import why_occupied
from labkit.collocation.plan_check import device_warnings
from labkit.hardware.devices import cpu_device, get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.occupants import occupants
from labkit.runs.others import in_words
from labkit.telemetry import others
from labkit.telemetry.others import Look

NOBODY = 2**22 + 1  # more than Linux gives to any process


@pytest.fixture(autouse=True)
def no_foreign_daemon(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def first_gpu(library):
    return get_devices(Nvml(library))[1]


def test_this_process_and_its_children_are_nobody_else():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        library = fake_nvml("ampere", computing={FIRST: [process(os.getpid()), process(child.pid)]})
        with Nvml(library) as nvml:
            assert occupants(first_gpu(library), nvml) == ([], None)
        child.communicate()


def test_a_program_of_somebody_is_named_with_its_user_and_memory():
    parent = os.getppid()
    library = fake_nvml(
        "ampere", computing={FIRST: [process(parent, 3 * 2**30)]}, names={parent: "/opt/x/train --fast"}
    )
    with Nvml(library) as nvml:
        why = why_occupied(first_gpu(library), nvml)
    assert f"used by someone else: process {parent} train (user {psutil.Process(parent).username()}, 3 GiB)" in why


def test_a_program_that_cannot_be_seen_is_named_by_its_number():
    library = fake_nvml("ampere", computing={FIRST: [process(NOBODY)], SECOND: []})
    library.nvmlSystemGetProcessName.side_effect = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    with Nvml(library) as nvml:
        first, second = get_devices(Nvml(library))[1:]
        assert f"process {NOBODY} (its user cannot be seen from here" in why_occupied(first, nvml)
        assert why_occupied(second, nvml) is None


def test_a_foreign_mps_server_is_named_as_such():
    library = fake_nvml("ampere", computing={FIRST: [process(NOBODY)]}, names={NOBODY: "nvidia-cuda-mps-server"})
    with Nvml(library) as nvml:
        why = why_occupied(first_gpu(library), nvml)
    assert "used by someone else" in why and "neither uses nor stops" in why


def test_a_desktop_is_a_warning_and_no_reason():
    library = fake_nvml("ampere", drawing={FIRST: [process(NOBODY)]}, names={NOBODY: "/usr/lib/xorg/Xorg"})
    with Nvml(library) as nvml:
        gpu = first_gpu(library)
        assert why_occupied(gpu, nvml) is None
    (warning,) = device_warnings(gpu, Nvml(library))
    assert "also draws" in warning and "Xorg" in warning


def test_where_the_driver_does_not_tell_a_warning_says_so():
    library = fake_nvml("ampere")
    library.nvmlDeviceGetComputeRunningProcesses.side_effect = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    (warning,) = device_warnings(first_gpu(library), Nvml(library))
    assert "cannot be told: not supported on this GPU" in warning


def test_a_foreign_daemon_is_a_warning(tmp_path):
    (tmp_path / "control").touch()
    library = fake_nvml("ampere")
    assert device_warnings(first_gpu(library), Nvml(library)) == [
        "An MPS daemon of someone else runs on this machine: no job will be its client."
    ]


def test_a_busy_machine_is_a_warning_and_an_idle_one_is_none(monkeypatch):
    busy = {"cpu_share": 0.42, "largest": "stress (process 7)", "on_gpu": [], "disturbed": True}
    monkeypatch.setattr(plan_check, "others_now", lambda: busy)
    (warning,) = device_warnings(cpu_device())
    assert "other programs took 42% of its cores, most of it stress (process 7)" in warning
    monkeypatch.setattr(plan_check, "others_now", lambda: busy | {"disturbed": False})
    assert device_warnings(cpu_device()) == []


def test_processes_on_the_gpu_that_are_not_of_the_run_are_named(monkeypatch):
    parent = os.getppid()
    library = fake_nvml("ampere", computing={FIRST: [process(os.getpid()), process(parent)]}, names={parent: "train"})
    gpu = get_devices(Nvml(library))[1]
    monkeypatch.setattr(others, "Nvml", lambda: Nvml(library))
    found = Look(gpu=gpu).others()
    assert found["on_gpu"] == [f"train (process {parent})"] and found["disturbed"]
    assert in_words(found | {"cpu_share": 0.0}) == f"train (process {parent}) had its GPU open, too"
    assert not Look(root=parent, gpu=gpu).others()["on_gpu"]  # jobs that share it by plan are of one family
