"""Budgets: which a machine offers, what they do, and how a process is held to one; the watch over its memory."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fake_nvml import put_on_path

from labkit.errors import UserError
from labkit.hardware import budgets, memory_watch
from labkit.hardware.budgets import Budget, offered_budgets, parse_budget, possible_budgets
from labkit.hardware.calibration import BudgetCheck, _predicted, run_under
from labkit.hardware.devices import Device, get_devices
from labkit.hardware.memory_watch import Watch, is_out_of_memory, memory_error
from labkit.hardware.mps import start_mps
from labkit_course.apparatus import budget_shares

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can enforce this")
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
        ("memory=500MB", None, 500_000_000),
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
        ("half-gpu", [BIG, replace(H100, memory_bytes=None)], "whose memory is unknown"),
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


def test_a_budget_is_checked_by_what_a_process_does_under_it(cli):
    check, of_memory = cli("budgets --check one-core cores=1,memory=1GiB --json").json
    assert (check["memory_binds"], of_memory["memory_binds"]) == (None, sys.platform.startswith("linux"))
    cores = get_devices()[0].cores
    assert (check["predicted_arithmetic"], check["cores"]) == (1 / cores, 1)
    assert 0 < check["cores_used"] <= 1.05
    assert check["predicted_bandwidth"] is None  # the catalogue has none for this machine
    # how near it comes depends on who else uses the machine
    assert check["arithmetic"] > 0 and check["bandwidth"] > 0


def test_what_the_catalogue_predicts(mps):
    devices = [BIG, H100]
    arithmetic, bandwidth = _predicted(parse_budget("t4-like", devices), devices, 2800.0)
    assert arithmetic == pytest.approx(8.14 / 66.9, rel=0.05)
    assert bandwidth == pytest.approx(320 / 3350, rel=0.05)
    assert _predicted(parse_budget("half-gpu", devices), devices, 2800.0) == (0.5, None)
    machine = [replace(BIG, cores=8, memory_bytes=32 * 2**30)]
    # a board's cores are others, its peak is the most that it reaches
    assert _predicted(parse_budget("jetson-nano-like", machine), machine, 51.2) == (None, 25.6 / 51.2)


def test_shares_are_a_row_each_and_the_command_lists_budgets_and_checks(cli, monkeypatch):
    checks = [BudgetCheck("jetson-xavier-nx-like", 2, 1.0, 0.6, 0.9, None, 0.64, True, "emulated")]
    assert [tuple(row) for row in budget_shares(checks).itertuples(index=False)] == [
        ("jetson-xavier-nx-like", "arithmetic", 60, "emulated"),  # which nothing predicts
        ("jetson-xavier-nx-like", "bandwidth", 90, "emulated"),
        ("jetson-xavier-nx-like", "bandwidth", 64, "predicted"),
    ]
    out = cli("budgets --all").text
    assert "one-core" in out and "emulated" in out and "t4-like" in out
    assert "docs/budgets.md" in out and "memory bandwidth, caches" in out
    monkeypatch.setattr("labkit.hardware.check_budgets", lambda names: checks)
    out = cli("budgets --check jetson-xavier-nx-like").out
    assert "measuring the whole device and jetson-xavier-nx-like" in out
    assert re.search(r"jetson-xavier-nx-like +1.00 +2 +yes +0.60 +- +0.90 +0.64", out)


@on_linux
def test_a_process_that_overdraws_says_its_budgets_name(cli):
    stopped, said = run_under("memory=1GiB", "memory", 2 * 2**30)
    assert stopped
    assert "budget 'memory=1GiB' allows (1 GiB)" in said and "memory=2GiB)." in said
    stopped, said = run_under("memory=1GiB", "memory", 2**20)
    assert not stopped and said.startswith("Nothing stopped the process.")
    too_small = "'memory=1MiB' allows 1 MiB, but Python and its libraries already use"
    for name, why in (("memory=1MiB", too_small), ("t5-like", "t5-like")):
        said = cli("budgets --check", name, status=2).text
        assert why in said and "UserError" not in said


BUDGET = "from labkit.hardware.budgets import THREAD_VARIABLES, Budget\n"


@on_linux
def test_one_core_binds_threads_that_run_already_and_products_of_several():
    code = (
        "import os, threading, time\n"
        "stop = threading.Event(); early = threading.Thread(target=stop.wait); early.start()\n"
        "notes = Budget('one-core', 1).enforce()\n"
        "seen = [len(os.sched_getaffinity(int(task))) for task in os.listdir('/proc/self/task')]\n"
        "stop.set(); print(seen, notes, {os.environ[name] for name in THREAD_VARIABLES})\n"
        "import numpy as np\n"
        "def work():\n"
        "    a = np.ones((600, 600))\n"
        "    for _ in range(40): a = a @ a / 600\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "cpu, wall = time.process_time(), time.perf_counter()\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "print((time.process_time() - cpu) / (time.perf_counter() - wall))\n"
    )
    command = [sys.executable, "-c", BUDGET + code]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    bound, share = answer.stdout.splitlines()
    assert bound == "[1, 1] [] {'1'}", answer.stderr
    assert 0 < float(share) <= 1.05  # of a core


def test_without_affinity_and_limits_the_notes_say_so(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.setattr(budgets.memory_watch, "held", lambda pid: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    notes = Budget("cores=1,memory=1GiB", 1, 2**30).enforce()
    assert "no CPU affinity" in notes[-2] and "cannot limit" in notes[-1]
    assert os.environ["OMP_NUM_THREADS"] == "1"


class OutOfMemoryError(RuntimeError):
    """torch's, for a GPU."""


WHOLE = Budget("gpu", None, torch_name="cuda:0")
PART = Budget("t4-like", None, torch_name="cuda:0", gpu_memory_bytes=16 * 10**9)
FULL = OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("budget", "error", "words", "never"),
    [
        (WHOLE, FULL, "NVIDIA T4 has (15 GiB), so it was stopped: make it smaller: reduce its batch (--b", "budget"),
        # a host that is full is not taken for its GPU
        (WHOLE, MemoryError("Unable to allocate 9 GiB"), "This machine ran out of memory (Unable", "T4"),
        (Budget("b", 1, 2**30), MemoryError(), "budget 'b' allows (1 GiB)", "T4"),
        (PART, FULL, "budget 't4-like' allows (14.9 GiB)", "NVIDIA"),
    ],
)
def test_what_was_full_is_named(budget, error, words, never):
    gpu = Device(kind="gpu", index=0, name="NVIDIA T4", memory_bytes=15 * 2**30)
    told = memory_error(budget, gpu, error)
    assert isinstance(told, UserError) and words in str(told) and never not in str(told)


def test_memory_errors_of_each_library_are_recognised():
    for words in ("DefaultCPUAllocator: can't allocate memory: you tried", "could not create a primitive"):  # oneDNN's
        assert is_out_of_memory(RuntimeError(words))
    assert is_out_of_memory(MemoryError()) and is_out_of_memory(OSError(12, "Cannot allocate memory"))
    assert not is_out_of_memory(RuntimeError("could not create a primitive descriptor for a convolution"))


def test_the_daemon_is_ours_alone_and_ends_when_nobody_holds_its_guard(mps, monkeypatch, tmp_path):
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
    put_on_path(tmp_path, monkeypatch, "nvidia-cuda-mps-control", "import sys; sys.exit('it runs already')")
    with pytest.raises(UserError, match="CUDA MPS does not start: it runs already"):
        start_mps()


def test_a_share_binds_before_cuda_begins_and_a_killed_process_leaves_no_daemon(mps):
    code = """
import os, sys, types
from labkit.errors import UserError
Budget("gpu", None, torch_name="cuda:0").share_gpu()  # a whole GPU needs no daemon
assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
small = Budget("t4-like", None, torch_name="cuda:0", gpu_percent=12.2)
small.share_gpu()
assert os.path.exists(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
assert os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "12.2"
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True))
try:
    small.share_gpu()
except UserError as error:
    print(error, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", BUDGET + code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert "this process already uses CUDA" in job.stdout.readline()
        daemon = psutil.Process(int(mps.read_text()))
        job.send_signal(signal.SIGKILL)
    assert not psutil.wait_procs([daemon], timeout=20)[1]


MIB = 2**20
BEGIN = """
import mmap, os, subprocess, sys, time
from labkit.hardware import memory_watch
from labkit.hardware.budgets import Budget
MIB = 2**20
print(Budget("small", 1, memory_bytes=200 * MIB).enforce(), flush=True)
"""


def run(code: str) -> subprocess.CompletedProcess:
    """What becomes of a process under a budget of 200 MiB."""
    return subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=120)


@on_linux
def test_what_is_reserved_or_mapped_or_an_observers_does_not_count(tmp_path):
    (tmp_path / "data").touch()
    os.truncate(tmp_path / "data", 300 * MIB)
    job = run(
        f"reserved = mmap.mmap(-1, 4096 * MIB)\n"
        f"with open({str(tmp_path / 'data')!r}, 'rb') as file:\n"
        "    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "assert sum(data[place] for place in range(0, len(data), 4096)) == 0\n"
        "code = 'import sys; held = bytearray(300 * 2**20); print(1, flush=True); sys.stdin.read()'\n"
        "pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}\n"
        "observer = subprocess.Popen([sys.executable, '-c', code], **pipes)\n"
        "memory_watch.leave_out(observer.pid)\n"
        "observer.stdout.readline(); time.sleep(3 * memory_watch.FAMILY_S); observer.communicate()\n"
        "print('survived')"
    )
    assert (job.returncode, job.stdout, job.stderr) == (0, "[]\nsurvived\n", "")


@on_linux
def test_a_process_that_grows_past_its_budget_gets_a_memory_error_and_can_have_its_word():
    job = run(
        "kept = []\n"
        "try:\n"
        "    while len(kept) < 100:\n"
        "        kept.append(bytearray(4 * MIB)); time.sleep(0.02)\n"  # so that the watch looks before it is killed
        "except MemoryError as error:\n"
        "    print(len(kept), error)"
    )
    assert (job.returncode, job.stderr) == (0, "")
    held, words = job.stdout.splitlines()[1].split(maxsplit=1)
    assert words == "the budget of memory is used up"
    assert 40 <= int(held) <= 80  # beside Python's own dozen MiB: from a little early to the hard limit


@on_linux
def test_a_process_that_does_not_hear_is_killed_with_its_children_and_the_watch_says_why():
    job = run(
        "child = subprocess.Popen(['sleep', '1000'])\n"  # has the output open as long as it lives
        "time.sleep(2 * memory_watch.FAMILY_S)\n"
        "held = bytearray(4096 * MIB)\n"  # one call into C, which holds the interpreter
        "print('survived')"
    )
    assert job.returncode == -9
    assert "survived" not in job.stdout
    assert "The run needs more memory than its budget 'small' allows (200 MiB)" in job.stderr


@on_linux
def test_children_count_and_what_they_share_counts_once():
    job = run(
        "held = bytearray(120 * MIB)\n"
        "def child(more):\n"
        "    if not os.fork():\n"
        "        own = bytearray(more * MIB); time.sleep(3 * memory_watch.FAMILY_S); os._exit(0)\n"
        "    os.wait()\n"
        "child(0); print('shared', flush=True)\n"
        "child(120); print('survived')"
    )
    assert job.stdout.splitlines()[1:] == ["shared"]
    assert job.returncode in (1, -9) and "budget" in job.stderr


@on_linux
def test_a_process_that_goes_on_after_its_signal_is_killed_unless_it_made_itself_smaller(monkeypatch):
    signals, killed = [], []
    watch = Watch(0, pid=os.getpid(), limit=1000 * MIB, message="", at_end=None, facts={})
    monkeypatch.setattr(watch, "_kill", lambda: killed.append(1))
    monkeypatch.setattr(memory_watch.os, "kill", lambda pid, signal: signals.append(signal))
    for mib in (999, 1050, 1060):
        watch._judge(mib * MIB)
    assert (signals, killed) == ([memory_watch.SIGNAL], [])
    watch._asked_at -= 2 * memory_watch.ENDING_S
    watch._judge(900 * MIB)
    assert not killed
    watch._judge(1050 * MIB)
    assert (len(signals), len(killed)) == (2, 0)  # told again, as it was the first time
    watch._judge(900 * MIB)  # too early to say that it goes on
    watch._asked_at -= 2 * memory_watch.ENDING_S
    watch._judge(1050 * MIB)
    assert (len(signals), len(killed)) == (2, 1)
