"""The supervisor: a process between launcher and jobs, which starts them, passes on what they say, and ends them all.

When its input closes, because the launcher is done or was killed, it ends every job and everything that they started,
politely first.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from labkit.errors import UserError
from labkit.process.child import Parent, message_of
from labkit.process.containment import (
    DAEMON,
    JOB,
    MARK,
    PARENT,
    adopt_orphans,
    descendants,
    kill_until_gone,
    marked,
    of_session,
    still_there,
    wait_until_gone,
)

POLITE_S, TERM_S = 8.0, 3.0
"""A job that is to end has this long to save what it has; then SIGTERM, and this long later SIGKILL."""

TIDY_S = 1.0
"""What a job has started may end by itself for so long after it."""
DAEMON_ENDS_S = 30.0
"""The guard of our MPS daemon asks it to quit, waits, and kills it, within this."""


@dataclass
class _Job:
    name: str
    process: subprocess.Popen
    listener: threading.Thread
    """Passes on what the job says, until nobody is left who could say more"""
    deadlines: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    """What is done, and when, should it not have ended by then"""
    asked: bool = False
    """Whether it was told to end"""


class _Supervisor:
    def __init__(self) -> None:
        self.launcher = Parent()
        self.polite_s = self.launcher.content["polite_s"]
        self.jobs: dict[str, _Job] = {}
        self.to_do: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.closing = False
        self.mps_guard: subprocess.Popen | None = None
        self.temporary: list[str] = []
        self.mark = os.environ[MARK]

    def run(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's
        signal.signal(signal.SIGTERM, lambda *_: self.to_do.put(self._close))
        signal.signal(signal.SIGCHLD, lambda *_: self.to_do.put(lambda: None))
        adopt_orphans()
        self.launcher.listen(
            lambda order: self.to_do.put(lambda: self._obey(**order)), lambda: self.to_do.put(self._close)
        )
        while not (self.closing and not self.jobs):
            with contextlib.suppress(queue.Empty):
                self.to_do.get(timeout=self._until_next_deadline())()
            self._reap()
            self._do_what_is_due()
        self._sweep()
        for left_over in self.temporary:
            shutil.rmtree(left_over, ignore_errors=True)
            with contextlib.suppress(OSError):
                Path(left_over).unlink(missing_ok=True)

    # orders

    def _obey(self, kind: str, **order: Any) -> None:
        getattr(self, f"_do_{kind}")(**order)

    def _do_start(
        self, name: str, program: list[str], content: dict[str, Any], log: str, environment: dict[str, str]
    ) -> None:
        whole = os.environ | environment | {PARENT: str(os.getpid()), JOB: name}
        kept = {variable: value for variable, value in whole.items() if environment.get(variable) != ""}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with Path(log).open("ab") as errors:
            process = subprocess.Popen(program, **pipes, stderr=errors, env=kept, start_new_session=True)
        self.launcher.tell("started", job=name, pid=process.pid)
        listener = threading.Thread(target=self._hear, args=(name, process), daemon=True)
        job = self.jobs[name] = _Job(name, process, listener)
        listener.start()
        self._write(job, content)
        if self.closing:
            self._do_end(name)

    def _do_go(self, job: str) -> None:
        if job in self.jobs:
            self._write(self.jobs[job], {"kind": "go"})

    def _do_end(self, job: str) -> None:
        ending = self.jobs.get(job)
        if ending is None or ending.asked:
            return
        ending.asked = True
        with contextlib.suppress(OSError):
            ending.process.stdin.close()
        now = time.monotonic()
        ending.deadlines = [
            (now + self.polite_s, lambda: self._signal(ending, signal.SIGTERM)),
            (now + self.polite_s + TERM_S, lambda: self._kill(ending)),
        ]

    def _do_kill(self, job: str) -> None:
        if job in self.jobs:
            self.jobs[job].asked = True
            self._kill(self.jobs[job])

    def _do_mps(self, gpus: list[str]) -> None:
        from labkit.hardware.budgets.mps import start_mps

        os.environ[JOB] = DAEMON
        try:
            environment, self.mps_guard = start_mps(gpus)
        except UserError as error:
            self.launcher.tell("mps", why_not=str(error))
        else:
            self.launcher.tell("mps", environment=environment)
        finally:
            del os.environ[JOB]

    def _do_sweep(self) -> None:
        self.launcher.tell("swept", left=self._sweep())

    def _do_remove_at_end(self, path: str) -> None:
        self.temporary.append(path)

    def _close(self) -> None:
        """End everything: nobody gives orders any more."""
        if not self.closing:
            self.closing = True
            for name in list(self.jobs):
                self._do_end(name)

    # jobs

    def _write(self, job: _Job, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is ending
            job.process.stdin.write(json.dumps(message).encode() + b"\n")
            job.process.stdin.flush()

    def _hear(self, name: str, process: subprocess.Popen) -> None:
        with process.stdout as stream:
            for line in stream:
                if event := message_of(line):
                    self.launcher.tell("told", job=name, event=event)

    def _signal(self, job: _Job, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.process.pid, number)

    def _kill(self, job: _Job) -> None:
        """Kill its main process; what it has started follows when its end is noticed, or is awaited no longer."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(job.process.pid, signal.SIGKILL)
        job.deadlines.append((time.monotonic() + TIDY_S, lambda: self._ended(job)))

    def _reap(self) -> None:
        """Take the exit statuses of jobs, and of orphans that nobody else takes."""
        by_pid = {job.process.pid: job for job in self.jobs.values()}
        if self.mps_guard is not None:
            self.mps_guard.poll()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in by_pid:
                by_pid[pid].process.returncode = os.waitstatus_to_exitcode(status)
                self._ended(by_pid[pid])

    def _ended(self, job: _Job) -> None:
        """End what is left of a job that has ended, or that was killed and should have."""
        with contextlib.suppress(OSError):
            job.process.stdin.close()
        del self.jobs[job.name]

        def left_by_it() -> set[psutil.Process]:
            return of_session(job.process.pid) | marked(self.mark, job.name)

        # Python's resource tracker ends by itself, once it has removed the shared memory that the job left
        wait_until_gone(left_by_it, TIDY_S)
        left = kill_until_gone(left_by_it)
        job.listener.join(TIDY_S)  # now that nobody is left who writes: a watch over its memory has a word to say, too
        still = [words for pid in left if (words := still_there(pid))]
        # its status is None where it has not ended
        status = job.process.poll()
        self.launcher.tell("ended", job=job.name, status=status, asked=job.asked, left=left, still=still)

    def _until_next_deadline(self) -> float | None:
        due = [when for job in self.jobs.values() for when, _ in job.deadlines]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        for job in list(self.jobs.values()):
            due = [act for when, act in job.deadlines if when <= now]
            job.deadlines = [(when, act) for when, act in job.deadlines if when > now]
            for act in due:
                if job.name in self.jobs:
                    act()

    # the end

    def _sweep(self) -> list[int]:
        """Kill what jobs left, then end the daemon; what would not go."""
        left = kill_until_gone(self._all_but_mps, self._reap)
        self._end_mps()
        return left or kill_until_gone(lambda: descendants() | marked(self.mark), self._reap)

    def _all_but_mps(self) -> set[psutil.Process]:
        return (descendants() | marked(self.mark, but=DAEMON)) - marked(self.mark, DAEMON)

    def _end_mps(self) -> None:
        """Only now: a client whose daemon goes loses its GPU."""
        if self.mps_guard is None:
            return
        with contextlib.suppress(OSError):
            self.mps_guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.mps_guard.wait(DAEMON_ENDS_S)
        self.mps_guard = None


if __name__ == "__main__":
    _Supervisor().run()
    os._exit(0)
