"""Modes cpu-shared and cpu-pinned: cores and memory that are dealt out."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_nvml import fake_nvml

from labkit.hardware import THREAD_VARIABLES, Device, Nvml
from labkit.jobs import DlrmJob
from labkit.launch import PlannedJob
from labkit.sharing.modes import mode_refusals, mode_shares
from labkit.sharing.shares import Place, deal_cores

A, B, C = (PlannedJob(name, DlrmJob()) for name in "abc")
GIB = 2**30
CPU = Device(kind="cpu", index=0, name="some CPU", torch_name="cpu", cores=4, memory_bytes=16 * GIB)
GPU = Device(kind="gpu", index=0, name="some GPU", torch_name="cuda:0", uuid="GPU-1")

affine = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Four cores and 8 GiB that are free."""
    monkeypatch.setattr("labkit.hardware.own_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr("labkit.hardware.physical_core", lambda core: core)
    monkeypatch.setattr("labkit.hardware.read_cpu", lambda: SimpleNamespace(memory_available_bytes=8 * GIB))


def place(device=CPU, **more):
    return Place(device, [CPU, GPU], Nvml(fake_nvml()), **more)


def shares(mode, jobs, **more):
    return mode_shares(mode, jobs, place(**more))


def test_idle_threads_give_their_core_away_unless_they_are_to_spin(monkeypatch):
    for mode in ("cpu-shared", "cpu-pinned"):
        given = shares(mode, [A])["a"].environment
        assert (given["OMP_WAIT_POLICY"], given["CUDA_VISIBLE_DEVICES"]) == ("PASSIVE", "-1")
        assert "OMP_WAIT_POLICY" not in shares(mode, [A], spin=True)["a"].environment
        ((name, reason),) = mode_refusals(mode, [A, B], place(GPU))
        assert name is None and "choose the device cpu" in reason
    assert shares("cpu-shared", [A, B])["b"].device == "some CPU, all 4 cores"
    for quiet, waits in ((True, None), (False, "PASSIVE")):  # alone they may, where no other program pays for it
        monkeypatch.setattr("labkit.telemetry.is_quiet", lambda quiet=quiet: quiet)
        share = shares("alone", [A])["a"]
        assert share.environment.get("OMP_WAIT_POLICY") == waits
        assert ("wait busily" in share.device) == quiet


@affine
def test_partitions_are_disjoint_and_say_what_they_are():
    found = shares("cpu-pinned", [A, B])
    assert [found[name].cores for name in "ab"] == [(0, 1), (2, 3)]
    assert [found[name].memory_bytes for name in "ab"] == [4 * GIB] * 2
    assert found["a"].device == "some CPU, cores 0, 1, 4 GiB"
    assert all(found["a"].environment[name] == "2" for name in THREAD_VARIABLES)
    found = shares("cpu-pinned", [PlannedJob(f"job-{number}", DlrmJob()) for number in range(6)])
    assert [share.cores for share in found.values()] == [(0,), (1,), (2,), (3,), (0,), (1,)], "two have one together"
    assert found["job-4"].device.startswith("some CPU, core 0 with 1 other job, ")
    assert found["job-2"].device.startswith("some CPU, core 2, ")


@pytest.mark.parametrize(
    ("wishes", "cores", "expected"),
    [
        ([None, None, None], 4, [1, 1, 2]),
        ([None, 1], 4, [3, 1]),
        ([2, 1], 4, [2, 1]),
        ([3, None, None], 4, [3, 1, 1]),  # the last two share one
        ([1, 1, 1, 1], 4, [1, 1, 1, 1]),
    ],
)
def test_wishes_come_first_and_the_rest_is_shared(wishes, cores, expected):
    jobs = [PlannedJob(f"job-{number}", DlrmJob(), cores=wish) for number, wish in enumerate(wishes)]
    dealt = deal_cores(jobs, range(cores))
    assert [len(dealt[job.name]) for job in jobs] == expected
    asked = [core for job in jobs if job.cores for core in dealt[job.name]]
    others = {core for job in jobs if not job.cores for core in dealt[job.name]}
    assert len(set(asked)) == len(asked) and not others & set(asked)


@affine
def test_hardware_threads_of_a_core_go_to_one_job_and_memory_is_dealt_as_asked(monkeypatch):
    monkeypatch.setattr("labkit.hardware.physical_core", lambda core: core % 2)
    assert deal_cores([A, B], [0, 1, 2, 3]) == {"a": (0, 2), "b": (1, 3)}
    given = shares("cpu-pinned", [replace(A, memory_bytes=6 * GIB), B, C])
    assert [share.memory_bytes for share in given.values()] == [6 * GIB, GIB, GIB]


@affine
@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([replace(A, cores=9), B], ["ask for 9 cores together (a 9): this process may use 4"]),
        ([replace(A, cores=4), B, C], ["ask for 4 cores together (a 4): this process may use 4, and the others"]),
        ([replace(A, memory_bytes=8 * GIB), B], ["ask for 8 GiB of memory together (a 8 GiB): 8 GiB are free, and"]),
        ([replace(A, cores=9), replace(B, memory_bytes=9 * GIB)], ["ask for 9 cores", "ask for 9 GiB of memory"]),
    ],
)
def test_wishes_beyond_the_machine_are_refused_together(jobs, words):
    refused = mode_refusals("cpu-pinned", jobs, place())
    assert all(name is None and part in reason for (name, reason), part in zip(refused, words, strict=True))
