"""A program in a child process: what is told both ways, and that nothing of it stays."""

from __future__ import annotations

import os

import psutil
import pytest

from labkit.process import child as child_module
from labkit.process.child import Child

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
import signal, subprocess, sys, time
from labkit.process.child import Parent
parent = Parent()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
parent.tell("started", pid=started.pid)
time.sleep(600)
"""


@pytest.fixture
def program(tmp_path):
    """Makes a child of a program's text."""

    def child(text: str, content=None, **options) -> Child:
        (tmp_path / "program.py").write_text(text)
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        return Child("program", content, environment={"PYTHONPATH": path}, **options)

    return child


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
        assert (child.status(), child.last_words()) == (3, "said by a library\n")
        child.send({"kind": "go"})  # to whoever has ended, nothing


def test_one_that_is_deaf_to_all_is_killed_with_what_it_started(program, monkeypatch):
    monkeypatch.setattr(child_module, "TERM_S", 0.2)
    with program(DEAF, polite_s=0.2) as child:
        pids = [child.pid, child.next_message()["pid"]]
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)
