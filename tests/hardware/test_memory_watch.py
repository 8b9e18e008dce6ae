"""The watch over a process' memory: what counts, how a process is ended that has too much, and that nothing stays."""

import os
import subprocess
import sys

import pytest

from labkit.hardware import memory_watch
from labkit.hardware.memory_watch import Watch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says what a process holds")
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


def test_a_process_that_goes_on_after_its_signal_is_killed_unless_it_made_itself_smaller(monkeypatch):
    signals, killed = [], []
    watch = Watch(0, pid=os.getpid(), limit=1000 * MIB, message="", at_end=None)
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
