"""A program in a child process: what is told both ways, and that nothing of it stays."""

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from labkit.process import child as child_module, containment
from labkit.process.child import Child
from labkit.process.supervisor import SupervisedJobs

ECHO = """
import os, time
from labkit.process.child import Parent
parent = Parent()
print("said by a library", flush=True)
parent.tell("told", content=parent.content)
parent.listen(lambda order: parent.tell("heard", order=order), lambda: os._exit(3))
time.sleep(600)
"""
DEAF = """
import signal, subprocess, sys
from labkit.process.child import Parent
parent = Parent()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
program = f"import signal, sys, time; signal.signal(15, {parent.content}); print(flush=True); time.sleep(600)"
started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
started.stdout.readline()
parent.tell("started", pid=started.pid)
sys.exit(started.wait())
"""


@pytest.fixture
def program(tmp_path):
    """Makes a child of a program's text."""

    def child(text: str, content=None, **options) -> Child:
        (tmp_path / "program.py").write_text(text)
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        return Child("program", content, environment={"PYTHONPATH": path}, **options)

    return child


def test_much_goes_both_ways_though_nobody_listens_and_nothing_comes_of_no_content(program):
    text = "x" * 2**17  # more than a pipe holds
    with program(ECHO, text) as child:
        child.send(text)
        child.stop()
        assert child.status() == 3
        assert [len(str(message)) > 2**17 for message in child.messages()] == [True, True]
        environment = os.environ | child._environment
    nothing = {"stdin": subprocess.DEVNULL, "env": environment, "capture_output": True}
    ended = subprocess.run([sys.executable, "-m", "program"], **nothing, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, b"")


def test_content_and_orders_go_in_and_messages_come_out(program):
    with program(ECHO, {"steps": 3}) as child:
        assert child.next_message() == {"kind": "told", "content": {"steps": 3}}
        assert child.next_message(0.01) is None
        child.send({"kind": "go"})
        assert child.next_message() == {"kind": "heard", "order": {"kind": "go"}}
        child.stop()
        assert list(child.messages()) == []
        with pytest.raises(EOFError):
            child.next_message()
        assert (child.status(), child.stderr_tail()) == (3, "said by a library\n")
        child.send({"kind": "go"})  # to whoever has ended, nothing


def test_one_that_is_deaf_to_all_is_killed_with_what_it_started(program, monkeypatch):
    monkeypatch.setattr(child_module, "TERM_S", 0.2)
    with program(DEAF, "signal.SIG_IGN", grace_s=0.2) as child:
        pids = [child.pid, child.next_message()["pid"]]
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


def test_what_a_deaf_one_started_may_save_at_sigterm(program, monkeypatch, tmp_path):
    monkeypatch.setattr(child_module, "TERM_S", 30.0)
    with program(DEAF, "lambda *_: sys.exit('saved')", grace_s=0.2, log=str(tmp_path / "log")) as child:
        child.next_message()
    assert (child.status(), (tmp_path / "log").read_text()) == (1, "saved\n")


@pytest.mark.skipif(sys.platform == "win32", reason="jobs are started together on Linux and macOS only")
def test_a_job_may_have_the_name_of_one_that_has_just_ended(program, tmp_path):
    path = program("from labkit.process.child import Parent\nParent().tell('told')")._environment
    with SupervisedJobs() as supervised:
        for _ in range(3):
            supervised.start("a", "program", {}, str(tmp_path / "log"), path)
            kinds = [supervised.next_event(60)["kind"] for _ in range(3)]
            assert sorted(kinds) == ["ended", "started", "told"] and kinds[-1] == "ended"


def test_what_ends_by_itself_is_waited_for_until_it_has_and_no_longer_than_is_said(monkeypatch):
    waits = []
    monkeypatch.setattr(containment, "time", SimpleNamespace(monotonic=lambda: len(waits), sleep=waits.append))
    lives = psutil.Process()
    found = iter([[lives], [lives]])
    containment.wait_until_gone(lambda: next(found, []), timeout_s=9)
    assert len(waits) == 2
    containment.wait_until_gone(lambda: [lives], timeout_s=9)
    assert len(waits) == 2 + 9
