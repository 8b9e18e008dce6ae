"""Cores that no two processes hold."""

import os
import subprocess
import sys

import pytest

from labkit.hardware import leases
from labkit.hardware.leases import CoresHeld, lease_cores, leased_cores, own_cores

needs_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
HOLD = """
import sys
from labkit.hardware.leases import lease_cores
cores = lease_cores(int(sys.argv[1]), say=lambda words: print(words, flush=True))
print(*cores, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_lease(monkeypatch, tmp_path):
    monkeypatch.delenv(leases.LEASED_VARIABLE, raising=False)
    monkeypatch.setenv(leases.FOLDER_VARIABLE, str(tmp_path / "cores"))
    monkeypatch.setattr(leases, "core_order", lambda: [0, 1])
    monkeypatch.setattr(leases, "_locks", {})


@pytest.fixture
def holder():
    """Starts processes that hold so many cores, and ends them."""
    started = []

    def start(count):
        command = [sys.executable, "-c", HOLD, str(count)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


@needs_two_cores
def test_two_processes_get_cores_of_their_own_and_a_third_is_told_who_has_them_until_one_is_killed(holder, monkeypatch):
    first, one = holder(1)
    with leased_cores(1) as mine:
        assert {one, str(mine[0])} == {"0", "1"}
        monkeypatch.delenv(leases.LEASED_VARIABLE)  # or this process would wait for the third
        third, words = holder(1)
        assert f"process {first.pid} of " in words and f"process {os.getpid()} of " in words
        assert "Waiting for them" in words
        first.kill()
        assert third.stdout.readline().strip() == one


@needs_two_cores
def test_who_does_not_wait_is_refused_and_takes_none(holder):
    holder(1)
    with pytest.raises(CoresHeld, match=r"This needs 2 more CPU cores, and other runs hold CPU \d \(process \d+ of"):
        lease_cores(2, waits=False)
    with leased_cores(1, waits=False) as free:
        assert free == own_cores()
    with pytest.raises(KeyboardInterrupt):
        lease_cores(2, stopped=lambda: True)


def test_what_this_process_holds_counts_and_what_it_starts_may_use_it_but_not_its_fork(holder):
    with leased_cores(1) as first, leased_cores(1) as again:
        assert first == again == [0]
        assert leases._file("cpu0").parent.stat().st_mode & 0o7777 == 0o1777
        assert leases._file("cpu0").stat().st_mode & 0o777 == 0o666
        if not (child := os.fork()):
            os._exit(len(leases._held()))
        assert os.waitpid(child, 0)[1] == 0
        assert holder(1)[1] == "0"  # this process waits for what it starts
    assert holder(1)[1] == "0"
    with pytest.raises(CoresHeld):
        lease_cores(2, waits=False)


def test_without_affinity_cores_are_dealt_unlocked_and_a_folder_that_cannot_be_made_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(leases.FOLDER_VARIABLE, str(tmp_path / "file" / "cores"))
    with pytest.raises(leases.UserError, match=leases.FOLDER_VARIABLE):
        lease_cores(1)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert lease_cores(1) == [0] and not leases._locks
