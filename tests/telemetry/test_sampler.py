import os
import subprocess
import sys

import psutil

from labkit.runs import read_telemetry
from labkit.telemetry import Sampler, peak_memory


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
