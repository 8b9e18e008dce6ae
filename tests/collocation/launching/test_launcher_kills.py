"""Whoever is killed, and whenever: nothing that a launcher started is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from fake_gpu_tools import MPS_CONTROL, put_on_path

from labkit.process.containment import MARK

LAUNCHER = Path(__file__).with_name("launcher.py")
KILLS = 300 if "LABKIT_SOAK" in os.environ else 24
"""`make soak` has the hundreds."""
GONE_S = 60.0
"""Far more than all deadlines of a supervisor together: who is here by then stays."""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes as Linux shows them")


def ours(tmp_path: Path) -> list[str]:
    """The processes with a round's mark that were started with this test's folder for temporary files."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if MARK in environment and environment.get("TMPDIR") == str(tmp_path):
                found.append(f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}")
        except psutil.Error:
            continue
    return found


def wait_until_none(tmp_path: Path) -> list[str]:
    until = time.monotonic() + GONE_S
    while (left := ours(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def shared_memory_of(folder: Path) -> list[Path]:
    """What light jobs that were started with this folder for temporary files have left."""
    return list(Path("/dev/shm").glob(f"labkit-{zlib.crc32(str(folder).encode()):08x}-*"))


def mps_folders() -> set[Path]:
    return set(Path("/tmp").glob("labkit-mps-*"))


def left_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.name.startswith(".")}


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A folder for temporary files of our own, and an MPS daemon on PATH that is none."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    put_on_path(tmp_path, monkeypatch, "nvidia-cuda-mps-control", MPS_CONTROL)
    return os.environ | {"TMPDIR": str(temporary)}


def launch(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen:
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, str(LAUNCHER), str(folder), *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def supervisor_of(launcher: subprocess.Popen) -> psutil.Process | None:
    try:
        return next(iter(psutil.Process(launcher.pid).children()), None)
    except psutil.Error:
        return None


def test_random_kills_leave_no_process_daemon_shared_memory_or_temporary_file(tmp_path, environment):
    chance = random.Random(7)
    before = mps_folders()
    most_s = 4 * seconds_until_jobs_run(tmp_path / "first", environment)  # ten at once are slower than one
    plans = [
        (
            number,
            chance.uniform(0, most_s),
            chance.choice([signal.SIGKILL] * 6 + [signal.SIGINT, signal.SIGTERM]),
            ["mps"] if chance.random() < 0.1 else [],
        )
        for number in range(KILLS)
    ]

    def kill(number: int, after_s: float, what: signal.Signals, arguments: list[str]) -> int:
        launcher = launch(tmp_path / f"kill-{number}", environment, *arguments)
        time.sleep(after_s)  # the moment is what is drawn
        launcher.send_signal(what)
        return launcher.wait(GONE_S)

    with ThreadPoolExecutor(10) as pool:
        ended = list(pool.map(lambda plan: kill(*plan), plans))

    assert len(ended) == KILLS
    assert wait_until_none(tmp_path / "tmp") == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert left_in(tmp_path) == set()
    assert shared_memory_of(tmp_path / "tmp") == []
    new = mps_folders() - before
    wait_for(lambda: not any(map(Path.exists, new)))  # those of other tests go, too
    records = [path.read_text() for path in tmp_path.glob("kill-*/round.json")]
    assert sum("running" in record for record in records) > KILLS / 10, "many are to be killed while jobs run"


def seconds_until_jobs_run(folder: Path, environment: dict[str, str]) -> float:
    """How long a launcher takes on this machine until all of its jobs run; it is killed then."""
    began, launcher = time.monotonic(), launch(folder, environment)
    record = folder / "round.json"
    wait_for(lambda: record.is_file() and record.read_text().count("run='job") == 4)
    launcher.kill()
    launcher.wait(GONE_S)
    return time.monotonic() - began


@pytest.mark.parametrize("arguments", [[], ["mps"]])
def test_a_killed_supervisor_takes_its_jobs_along(tmp_path, environment, arguments):
    launcher = launch(tmp_path / "run", environment, *arguments)
    record = tmp_path / "run" / "round.json"
    wait_for(lambda: record.is_file() and record.read_text().count("run='job") == 4)
    supervisor_of(launcher).kill()
    assert launcher.wait(GONE_S) == 0, "the launcher lives, and has recorded what happened"
    assert record.read_text().count("status='failed', run='job") == 4
    assert wait_until_none(tmp_path / "tmp") == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert shared_memory_of(tmp_path / "tmp") == []


def test_jobs_die_with_supervisor_and_launcher(tmp_path, environment):
    launcher = launch(tmp_path / "run", environment)
    record = tmp_path / "run" / "round.json"
    wait_for(lambda: record.is_file() and record.read_text().count("run='job") == 4)
    supervisor = supervisor_of(launcher)
    jobs = [child for child in supervisor.children() if any("light_job" in word for word in child.cmdline())]
    launcher.kill()
    supervisor.kill()
    launcher.wait(GONE_S)
    wait_for(lambda: all(not job.is_running() or job.status() == psutil.STATUS_ZOMBIE for job in jobs))
    assert len(jobs) == 4
    # the net's end: what a job has started, and nobody is there to adopt
    left = [line for line in ours(tmp_path / "tmp") if "resource_tracker" not in line]
    assert all("time.sleep(600)" in line for line in left)
    for line in left:
        psutil.Process(int(line.split()[0])).kill()
    assert wait_until_none(tmp_path / "tmp") == []


def wait_for(condition) -> None:
    until = time.monotonic() + GONE_S
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)
