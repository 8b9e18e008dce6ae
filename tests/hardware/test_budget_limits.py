"""Budgets bind: cores and threads, a GPU's share, and what a run says whose memory ran out."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from fake_nvml import put_on_path

from labkit.errors import UserError
from labkit.hardware import budgets
from labkit.hardware.budgets import Budget, is_out_of_memory, memory_error
from labkit.hardware.devices import Device
from labkit.hardware.mps import start_mps

BUDGET = "from labkit.hardware.budgets import THREAD_VARIABLES, Budget\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can enforce this")
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
