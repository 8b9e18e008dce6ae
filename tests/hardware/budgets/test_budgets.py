"""Budgets: what is offered, what is refused, and that they bind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from labkit.errors import UserError
from labkit.hardware.budgets import budget as budgets
from labkit.hardware.budgets.budget import THREAD_VARIABLES, Budget, is_out_of_memory, memory_error
from labkit.hardware.budgets.names import beside_a_view, offered_budgets, parse_budget
from labkit.hardware.device import Device

CPU = Device(kind="cpu", index=0, name="some CPU", torch_name="cpu", cores=4, memory_bytes=8 * 2**30)
GPU = Device(kind="gpu", index=0, name="Tesla T4", torch_name="cuda:0")
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can enforce this")


def test_a_machine_offers_what_it_has():
    offered = offered_budgets([CPU, GPU])
    assert [(budget.name, budget.cores, budget.emulated, budget.tier) for budget in offered] == [
        ("one-core", 1, True, "cloud-cpu-1"),
        ("all-cores", 4, False, "cloud-cpu-4"),
        ("gpu", None, False, "t4"),
    ]
    assert offered[2].torch_name == "cuda:0"


def test_one_core_is_the_whole_of_a_one_core_machine():
    (only,) = offered_budgets([replace(CPU, cores=1)])
    assert not only.emulated
    assert parse_budget("all-cores", [replace(CPU, cores=1)]) == only


def test_a_process_bound_to_a_part_of_the_machine_emulates():
    bound = replace(CPU, cores=2, machine_cores=4)
    assert [(budget.name, budget.emulated) for budget in offered_budgets([bound])] == [
        ("one-core", True),
        ("all-cores", True),
    ]
    assert parse_budget("cores=2", [bound]).emulated
    assert not parse_budget("all-cores", [replace(CPU, machine_cores=4)]).emulated


def test_a_watched_run_leaves_a_core_to_the_browser():
    names = {cores: beside_a_view([replace(CPU, cores=cores)]) for cores in (1, 2, 4)}
    assert names == {1: "one-core", 2: "one-core", 4: "cores=3"}
    assert all(parse_budget(name, [replace(CPU, cores=cores)]) for cores, name in names.items())
    assert beside_a_view([CPU, GPU]) == "gpu"


def test_several_gpus_are_numbered_and_unreachable_ones_left_out():
    far = replace(GPU, torch_name=None)
    devices = [CPU, GPU, replace(GPU, torch_name="cuda:1"), far]
    assert [budget.name for budget in offered_budgets(devices)][2:] == ["gpu:0", "gpu:1"]
    assert parse_budget("gpu:1", devices).torch_name == "cuda:1"
    assert parse_budget("gpu", devices).torch_name == "cuda:0"


def test_own_budgets_are_parsed():
    budget = parse_budget("cores=2,memory=2GiB", [CPU])
    assert (budget.cores, budget.memory_bytes, budget.emulated) == (2, 2 * 2**30, True)
    assert parse_budget("memory=500MB", [CPU]).memory_bytes == 500_000_000
    assert not parse_budget("cores=4", [CPU]).emulated


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("two-cores", "one-core, all-cores"),
        ("cores=5", "at most cores=4"),
        ("cores=1,memory=9GiB", "at most memory=8192MiB"),
        ("cores=0", "cores=N"),
        ("cores=2,memory=lots", "memory=lots"),
        ("memory=1", "with a unit"),
        ("cores=1,cores=2", "cores= twice"),
        ("gpu", "none"),
        ("gpu:3", "none"),
    ],
)
def test_a_budget_beyond_the_machine_is_refused_with_the_fix(text, words):
    with pytest.raises(UserError, match="budget") as error:
        parse_budget(text, [CPU])
    assert words in str(error.value)


def test_every_library_gets_the_thread_count():
    environment = Budget("cores=2", 2).environment()
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"} <= set(environment)
    assert set(environment.values()) == {"2"}
    assert Budget("gpu", None, torch_name="cuda:0").environment() == {}


DEVICE = Device(kind="cpu", index=0, name="a CPU")


def run(code: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


@linux_only
def test_one_core_binds_threads_that_run_already():
    answer = run(
        "import os, threading\n"
        "stop = threading.Event(); early = threading.Thread(target=stop.wait); early.start()\n"
        "from labkit.hardware.budgets.budget import Budget\n"
        "notes = Budget('one-core', 1).enforce()\n"
        "seen = [len(os.sched_getaffinity(int(task))) for task in os.listdir('/proc/self/task')]\n"
        "stop.set(); print(seen, notes, os.environ['OMP_NUM_THREADS'])"
    )
    assert answer.stdout.strip() == "[1, 1] [] 1", answer.stderr


@linux_only
@pytest.mark.parametrize("started_with_it", [True, False])
def test_threads_of_a_library_loaded_too_early_are_reported(started_with_it):
    code = "import numpy; from labkit.hardware.budgets.budget import Budget; print(Budget('one-core', 1).enforce())"
    environment = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    answer = run(code, environment | (Budget("one-core", 1).environment() if started_with_it else {}))
    assert answer.returncode == 0, answer.stderr
    assert ("loaded before" in answer.stdout) != started_with_it


@linux_only
def test_a_cap_below_what_python_uses_is_refused():
    answer = run("from labkit.hardware.budgets.budget import Budget\nBudget('tiny', 1, 2**20).enforce()")
    assert "UserError" in answer.stderr and "already use" in answer.stderr


def test_without_affinity_and_limits_the_notes_say_so(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.setattr(budgets.memory_watch, "held", lambda pid: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    notes = Budget("cores=1,memory=1GiB", 1, 2**30).enforce()
    assert "no CPU affinity" in notes[-2] and "do not bind" in notes[-1]
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_a_device_that_is_full_is_named_with_the_batch_size():
    import torch

    gpu = replace(DEVICE, kind="gpu", name="NVIDIA T4", memory_bytes=15 * 2**30)
    budget = Budget("gpu", None, torch_name="cuda:0")
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    assert "NVIDIA T4 has (15 GiB)" in str(memory_error(budget, gpu, 4096, full))
    assert "--batch-size below 4096" in str(memory_error(budget, gpu, 4096, full))


def test_a_host_that_is_full_is_not_taken_for_its_gpu():
    gpu = replace(DEVICE, kind="gpu", name="NVIDIA T4", memory_bytes=15 * 2**30)
    budget = Budget("gpu", None, torch_name="cuda:0")
    full = str(memory_error(budget, gpu, 4096, MemoryError("Unable to allocate 9 GiB")))
    assert "This machine had no more" in full and "T4" not in full and "9 GiB" in full


def test_memory_errors_of_each_library_are_recognised():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(OSError(12, "Cannot allocate memory"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"))
    assert is_out_of_memory(RuntimeError("could not create a primitive"))  # oneDNN's
    assert not is_out_of_memory(RuntimeError("could not create a primitive descriptor for a convolution"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert isinstance(memory_error(Budget("b", 1, 2**30), DEVICE, 512, MemoryError()), UserError)
