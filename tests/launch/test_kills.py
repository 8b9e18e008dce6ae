"""Whichever process is killed, and whenever: nothing is left, and each part of a list ends exactly once."""

import os
import random
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from fake_nvml import fake_mps
from processes import DEADLINE_S, gone, marked_where, wait_for

from labkit.launch import Launches
from labkit.runs import RunRecord, readable_runs, run_folders

LAUNCHER = Path(__file__).with_name("launcher.py")
KILLS = 300 if "LABKIT_SOAK" in os.environ else 12
"""`make soak` has the hundreds."""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes as Linux shows them")


@pytest.fixture
def temporary(tmp_path, monkeypatch, light) -> Path:
    """The launchers' folder for temporary files; an MPS daemon that is none is on PATH."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    fake_mps(tmp_path, monkeypatch)
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def launch(folder: Path, *arguments: str) -> subprocess.Popen:
    folder.mkdir()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, str(LAUNCHER), folder, *arguments], **quiet, start_new_session=True)


def launch_and_wait(folder: Path, *arguments: str) -> tuple[subprocess.Popen, Path]:
    """A launcher all of whose jobs run, and its record."""
    launcher = launch(folder, *arguments)

    def states() -> str:
        return "".join(path.read_text() for path in folder.glob("*/launches.jsonl"))

    wait_for(lambda: states().count('"run": "run-of-job') >= 4)
    return launcher, next(folder.glob("*/launches.jsonl"))


def jobs_of(launcher: subprocess.Popen) -> list[psutil.Process]:
    return [own for own in psutil.Process(launcher.pid).children(recursive=True) if "light_job" in own.cmdline()]


def ours(temporary: Path) -> list[str]:
    return marked_where(lambda process: process.environ().get("TMPDIR") == str(temporary))


def mps_folders() -> set[Path]:
    return set(Path("/tmp").glob("labkit-mps-*"))


def assert_nothing_is_left(temporary: Path) -> None:
    wait_for(lambda: not ours(temporary))
    assert list(temporary.iterdir()) == []
    assert list(Path("/dev/shm").glob(f"labkit-{zlib.crc32(str(temporary).encode()):08x}-*")) == []


def test_random_kills_leave_no_process_daemon_shared_memory_or_temporary_file(tmp_path, temporary):
    chance, before, began = random.Random(7), mps_folders(), time.monotonic()
    launcher, _ = launch_and_wait(tmp_path / "first")
    launcher.kill()
    launcher.wait(DEADLINE_S)
    most_s = 4 * (time.monotonic() - began)  # ten at once are slower than one
    signals = [signal.SIGKILL] * 6 + [signal.SIGINT, signal.SIGTERM]
    plans = [(chance.uniform(0, most_s), chance.choice(signals), chance.random() < 0.1) for _ in range(KILLS)]

    def kill(number: int) -> int:
        after_s, what, needs_mps = plans[number]
        launcher = launch(tmp_path / f"kill-{number}", *["mps"] * needs_mps)
        time.sleep(after_s)  # the moment is what is drawn
        launcher.send_signal(what)
        return launcher.wait(DEADLINE_S)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(kill, range(KILLS)))

    assert_nothing_is_left(temporary)
    assert not [path for path in tmp_path.rglob(".launches*")]
    new = mps_folders() - before
    wait_for(lambda: not any(map(Path.exists, new)))  # those of other tests go, too
    records = [Launches.read(path.parent) for path in tmp_path.glob("kill-*/*/launches.jsonl")]
    assert sum(any(each.status == "running" for each in record.parts.values()) for record in records) > KILLS / 10, (
        "many are to be killed while jobs run"
    )


@pytest.mark.parametrize("arguments", [[], ["mps"]])
def test_a_killed_supervisor_takes_its_jobs_along(tmp_path, temporary, arguments):
    launcher, record = launch_and_wait(tmp_path / "run", *arguments)
    jobs_of(launcher)[0].parent().kill()
    assert launcher.wait(DEADLINE_S) == 0, "the launcher lives, and has recorded what happened"
    assert [part.status for part in Launches.read(record.parent).parts.values()] == ["failed"] * 4
    assert_nothing_is_left(temporary)


def test_jobs_die_with_supervisor_and_launcher(tmp_path, temporary):
    launcher, _ = launch_and_wait(tmp_path / "run")
    jobs = jobs_of(launcher)
    supervisor = jobs[0].parent()
    launcher.kill()
    supervisor.kill()
    launcher.wait(DEADLINE_S)
    wait_for(lambda: all(map(gone, jobs)))
    assert len(jobs) == 4
    # the net's end: what a job has started, and nobody is there to adopt; the resource trackers end by themselves
    wait_for(lambda: all("time.sleep(600)" in line for line in ours(temporary)))
    left = ours(temporary)
    assert len(left) == 3
    for line in left:
        psutil.Process(int(line.split()[0])).kill()
    assert_nothing_is_left(temporary)


TIMES = 20 if "LABKIT_SOAK" in os.environ else 2


def name_of(record: RunRecord) -> str:
    """The part whose run it is."""
    if "sweep" in record.config:
        return record.config["sweep"]["cell"]
    return f"{record.config['collocation']['job']} {record.config['collocation']['mode']}"


@pytest.mark.parametrize("kind", ["sweep", "mix", "queue"])
def test_a_list_that_is_killed_again_and_again_goes_on_until_each_part_has_ended_once(tmp_path, write, light, kind):
    runs, chance, count = tmp_path / "runs", random.Random(kind), 2 * TIMES
    file = write(f"settings: {{takes: 0.1}}\ngrid: {{x: {[*range(count)]}}}\n")
    path = file if kind == "sweep" else tmp_path
    command = [sys.executable, str(LAUNCHER.with_name("killed.py")), kind, str(path), str(count)]

    def ended() -> list[RunRecord]:
        return [record for _, record in readable_runs(run_folders(runs)) if record.status == "done"]

    for number in range(TIMES):
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
        wait_for(lambda least=number, process=process: len(ended()) > least or process.poll() is not None)
        time.sleep(chance.uniform(0, 0.3))  # the moment is what is drawn
        process.kill()
        process.communicate()
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    (path,) = runs.glob("*/**/launches.jsonl")
    launches = Launches.read(path.parent)
    assert {part.status for part in launches.parts.values()} == {"done"} and launches.head.status == "done"
    named = Counter(name_of(record) for record in ended())
    # a round in which jobs share the device is only whole as a whole: a job of it may have ended before, too
    alone = {name: times for name, times in named.items() if "cpu-shared" not in name or kind == "queue"}
    assert set(alone.values()) == {1} and len(alone) == count, named
    assert len({part.run for part in launches.parts.values()}) == len(launches.parts)
    wait_for(lambda: not marked_where(lambda each: each.cwd() == str(tmp_path)))
