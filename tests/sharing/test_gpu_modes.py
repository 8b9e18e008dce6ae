"""Modes alone, naive, mps and mig over machines that have no GPU, an old one, a new one, or a guarded one."""

import os
from dataclasses import replace
from unittest import mock

import psutil
import pynvml
import pytest
from fake_gpu_tools import process, refusals, shares, slices_in, write_mig
from fake_nvml import AMPERE, FIRST, HOPPER, PASCAL, SECOND, fake_mps, fake_nvml

from labkit.errors import UserError
from labkit.hardware import Nvml, cpu_device, find_device, get_devices
from labkit.jobs import DlrmJob, SpeechJob
from labkit.launch import MODES, PlannedJob
from labkit.sharing import live_devices
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


GIB = 2**30
C = PlannedJob("c", DlrmJob())
ONE, MIXED = ["3g.20gb"], ["1g.5gb", "3g.20gb", "2g.10gb"]  # slices MIG-1, MIG-2, MIG-3


@pytest.fixture
def machine(tmp_path):
    """A GPU with these instances."""

    def machine(instances, on=True, **how):
        return fake_nvml(*AMPERE, mig=slices_in(write_mig(tmp_path / "mig", on=on, instances=instances)), **how)

    return machine


def slices(jobs, library, **more):
    found = shares("mig", jobs, library, device="0", **more)
    return {name: share.environment["CUDA_VISIBLE_DEVICES"] for name, share in found.items()}


@pytest.mark.parametrize(
    ("jobs", "needs", "expected"),
    [
        ([A], {}, ["MIG-1"]),  # the smallest
        ([A, B, C], {"a": GIB, "b": 12 * GIB, "c": 6 * GIB}, ["MIG-1", "MIG-2", "MIG-3"]),
        ([A, replace(B, mig_profile="1g.5gb")], {}, ["MIG-3", "MIG-1"]),
        ([replace(A, mig_profile="3g.20gb"), B], {"b": 6 * GIB}, ["MIG-2", "MIG-3"]),
        ([A, replace(B, device="MIG-1")], {}, ["MIG-3", "MIG-1"]),
        # what is asked for counts instead of the estimate
        ([replace(A, memory_bytes=6 * GIB)], {"a": 12 * GIB}, ["MIG-3"]),
    ],
)
def test_each_job_gets_the_smallest_free_slice_that_fits_and_none_is_given_twice(jobs, needs, expected, machine):
    assert list(slices(jobs, machine(MIXED), needs=needs).values()) == expected


def test_a_slice_in_use_is_not_given(machine):
    library = machine(MIXED, computing={"MIG-1": [process(1)]})
    assert slices([A], library) == {"a": "MIG-3"}
    assert "MIG-1 is used by someone else" in dict(refusals("mig", [A, B, C], library, "0"))["c"]


SMI = f"sudo nvidia-smi mig -i {FIRST}"
OF_1G = replace(A, mig_profile="1g.5gb")


@pytest.mark.parametrize(
    ("instances", "jobs", "needs", "parts"),
    [
        # in addition to the one there is
        (ONE, [A, B, C], {"a": GIB, "b": GIB, "c": GIB}, [
            "there is no free slice with 1 GiB for b (slices: 3g.20gb with 19.5 GiB; 1 given to other jobs)",
            "for c", f"`{SMI} -cgi 2g.10gb,2g.10gb -C`", f"`{SMI} -dci -gi IDS && {SMI} -dgi -gi IDS`",
        ]),
        # the largest equal slices that fit
        ([], [A], {}, ["-cgi 7g.40gb -C"]),
        ([], [A, B], {}, ["-cgi 3g.20gb,3g.20gb -C"]),
        ([], [A, B, C], {"a": 8 * GIB}, ["-cgi 2g.10gb,2g.10gb,2g.10gb -C"]),
        ([], [OF_1G, B], {}, ["the jobs want slices that differ (1g.5gb, None)"]),
        ([], [A, B], {"b": 30 * GIB}, ["no layout of this GPU has an equal slice for each job; it offers 1g.10gb, 1g"]),
        ([], [], {}, ["has no slice yet"]),
        (MIXED, [replace(A, mig_profile="3g.40gb")], {}, ["no free slice of profile 3g.40gb for a (slices: 1g.5gb"]),
    ],
)  # fmt: skip
def test_what_no_slice_can_give_is_refused_with_what_there_is_and_a_layout(machine, instances, jobs, needs, parts):
    reported = "\n".join(reason for _, reason in refusals("mig", jobs, machine(instances), "0", needs=needs))
    assert [part for part in parts if part not in reported] == []


@pytest.mark.parametrize(
    ("on", "device", "words"),
    [
        (None, "0", "has no MIG (not supported on this GPU (nvmlDeviceGetMigMode))"),
        (False, "0", f"its administrator can while no process uses the GPU, with `sudo nvidia-smi -i {FIRST}"),
        (True, "1", f"MIG is off on NVIDIA A100-SXM4-40GB {SECOND}"),
    ],
)
def test_without_mig_the_mode_is_refused(machine, on, device, words):
    library = fake_nvml(*PASCAL) if on is None else machine(MIXED, on=on)
    ((name, reason),) = refusals("mig", [A, B], library, device)
    assert name is None and words in reason


def test_where_only_administrators_know_what_is_free_no_layout_is_proposed(machine):
    library = machine(ONE, fails={"nvmlDeviceGetGpuInstanceRemainingCapacity": pynvml.NVML_ERROR_NO_PERMISSION})
    refused = refusals("mig", [A, B], library, "0")
    assert f"`{SMI} -lgip` lists it" in refused[-1][1]


def devices(library=None, wanted=(), **more):
    with mock.patch.object(Nvml.__init__, "__defaults__", (library or fake_nvml(),)):
        return live_devices(wanted, **more)


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
