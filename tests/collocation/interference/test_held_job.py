import subprocess
import sys

import psutil
import pytest

from labkit.collocation.interference.held_job import HeldJob
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError

SCRIPT = """
import torch
weight = torch.nn.Parameter(torch.zeros(1))
optimiser = torch.optim.SGD([weight], lr=0.0)
while True:
    weight.grad = torch.zeros(1)
    optimiser.step()
"""
LAUNCHER = """
import os, signal, sys
from pathlib import Path
from labkit.collocation.interference.held_job import HeldJob
from labkit.collocation.plan.planned_job import PlannedJob
held = HeldJob(PlannedJob("burner", sys.argv[1]), Path(sys.argv[2]))
held.__enter__()
held.begin(0.1, linger=True)
held.end()
print(held.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_job_trains_on_command_and_no_process_is_left(script, tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        HeldJob(PlannedJob("burner", str(script)), tmp_path) as held,
    ):
        pid = held.pid
        alone = held.run(0.1, cores=[min(psutil.Process().cpu_affinity())])
        assert alone.steps > 0
        assert alone.step_time_ms == pytest.approx(1000 * alone.wall_s / alone.steps)
        assert len(psutil.Process(pid).cpu_affinity()) == 1
        held.begin(0.1, linger=True)
        assert held.end().wall_s >= 0.1
        assert psutil.Process(pid).cpu_affinity() == psutil.Process().cpu_affinity()
        held.hold()
        raise ZeroDivisionError
    assert not psutil.pid_exists(pid)


def test_a_job_ends_when_its_launcher_is_killed(script, tmp_path):
    command = [sys.executable, "-c", LAUNCHER, str(script), str(tmp_path)]
    launched = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert launched.returncode == -9
    try:
        job = psutil.Process(int(launched.stdout))
    except psutil.NoSuchProcess:
        return
    psutil.wait_procs([job], timeout=60)
    assert not job.is_running() or job.status() == psutil.STATUS_ZOMBIE


def test_a_refused_job_says_why(tmp_path):
    job = PlannedJob("wrong", "dlrm", ("--data", "no-such-data"), device="cpu")
    with pytest.raises(UserError, match="dlrm:tour was to train alone"), HeldJob(job, tmp_path):
        pass
