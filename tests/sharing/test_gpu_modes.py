"""Modes alone, naive and mps over machines that have no GPU, an old one, a new one, or a guarded one."""

import os
from dataclasses import replace

import psutil
import pynvml
import pytest
from fake_gpu_tools import process, refusals, shares, slices_in, write_mig
from fake_nvml import AMPERE, FIRST, HOPPER, PASCAL, SECOND, fake_mps, fake_nvml

from labkit.errors import UserError
from labkit.hardware import Nvml, cpu_device, find_device, get_devices
from labkit.jobs import DlrmJob, SpeechJob
from labkit.launch import MODES, PlannedJob
from labkit.sharing.check import device_warnings
from labkit.sharing.modes import modes_here
from labkit.telemetry import Look

A, B = PlannedJob("a", DlrmJob()), PlannedJob("b", SpeechJob())


@pytest.fixture
def control(tmp_path, monkeypatch):
    fake_mps(tmp_path, monkeypatch)


def test_a_job_on_a_gpu_sees_that_gpu_by_its_uuid_and_no_daemon():
    for mode in ("alone", "naive"):
        for share in shares(mode, [A, B], fake_nvml(*PASCAL), device="1").values():
            assert share.environment["CUDA_VISIBLE_DEVICES"] == SECOND
            assert share.environment["CUDA_MPS_PIPE_DIRECTORY"] == "/dev/null"
            assert share.torch_name == "cuda:0" and SECOND in share.device
    other, lost, gone = replace(A, device="1"), replace(B, device="5"), replace(B, name="c", device="GPU-x")
    found = shares("naive", [other, B], fake_nvml(*AMPERE), device="0")
    assert [found[name].environment["CUDA_VISIBLE_DEVICES"] for name in "ab"] == [SECOND, FIRST]
    refused = refusals("naive", [other, lost, gone], fake_nvml(*AMPERE))
    assert [name for name, _ in refused] == ["b", "c"], "an unknown GPU is a refusal of its job"


@pytest.mark.parametrize(
    ("compute_mode", "refused"),
    [
        (pynvml.NVML_COMPUTEMODE_DEFAULT, []),
        (pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, ["naive"]),
        (pynvml.NVML_COMPUTEMODE_PROHIBITED, ["alone", "naive", "mps"]),
    ],
)
def test_a_compute_mode_refuses_what_it_forbids(compute_mode, refused, control):
    library = fake_nvml(*AMPERE, nvmlDeviceGetComputeMode=lambda handle: compute_mode)
    found = {mode: refusals(mode, [A, B], library) for mode in ("alone", "naive", "mps")}
    assert [mode for mode in found if found[mode]] == refused
    assert bool(refusals("naive", [A], library)) == ("alone" in refused), "one process may use an exclusive GPU"
    assert all(f"nvidia-smi -i {FIRST} -c DEFAULT" in found[mode][0][1] for mode in refused)


def test_clients_of_mps_have_their_limits_and_a_uuid(control):
    bound = replace(A, gpu_percent=12.5, memory_bytes=4 * 2**30)
    found = shares("mps", [bound, B], fake_nvml(*HOPPER))
    assert found["a"].environment == {
        "CUDA_VISIBLE_DEVICES": FIRST,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096MB",
    }
    assert list(found["b"].environment.values())[1:] == ["", ""], "none of this process' environment"
    assert "12.5 %" in found["a"].device and "4 GiB" in found["a"].device


@pytest.mark.parametrize(
    ("gpus", "driver", "most"), [(PASCAL, "570.86", 16), (HOPPER, "580.1", 48), (HOPPER, "590.44.01", 60)]
)
def test_mps_serves_so_many_jobs_on_a_gpu(gpus, driver, most, control):
    library = fake_nvml(*gpus, nvmlSystemGetDriverVersion=lambda: driver)
    jobs = [PlannedJob(f"job-{number}", DlrmJob()) for number in range(most + 1)]
    ((name, reason),) = refusals("mps", jobs, library)
    assert name is None and f"{most + 1} jobs are more than the {most} that MPS serves" in reason
    assert refusals("mps", jobs[:-1], library) == []
    assert refusals("mps", [*jobs[:-1], replace(jobs[-1], device="1")], library) == []


def test_mps_is_refused_where_it_cannot_be(control, monkeypatch, tmp_path):
    state = write_mig(tmp_path / "mig", instances=["3g.20gb"])
    ((_, reason),) = refusals("mps", [A], fake_nvml(*AMPERE, mig=slices_in(state)))
    assert "is a MIG slice" in reason
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(UserError) as refused:
        shares("mps", [A], fake_nvml(*AMPERE, computing={FIRST: [process(1)]}))
    assert "used by someone else" in str(refused.value)
    assert "nvidia-cuda-mps-control is not on PATH" in str(refused.value)


@pytest.mark.parametrize(
    ("gpus", "mig", "impossible"),
    [
        ([], None, {"naive", "mps", "mig"}),
        (PASCAL, None, {"mig"}),
        (AMPERE, {"on": False}, {"mig"}),
        (AMPERE, {"instances": ["3g.20gb"]}, set()),
    ],
)
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_each_machine_has_its_modes_and_a_reason_against_the_others(gpus, mig, impossible, control, tmp_path):
    library = fake_nvml(*gpus, mig=mig and slices_in(write_mig(tmp_path / "mig", **mig)))
    here = modes_here(get_devices(Nvml(library)), Nvml(library))
    assert set(here) == set(MODES)
    assert {mode for mode, reason in here.items() if reason} == impossible
    assert gpus or "no NVIDIA driver is installed" in here["naive"]


def test_a_device_has_a_number_a_uuid_and_its_beginning_and_others_are_refused(tmp_path):
    devices = get_devices(Nvml(fake_nvml(*AMPERE)))
    named = {None: FIRST, "0": FIRST, "1": SECOND, SECOND: SECOND, "GPU-bbbb": SECOND, "cuda:1": SECOND, "cpu": None}
    assert {name: find_device(name, devices).uuid for name in named} == named
    state = write_mig(tmp_path / "mig", instances=["3g.20gb", "2g.10gb"])
    divided = get_devices(Nvml(fake_nvml(*AMPERE, mig=slices_in(state))))
    named = {"MIG-2": "MIG-2", "0": "MIG-1", FIRST: "MIG-1"}  # a divided GPU stands for its first slice
    assert {name: find_device(name, divided).uuid for name in named} == named
    for name, words in {"7": "this machine has no device '7'", "GPU-": "several devices start with"}.items():
        with pytest.raises(UserError, match=words) as refused:
            find_device(name, devices)
        assert f"0 (NVIDIA A100-SXM4-40GB, {FIRST}); 1 (" in str(refused.value)


def test_others_on_a_gpu_are_named_and_this_process_and_its_children_are_none(monkeypatch, control):
    parent, unknown = os.getppid(), 2**22 + 1  # more than Linux gives to any process
    on_first = [process(os.getpid()), process(parent, 3 * 2**30)]
    names = {parent: "/opt/x/train --fast", unknown: "nvidia-cuda-mps-server"}.get
    computing = {FIRST: on_first, SECOND: [process(unknown)]}
    library = fake_nvml(*AMPERE, computing=computing, nvmlSystemGetProcessName=names)
    user = psutil.Process(parent).username()
    for mode in ("alone", "naive", "mps"):
        ((_, first),) = refusals(mode, [A], library)
        assert f"used by someone else: process {parent} train (user {user}, 3 GiB). Wait" in first
        ((_, second),) = refusals(mode, [A], library, device="1")
        assert f"process {unknown} nvidia-cuda-mps-server (its user cannot be seen from here" in second
    assert refusals("naive", [A], fake_nvml(*AMPERE, computing={FIRST: [process(os.getpid())]})) == []
    # jobs that share it by plan are of one family
    gpu = get_devices(Nvml(library))[1]
    monkeypatch.setattr("labkit.hardware.Nvml", lambda: Nvml(library))
    assert Look(gpu=gpu).others()["on_gpu"] == [f"train (process {parent})"]
    assert not Look(root=parent, gpu=gpu).others()["on_gpu"]


def test_what_only_disturbs_is_a_warning(tmp_path, monkeypatch):
    library = fake_nvml(*AMPERE, drawing={FIRST: [process(1)]}, nvmlSystemGetProcessName={1: "/usr/lib/xorg/Xorg"}.get)
    gpu = get_devices(Nvml(library))[1]
    assert refusals("naive", [A, B], library) == []
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "control").touch()
    drawing, daemon = device_warnings(gpu, Nvml(library))
    assert "also draws" in drawing and "Xorg" in drawing
    assert daemon == "An MPS daemon of someone else runs on this machine: no job will be its client."
    busy = {"cpu_share": 0.42, "largest": "stress (process 7)", "on_gpu": [], "disturbed": True}
    monkeypatch.setattr("labkit.telemetry.others_now", lambda: busy)
    (warning,) = device_warnings(cpu_device())
    assert "other programs took 42% of its cores, most of it stress (process 7)" in warning
