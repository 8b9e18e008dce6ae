"""Modes cpu-shared and cpu-pinned: cores and memory that are dealt out."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_gpu_tools import fake_nvml

from labkit.collocation.modes import choice, cpu
from labkit.collocation.modes.choice import mode_refusals, mode_shares
from labkit.collocation.modes.cpu import deal_cores, deal_memory
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.budgets.budget import THREAD_VARIABLES
from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml

A, B, C = (PlannedJob(name, "dlrm") for name in "abc")
CPU = Device(kind="cpu", index=0, name="some CPU", torch_name="cpu", cores=4, memory_bytes=16 * 2**30)
GPU = Device(kind="gpu", index=0, name="some GPU", torch_name="cuda:0", uuid="GPU-1")
NO_TOPOLOGY = "/nowhere"

affine = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Four cores and 8 GiB that are free."""
    monkeypatch.setattr(cpu, "own_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(cpu, "read_cpu", lambda: SimpleNamespace(memory_available_bytes=8 * 2**30))
    monkeypatch.setattr(cpu, "_physical", lambda cpu, root: cpu)


def refusals(mode, jobs, device=CPU, **more):
    return mode_refusals(mode, jobs, device, [CPU, GPU], nvml=Nvml(fake_nvml(None)), **more)


def shares(mode, jobs, **more):
    return mode_shares(mode, jobs, CPU, [CPU], nvml=Nvml(fake_nvml(None)), **more)


@pytest.mark.parametrize("mode", ["cpu-shared", "cpu-pinned"])
def test_idle_threads_give_their_core_away_unless_they_are_to_spin(mode):
    assert shares(mode, [A])["a"].environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "OMP_WAIT_POLICY" not in shares(mode, [A], spin=True)["a"].environment


@pytest.mark.parametrize(("others", "waits"), [(0.0, None), (0.5, "PASSIVE")])
def test_alone_waits_busily_unless_other_programs_would_pay_for_it(monkeypatch, others, waits):
    monkeypatch.setattr(choice, "is_quiet", lambda: others < 0.1)
    share = shares("alone", [A])["a"]
    assert share.environment.get("OMP_WAIT_POLICY") == waits
    assert ("wait busily" in share.device) == (waits is None)


@pytest.mark.parametrize("mode", ["alone", "cpu-shared", "cpu-pinned"])
def test_a_job_on_the_cpu_sees_no_gpu(mode):
    assert shares(mode, [A])["a"].environment["CUDA_VISIBLE_DEVICES"] == "-1"


def test_shared_cores_bind_nobody():
    for share in shares("cpu-shared", [A, B]).values():
        assert (share.cores, share.memory_bytes, share.torch_name) == (None, None, "cpu")
        assert share.device == "some CPU, all 4 cores"


@pytest.mark.parametrize("mode", ["cpu-shared", "cpu-pinned"])
def test_modes_of_the_cpu_are_refused_on_a_gpu(mode):
    ((name, reason),) = refusals(mode, [A, B], device=GPU)
    assert name is None and "choose the device cpu" in reason


@affine
def test_partitions_are_disjoint_and_say_what_they_are():
    found = shares("cpu-pinned", [A, B])
    assert [found[name].cores for name in "ab"] == [(0, 1), (2, 3)]
    assert [found[name].memory_bytes for name in "ab"] == [4 * 2**30] * 2
    assert found["a"].device == "some CPU, cores 0, 1, 4 GiB"
    assert all(found["a"].environment[name] == "2" for name in THREAD_VARIABLES)


@affine
def test_more_jobs_than_cores_have_one_together_and_it_is_said():
    found = shares("cpu-pinned", [PlannedJob(f"job-{number}", "dlrm") for number in range(6)])
    assert [share.cores for share in found.values()] == [(0,), (1,), (2,), (3,), (0,), (1,)]
    assert found["job-4"].device.startswith("some CPU, core 0 with 1 other job, ")
    assert found["job-2"].device.startswith("some CPU, core 2, ")


@pytest.mark.parametrize(
    ("wishes", "cores", "expected"),
    [
        ([None, None], 4, [2, 2]),
        ([None, None, None], 4, [2, 1, 1]),
        ([None, 1], 4, [3, 1]),
        ([2, 1], 4, [2, 1]),
        ([3, None, None], 4, [3, 1, 1]),  # the last two share one
        ([1, 1, 1, 1], 4, [1, 1, 1, 1]),
    ],
)
def test_wishes_come_first_and_the_rest_is_shared(wishes, cores, expected):
    jobs = [PlannedJob(f"job-{number}", "dlrm", cores=wish) for number, wish in enumerate(wishes)]
    dealt = deal_cores(jobs, range(cores), NO_TOPOLOGY)
    assert [len(dealt[job.name]) for job in jobs] == expected
    if sum(expected) <= cores:
        assert len({core for each in dealt.values() for core in each}) == sum(expected)
    else:
        asking = {core for job in jobs if job.cores for core in dealt[job.name]}
        assert not any(set(dealt[job.name]) & asking for job in jobs if not job.cores)


def test_hardware_threads_of_a_core_go_to_one_job(monkeypatch):
    """CPUs 0 and 2 are one core, 1 and 3 the other; the order has one of each first."""
    monkeypatch.setattr(cpu, "_physical", lambda cpu, root: cpu % 2)
    assert deal_cores([A, B], [0, 1, 2, 3], NO_TOPOLOGY) == {"a": (0, 2), "b": (1, 3)}
    # one CPU each: of different cores
    one = [replace(A, cores=1), replace(B, cores=1)]
    assert deal_cores(one, [0, 1, 2, 3], NO_TOPOLOGY) == {"a": (0,), "b": (1,)}


def test_the_core_of_a_cpu_is_read_from_the_system(tmp_path, monkeypatch):
    monkeypatch.undo()
    for number, siblings in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}.items():
        file = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(f"{siblings}\n")
    assert deal_cores([A, B], [0, 1, 2, 3], tmp_path) == {"a": (0, 2), "b": (1, 3)}


def test_memory_is_as_asked_and_the_rest_is_shared():
    assert deal_memory([replace(A, memory_bytes=600), B, C], 1000) == {"a": 600, "b": 200, "c": 200}


@affine
@pytest.mark.parametrize(
    ("jobs", "named", "words"),
    [
        ([replace(A, cores=9), B], ["a"], "a asks for 9 cores: this process may use 4"),
        ([replace(A, cores=3), replace(B, cores=2)], [None], "ask for 5 cores together (a 3, b 2)"),
        ([replace(A, cores=4), B, C], [None], "ask for 4 cores together (a 4): this process may use 4, and the others"),
        ([replace(A, memory_bytes=9 * 2**30), B], ["a"], "a asks for 9 GiB of memory: 8 GiB are free"),
        ([replace(A, memory_bytes=5 * 2**30), replace(B, memory_bytes=4 * 2**30)], [None], "ask for 9 GiB of memory"),
        ([replace(A, memory_bytes=8 * 2**30), B], [None], "ask for 8 GiB of memory together"),
    ],
)
def test_wishes_beyond_the_machine_are_refused(jobs, named, words):
    refused = refusals("cpu-pinned", jobs)
    assert [name for name, _ in refused] == named
    assert all(words in reason for _, reason in refused)


@affine
def test_all_refusals_are_told_at_once():
    refused = refusals("cpu-pinned", [replace(A, cores=9), replace(B, memory_bytes=9 * 2**30)])
    assert [name for name, _ in refused] == ["a", "b"]


@affine
def test_an_estimate_beyond_the_partition_is_refused():
    ((name, reason),) = refusals("cpu-pinned", [A, B], needs={"a": 5 * 2**30, "b": 2**30})
    assert name == "a" and "needs 5 GiB by its estimate, and its partition has 4 GiB" in reason
    assert refusals("cpu-pinned", [replace(A, memory_bytes=6 * 2**30), B], needs={"a": 5 * 2**30, "b": 2**30}) == []


def test_without_affinity_cores_cannot_be_kept(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    ((_, reason),) = refusals("cpu-pinned", [A])
    assert "no CPU affinity" in reason and "cpu-shared" in reason
