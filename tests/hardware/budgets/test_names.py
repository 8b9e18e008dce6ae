"""Which budgets a machine offers, what stands in for other hardware, and what is refused."""

from dataclasses import replace

import pytest

from labkit.errors import UserError
from labkit.hardware.budgets.names import offered_budgets, parse_budget, possible_budgets
from labkit.hardware.devices import Device

CPU = Device(kind="cpu", index=0, name="some CPU", torch_name="cpu", cores=4, memory_bytes=8 * 2**30)
BIG = replace(CPU, cores=8, memory_bytes=32 * 10**9)
GPU = Device(kind="gpu", index=0, name="Tesla T4", torch_name="cuda:0")
H100 = replace(GPU, name="NVIDIA H100 80GB HBM3", uuid="GPU-1", memory_bytes=85 * 10**9, sm_count=132)


def test_a_machine_offers_what_it_has():
    offered = offered_budgets([CPU, GPU])
    assert [(budget.name, budget.cores, budget.emulated, budget.tier) for budget in offered] == [
        ("one-core", 1, True, "cloud-cpu-1"),
        ("all-cores", 4, False, "cloud-cpu-4"),
        ("gpu", None, False, "t4"),
    ]
    assert offered[2].torch_name == "cuda:0"
    devices = [CPU, GPU, replace(GPU, torch_name="cuda:1"), replace(GPU, torch_name=None)]
    assert [budget.name for budget in offered_budgets(devices)][2:] == ["gpu:0", "gpu:1"]
    assert parse_budget("gpu:1", devices).torch_name == "cuda:1"
    assert parse_budget("gpu", devices).torch_name == "cuda:0"

    (only,) = offered_budgets([replace(CPU, cores=1)])
    assert not only.emulated  # one core is the whole of such a machine
    assert parse_budget("all-cores", [replace(CPU, cores=1)]) == only


def test_what_is_less_than_the_machine_is_emulated():
    bound = replace(CPU, cores=2, machine_cores=4)
    assert [budget.emulated for budget in (*offered_budgets([bound]), parse_budget("cores=2", [bound]))] == [True] * 3
    assert not parse_budget("all-cores", [replace(CPU, machine_cores=4)]).emulated
    assert not parse_budget("cores=4", [CPU]).emulated


@pytest.mark.parametrize(
    ("text", "cores", "memory_bytes"),
    [
        ("cores=2,memory=2GiB", 2, 2 * 2**30),
        ("memory=500MB", 8, 500_000_000),
        ("half", 4, 16 * 10**9),
        ("jetson-nano-like", 4, 4_295_000_000),
    ],
)
def test_a_part_of_a_cpu_is_its_cores_and_memory(text, cores, memory_bytes):
    budget = parse_budget(text, [BIG])
    assert (budget.name, budget.cores, budget.memory_bytes, budget.emulated) == (text, cores, memory_bytes, True)
    assert "memory bandwidth" in budget.not_emulated
    assert ("its GPU" in budget.not_emulated) == (budget.tier == "jetson-nano")


def test_a_machine_that_is_smaller_or_the_board_itself_says_so():
    assert parse_budget("half", [replace(CPU, cores=1)]).cores == 1
    budget = parse_budget("jetson-nano-like", [replace(BIG, cores=2)])
    assert budget.cores == 2 and "2 of its 4 cores" in budget.not_emulated
    nano = replace(CPU, name="NVIDIA Jetson Nano Developer Kit", cores=4, memory_bytes=4 * 2**30)
    assert not parse_budget("jetson-nano", [nano]).emulated


def test_a_slower_gpu_is_a_share_by_the_catalogue(mps):
    budget = parse_budget("t4-like", [BIG, H100])
    assert budget.gpu_percent == pytest.approx(100 * 8.14 / 66.9, abs=0.5)  # FP32 peaks
    assert (budget.torch_name, budget.gpu_memory_bytes, budget.tier) == ("cuda:0", 16 * 10**9, "t4")
    assert budget.environment()["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == f"{budget.gpu_percent:g}"
    assert any("320 GB/s" in missing for missing in budget.not_emulated)
    assert parse_budget("half-gpu", [BIG, H100]).gpu_percent == 50
    itself = parse_budget("h100", [BIG, H100])
    assert (itself.emulated, itself.gpu_percent, itself.torch_name) == (False, None, "cuda:0")


@pytest.mark.parametrize(
    ("text", "devices", "words"),
    [
        ("cores=5", [CPU], "at most cores=4"),
        ("cores=1,memory=9GiB", [CPU], "at most memory=8192MiB"),
        ("memory=1", [CPU], "with a unit"),
        ("cores=1,cores=2", [CPU], "cores= twice"),
        ("gpu", [CPU], "this machine has none"),
        ("t4-like", [BIG], "this machine has none that CUDA can use"),
        ("cloud-cpu-16-like", [BIG], "16 cores, but this process may use only 8"),
        ("jetson-agx-orin-like", [BIG], "no smaller than this machine"),
        ("h200-like", [BIG, H100], "more than NVIDIA H100"),
        ("t4-like", [BIG, replace(H100, kind="mig", uuid="MIG-1")], "has a MIG slice"),
        ("t4-like", [BIG, replace(H100, name="NVIDIA L40S")], "FP32 peak of NVIDIA L40S"),
        ("t5-like", [BIG], "no budget called 't5-like'"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(text, devices, words, mps):
    with pytest.raises(UserError, match=words) as error:
        parse_budget(text, devices)
    assert "budget" in str(error.value)


def test_without_mps_a_part_of_a_gpu_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="CUDA MPS to bind: nvidia-cuda-mps-control is not on PATH"):
        parse_budget("t4-like", [BIG, H100])
    possible, refused = possible_budgets([BIG, H100])
    names = {budget.name for budget in possible}
    assert {"one-core", "half", "jetson-nano-like", "gpu"} <= names and all(refused.values())
    assert {"half-gpu", "t4-like"} <= set(refused) and not names & set(refused)
