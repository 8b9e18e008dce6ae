import os
import signal
import subprocess
import sys

import psutil
import pytest

from labkit.runs import read_telemetry
from labkit.telemetry import Sampler, forget_peak_memory, peak_memory


def test_the_sampler_writes_while_the_block_runs_and_ends_with_it(tmp_path):
    before = {child.pid for child in psutil.Process().children()}
    with Sampler(tmp_path, hz=50):
        ballast = bytearray(50 * 2**20)
    assert {child.pid for child in psutil.Process().children()} <= before
    frame = read_telemetry([tmp_path])
    assert {"cpu_percent", "memory_resident", "memory_used"} <= set(frame["counter"])
    assert set(frame["pid"]) == {os.getpid()}
    assert frame["time_ns"].is_monotonic_increasing
    assert len(set(frame["time_ns"])) >= 2  # one at the start, one at the end at least
    missing = frame[frame["value"].isna()]
    assert missing["note"].notna().all()
    assert not missing.duplicated(["device", "counter"]).any()
    assert peak_memory(tmp_path) >= len(ballast)


def test_a_killed_job_leaves_no_sampler(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from labkit.telemetry import Sampler\n"
        "sampler = Sampler(Path(sys.argv[1])).__enter__()\n"
        "print(sampler._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    job = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    pid = int(job.stdout)
    _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=20)
    assert not alive
    assert len(read_telemetry([tmp_path])) > 0


def test_ctrl_c_in_the_terminal_does_not_reach_the_sampler(tmp_path):
    """Not even while it still imports: the terminal signals its whole process group."""
    code = (
        "import os, signal, sys; from pathlib import Path; from labkit.telemetry import Sampler\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\n"
        "import subprocess; real = subprocess.Popen\n"
        "def popen(*a, **k):\n"
        "    child = real(*a, **k); os.killpg(0, signal.SIGINT); return child\n"
        "subprocess.Popen = popen\n"
        "with Sampler(Path(sys.argv[1])) as sampler: pass\n"
        "print(sampler.failure)"
    )
    job = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, start_new_session=True
    )
    assert job.stdout == "None\n", job.stderr
    assert len(read_telemetry([tmp_path])) > 0


def test_a_sampler_that_cannot_start_says_why(tmp_path):
    (tmp_path / "telemetry").write_text("in the way")
    with Sampler(tmp_path) as sampler:
        assert "telemetry" in sampler.failure


def test_a_sampler_that_dies_later_says_so(tmp_path):
    with Sampler(tmp_path) as sampler:
        assert sampler.failure is None
        os.kill(sampler._process.pid, signal.SIGKILL)
    assert sampler.failure


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux' /proc/self/clear_refs")
def test_memory_used_before_the_run_is_not_its_peak(tmp_path):
    ballast = bytearray(400 * 2**20)
    ballast[:: 2**12] = b"x" * len(ballast[:: 2**12])  # touched, so resident
    with Sampler(tmp_path / "with"):
        pass
    del ballast
    forget_peak_memory()
    with Sampler(tmp_path / "without"):
        pass
    assert peak_memory(tmp_path / "with") - peak_memory(tmp_path / "without") > 300 * 2**20
