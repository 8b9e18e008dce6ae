"""Budgets that stand in for other hardware, on machines with and without a GPU."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from labkit.cli import main
from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget, memory_error
from labkit.hardware.budgets.check import BudgetCheck, _predicted, budget_shares, overdraw
from labkit.hardware.budgets.mps import start_mps
from labkit.hardware.budgets.names import parse_budget, possible_budgets
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices

CPU = Device(kind="cpu", index=0, name="some CPU", torch_name="cpu", cores=8, memory_bytes=32 * 10**9)
H100 = Device(
    kind="gpu", index=0, name="NVIDIA H100 80GB HBM3", torch_name="cuda:0", uuid="GPU-1", memory_bytes=85 * 10**9,
    sm_count=132,
)  # fmt: skip


@pytest.fixture
def mps(tmp_path, monkeypatch):
    """A daemon that stays in the foreground until it is asked to quit, as NVIDIA's does with -f."""
    tool = tmp_path / "bin" / "nvidia-cuda-mps-control"
    tool.parent.mkdir()
    tool.write_text(
        f"""#!{sys.executable}
import os, pathlib, sys, time
pipes = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
if sys.argv[1:] == ["-f"]:
    pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
    if os.environ.get("FAKE_MPS_REFUSES"):
        sys.exit("An instance of this daemon is already running")
    (pipes / "control").touch()
    while not (pipes / "quit").exists():
        time.sleep(0.02)
else:
    asked = sys.stdin.read().split()
    if not (pipes / "control").exists():
        sys.exit("Cannot find MPS control daemon process")
    if asked[0] == "quit":
        (pipes / "quit").touch()
"""
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "pid"


def test_half_of_a_cpu_is_half_of_its_cores_and_memory():
    half = parse_budget("half", [CPU])
    assert (half.cores, half.memory_bytes, half.emulated) == (4, 16 * 10**9, True)
    assert parse_budget("half", [replace(CPU, cores=1)]).cores == 1


@pytest.mark.parametrize("name", ["jetson-nano-like", "jetson-nano"])
def test_a_board_is_its_cores_and_its_memory(name):
    budget = parse_budget(name, [CPU])
    assert (budget.name, budget.cores, budget.memory_bytes) == (name, 4, 4_295_000_000)
    assert (budget.tier, budget.emulated) == ("jetson-nano", True)
    assert "its GPU" in budget.not_emulated and "memory bandwidth" in budget.not_emulated


def test_a_board_with_more_cores_than_there_are_takes_all_and_says_so():
    budget = parse_budget("jetson-nano-like", [replace(CPU, cores=2)])
    assert budget.cores == 2
    assert "2 of its 4 cores" in budget.not_emulated


def test_a_board_is_itself_under_its_own_name():
    nano = replace(CPU, name="NVIDIA Jetson Nano Developer Kit", cores=4, memory_bytes=4 * 2**30)
    assert not parse_budget("jetson-nano", [nano]).emulated


def test_a_slower_gpu_is_a_share_by_the_catalogue(mps):
    budget = parse_budget("t4-like", [CPU, H100])
    assert budget.gpu_percent == pytest.approx(100 * 8.14 / 66.9, abs=0.5)  # FP32 peaks
    assert (budget.torch_name, budget.gpu_memory_bytes, budget.tier) == ("cuda:0", 16 * 10**9, "t4")
    assert budget.environment()["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == f"{budget.gpu_percent:g}"
    assert any("320 GB/s" in missing for missing in budget.not_emulated)
    assert parse_budget("half-gpu", [CPU, H100]).gpu_percent == 50


def test_the_gpu_itself_under_its_tiers_name_is_not_emulated():
    budget = parse_budget("h100", [CPU, H100])
    assert (budget.emulated, budget.gpu_percent, budget.torch_name) == (False, None, "cuda:0")


@pytest.mark.parametrize(
    ("name", "devices", "words"),
    [
        ("t4-like", [CPU], "this machine has none that CUDA can use"),
        ("cloud-cpu-16-like", [CPU], "16 cores and this process may use 8"),
        ("jetson-agx-orin-like", [CPU], "not smaller than this machine"),
        ("h200-like", [CPU, H100], "more than NVIDIA H100"),
        ("t4-like", [CPU, replace(H100, kind="mig", uuid="MIG-1")], "has a MIG slice"),
        ("t4-like", [CPU, replace(H100, name="NVIDIA L40S")], "FP32 peak of NVIDIA L40S"),
        ("half-gpu", [CPU], "none that CUDA can use"),
        ("t5-like", [CPU], "no budget called 't5-like'"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_the_reason(name, devices, words, mps):
    with pytest.raises(UserError, match=words):
        parse_budget(name, devices)


def test_without_mps_a_part_of_a_gpu_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="CUDA MPS to bind: nvidia-cuda-mps-control is not on PATH"):
        parse_budget("t4-like", [CPU, H100])


def test_every_tier_is_possible_or_refused_with_a_reason(mps):
    possible, refused = possible_budgets([CPU, H100])
    names = {budget.name for budget in possible}
    assert {"one-core", "half", "half-gpu", "jetson-nano-like", "t4-like", "gpu"} <= names
    assert not names & set(refused)
    assert all(refused.values())


def test_more_gpu_memory_than_the_budget_is_named():
    class OutOfMemoryError(RuntimeError):
        """torch's, for a GPU"""

    budget = Budget("t4-like", None, torch_name="cuda:0", gpu_memory_bytes=16 * 10**9)
    assert "budget 't4-like' allows (14.9 GiB)" in str(memory_error(budget, H100, 512, OutOfMemoryError()))


def test_the_daemon_is_ours_alone_and_ends_when_nobody_holds_its_guard(mps, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    environment, guard = start_mps()
    pipes = Path(environment["CUDA_MPS_PIPE_DIRECTORY"])
    process = psutil.Process(int(mps.read_text()))
    assert process.is_running()
    assert "CUDA_VISIBLE_DEVICES" not in process.environ()  # or its clients would count from another GPU
    assert pipes.is_dir() and pipes != Path("/tmp/nvidia-mps")
    guard.communicate()
    assert not psutil.pid_exists(process.pid)
    assert not pipes.exists()


def test_a_daemon_that_does_not_start_says_why(mps, monkeypatch):
    monkeypatch.setenv("FAKE_MPS_REFUSES", "1")
    with pytest.raises(UserError, match="CUDA MPS does not start: An instance of this daemon is already running"):
        start_mps()


def test_a_killed_job_leaves_no_daemon(mps):
    code = """
import sys
from labkit.hardware.budgets.mps import start_mps
kept = start_mps()
print("up", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"up\n"
        daemon = psutil.Process(int(mps.read_text()))
        job.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs([daemon], timeout=20)
    assert not alive


def test_a_share_binds_a_process_once_and_another_is_refused(mps):
    code = """
import os
from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget
Budget("gpu", None, torch_name="cuda:0").share_gpu()  # a whole GPU needs no daemon
assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
small = Budget("t4-like", None, torch_name="cuda:0", gpu_percent=12.2)
small.share_gpu()
small.share_gpu()  # the same again is no change
assert os.path.exists(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
assert os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "12.2"
for other in (Budget("gpu", None, torch_name="cuda:0"), Budget("half-gpu", None, torch_name="cuda:0", gpu_percent=50)):
    try:
        other.share_gpu()
    except UserError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("this process has 12.2 % of its GPU, for as long as it lives") == 2


def test_a_process_that_uses_cuda_already_cannot_be_bound(monkeypatch):
    monkeypatch.setattr("labkit.hardware.budgets.budget._cuda_has_begun", lambda: True)
    with pytest.raises(UserError, match="uses CUDA already"):
        Budget("half-gpu", None, torch_name="cuda:0", gpu_percent=50).share_gpu()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_a_one_core_budget_uses_one_core():
    """Four threads of a product and of Python, under the budget: CPU time over wall time."""
    code = """
import os, threading, time
from labkit.hardware.budgets.budget import Budget
budget = Budget("one-core", 1)
os.environ.update(budget.environment())
budget.enforce()
import numpy as np
def work():
    a = np.ones((600, 600))
    for _ in range(40):
        a = a @ a / 600
threads = [threading.Thread(target=work) for _ in range(4)]
cpu, wall = time.process_time(), time.perf_counter()
for thread in threads: thread.start()
for thread in threads: thread.join()
print((time.process_time() - cpu) / (time.perf_counter() - wall))
"""
    share = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 0 < share <= 1.05


def test_the_command_lists_what_binds_and_what_does_not(capsys):
    assert main(["budgets", "--all"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "one-core" in out and "emulated" in out
    assert "a watch beside the run" in out and "memory bandwidth, caches" in out
    assert "t4-like" in out


def test_a_budget_is_checked_by_what_a_process_does_under_it(capsys):
    assert main(["budgets", "--check", "one-core", "cores=1,memory=1GiB", "--json"]) == 0
    check, of_memory = json.loads(capsys.readouterr().out)
    assert (check["memory_binds"], of_memory["memory_binds"]) == (None, sys.platform.startswith("linux"))
    cores = get_devices()[0].cores
    assert (check["predicted_arithmetic"], check["cores"]) == (1 / cores, 1)
    assert 0 < check["cores_used"] <= 1.05
    assert check["predicted_bandwidth"] is None  # the catalogue has none for this machine
    # how near it comes depends on who else uses the machine
    assert check["arithmetic"] > 0 and check["bandwidth"] > 0


def test_a_gpus_share_is_predicted_by_the_catalogue(mps):
    devices = [CPU, H100]
    arithmetic, bandwidth = _predicted(parse_budget("t4-like", devices), devices, 2800.0)
    assert arithmetic == pytest.approx(8.14 / 66.9, rel=0.05)
    assert bandwidth == pytest.approx(320 / 3350, rel=0.05)
    assert _predicted(parse_budget("half-gpu", devices), devices, 2800.0) == (0.5, None)


def test_a_boards_bandwidth_is_predicted_by_its_own_figure_and_what_the_whole_does():
    machine = [replace(CPU, cores=8, memory_bytes=32 * 2**30)]
    arithmetic, bandwidth = _predicted(parse_budget("jetson-nano-like", machine), machine, 51.2)
    assert (arithmetic, bandwidth) == (None, 25.6 / 51.2)  # its cores are others, its peak is the most it reaches


def test_shares_are_a_row_each_without_what_nothing_predicts():
    frame = budget_shares([BudgetCheck("half", 1, 1.0, 0.6, 0.9, 0.5, None, True, "emulated")])
    assert [tuple(row) for row in frame.itertuples(index=False)] == [
        ("half", "arithmetic", 60, "emulated"),
        ("half", "arithmetic", 50, "predicted"),
        ("half", "bandwidth", 90, "emulated"),
    ]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can enforce this")
def test_a_process_that_overdraws_says_its_budgets_name():
    stopped, said = overdraw("memory=1GiB", 2 * 2**30)
    assert stopped
    assert "budget 'memory=1GiB' allows (1 GiB)" in said and "memory=2GiB)." in said
    stopped, said = overdraw("memory=1GiB", 2**20)
    assert not stopped and said.startswith("Nothing stopped the process.")
    with pytest.raises(UserError, match="'memory=1MiB' allows 1 MiB, but Python and its libraries already use"):
        overdraw("memory=1MiB", 1)


def test_the_table_of_checks_fits_a_narrow_terminal(capsys, monkeypatch):
    checks = [BudgetCheck("jetson-xavier-nx-like", 2, 1.0, 0.6, 0.9, None, 0.64, True, "emulated")]
    monkeypatch.setattr("labkit.hardware.budgets.check.check_budgets", lambda names: checks)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["budgets", "--check", "jetson-xavier-nx-like"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"jetson-xavier-nx-like +1.00 +2 +yes +0.60 +- +0.90 +0.64", out)
    assert "…" not in out


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can enforce this")
def test_a_budget_that_is_too_small_for_python_says_so_itself(capsys):
    assert main(["budgets", "--check", "memory=10MiB"]) == 2
    said = capsys.readouterr().err
    assert "The budget 'memory=10MiB' allows 10 MiB, but Python and its libraries already use" in " ".join(said.split())
    assert "UserError" not in said


def test_a_budget_that_cannot_be_enforced_cannot_be_checked(capsys):
    assert main(["budgets", "--check", "t5-like"]) == 2
    assert "t5-like" in capsys.readouterr().err
