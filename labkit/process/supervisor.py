"""The supervisor: a process between launcher and jobs, which starts them, passes on what they say, and ends them all.

The launcher has `SupervisedJobs`: orders go in, events come out, and leaving the block leaves no process. When the
supervisor's input closes, because the launcher is done or was killed, it ends every job and everything that they
started, politely first.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from labkit.errors import UserError
from labkit.process.child import TERM_S, Child, Parent
from labkit.process.containment import (
    DAEMON,
    GONE_S,
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

JOB_GRACE_S = 8.0
"""A job that is to end has this long to save what it has; then SIGTERM, and `TERM_S` later SIGKILL."""
TIDY_S = 1.0
"""What a job has started may end by itself for so long after it."""
DAEMON_ENDS_S = 30.0
"""The guard of our MPS daemon asks it to quit, waits, and kills it, within this."""
MPS_S = 60.0
"""For our MPS daemon to start or to say why not."""
MORE_S = 2.0
"""The supervisor has this much longer than all its deadlines together."""


class SupervisorDied(RuntimeError):
    """The supervisor ended without an order; all its jobs are gone."""


@dataclass(frozen=True)
class JobProcess:
    """The process of one job."""

    name: str
    module: str
    """What `python -m` is to run; it has a `Parent`"""
    content: dict[str, Any]
    """What it is told to do"""
    log: str
    """File that its standard error goes to; empty lets it go to that of the launcher"""
    environment: dict[str, str] = field(default_factory=dict)
    """Beside this process' own; an empty value takes a variable away"""


def how_ended(event: dict[str, Any]) -> str:
    """How the process of a job ended that had no word to say, by its "ended" event."""
    status = event["status"]
    if status is None:
        return "its process does not end"
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status} without a word; its log says more"


class SupervisedJobs:
    """Jobs under a supervisor of their own; a context manager."""

    def __init__(self, grace_s: float = JOB_GRACE_S, *, shows_output: bool = False):
        """A job that is to end has `grace_s` to save what it has; then it gets SIGTERM, and then SIGKILL.

        With `shows_output`, standard error of jobs without a log is that of this process.
        """
        self._grace_s, self._shows_output = grace_s, shows_output
        self.alive = False
        """Whether there is a supervisor to give orders to"""

    def __enter__(self) -> SupervisedJobs:
        self.mark = secrets.token_hex(8)
        self._child = Child(
            "labkit.process.supervisor",
            {"grace_s": self._grace_s},
            environment={MARK: self.mark},
            shows_errors=self._shows_output,
            grace_s=self._grace_s + TERM_S + 3 * TIDY_S + 3 * GONE_S + DAEMON_ENDS_S + MORE_S,
        ).start()
        self.alive = True
        return self

    def _order(self, kind: str, **order: Any) -> None:
        self._child.send({"kind": kind, **order})

    def start(self, job: JobProcess) -> None:
        """Start a job; it comes as far as its first step and waits there for `go`."""
        self._order("start", **asdict(job))

    def go(self, *names: str) -> None:
        """Let jobs take their first step, all at once."""
        for name in names:
            self._order("go", name=name)

    def end(self, name: str) -> None:
        """Ask a job to end, politely first; all that it started ends with it."""
        self._order("end", name=name)

    def kill(self, name: str) -> None:
        """Kill a job and all that it started, at once."""
        self._order("end", name=name, kill=True)

    def remove_at_end(self, path: Path) -> None:
        """Remove a file or folder at the end, even should this process be killed before it could."""
        self._order("remove_at_end", path=str(path))

    def sweep(self) -> list[int]:
        """Kill what jobs that ended have left, and end the MPS daemon; the processes that would not go."""
        event = self._ask("sweep", 3 * GONE_S + DAEMON_ENDS_S)
        return [] if event is None else event["left"]

    def start_mps(self, gpus: Sequence[str]) -> dict[str, str]:
        """Start an MPS daemon on GPUs, by UUID, until the next `sweep`; its clients' variables, or a UserError."""
        silent = {"why_not": f"CUDA MPS does not start: it said nothing for {MPS_S:g} s."}
        event = self._ask("mps", MPS_S, gpus=list(gpus)) or silent
        if "why_not" in event:
            raise UserError(event["why_not"])
        return event["environment"]

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """The next started (pid), told (event) or ended (status, asked, left, still), with its job; None in time.

        Where even SIGKILL did not end a job, its status is None, left has the numbers of such processes, and still
        says of each in which state it is.

        Raises:
            SupervisorDied: the supervisor was killed; its jobs have been killed by now.
        """
        try:
            return self._child.next_message(timeout_s)
        except EOFError:
            self.alive = False
            self._kill_marked()
            raise SupervisorDied(
                f"the supervisor of the jobs ended with status {self._child.status()}, and they with it: "
                f"{self._child.stderr_tail().strip() or 'it said nothing'}"
            ) from None

    def _ask(self, kind: str, timeout_s: float, **order: Any) -> dict[str, Any] | None:
        """The event that answers an order; others that come before it are of jobs that have ended."""
        self._order(kind, **order)
        until = time.monotonic() + timeout_s
        while (left_s := until - time.monotonic()) > 0:
            event = self.next_event(left_s)
            if event is not None and event["kind"] == kind:
                return event
        return None

    def __exit__(self, *exception) -> None:
        self.alive = False
        try:
            self._child.end()
        finally:
            self._kill_marked()

    def _kill_marked(self) -> None:
        """Kill what the supervisor left, should it have been killed itself."""
        wait_until_gone(lambda: marked(self.mark, but=DAEMON), TIDY_S)
        kill_until_gone(lambda: marked(self.mark, but=DAEMON))
        wait_until_gone(lambda: marked(self.mark, DAEMON), DAEMON_ENDS_S)  # its guard lost its input, too
        kill_until_gone(lambda: marked(self.mark))


class _Job(Child):
    """A job in the supervisor's process, which tells the launcher all that it tells, and at last how it ended."""

    def __init__(self, supervisor: _Supervisor, name: str, module: str, content: Any, log: str, environment: dict):
        own = {PARENT: str(os.getpid()), JOB: name}
        how = {"log": log or None, "shows_errors": not log, "grace_s": supervisor.grace_s}
        super().__init__(module, content, environment=environment | own, **how)
        self.name, self.supervisor = name, supervisor
        self.asked = False
        """Whether it was told to end"""
        self._over = threading.Lock()

    def _hear(self, message: dict[str, Any]) -> None:
        self.supervisor.launcher.tell("told", job=self.name, event=message)

    def end_by(self, kill: bool = False) -> None:
        """End it, politely first or by SIGKILL at once, and await that for so long as it can take."""
        if kill:
            self.kill()
        else:
            self._shut_down()
        self.await_end(TIDY_S)

    def await_end(self, timeout_s: float | None = None) -> None:
        """Await the end of the process, and see to the end of what it started; who comes second has nothing to do."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        if not self._over.acquire(blocking=False):
            return
        # Python's resource tracker ends by itself, once it has removed the shared memory that the job left
        wait_until_gone(self._left_by_it, TIDY_S)
        left = kill_until_gone(self._left_by_it)
        self._listener.join(TIDY_S)  # nobody is left who writes: a watch over its memory may report, too
        self.stop()
        self._errors.close()
        still = [words for pid in left if (words := still_there(pid))]
        ended = {"status": self._process.poll(), "asked": self.asked, "left": left, "still": still}
        self.supervisor.launcher.tell("ended", job=self.name, **ended)
        self.supervisor.orders.put({"kind": "forget", "job": self})

    def _left_by_it(self) -> set[psutil.Process]:
        return of_session(self.pid) | marked(self.supervisor.mark, self.name)


class _Supervisor:
    def __init__(self) -> None:
        self.launcher, self.mark = Parent(), os.environ[MARK]
        self.grace_s = self.launcher.content["grace_s"]
        self.jobs: dict[str, _Job] = {}
        self.orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.closing = False
        self.mps_guard: subprocess.Popen | None = None
        self.temporary: list[str] = []

    def run(self) -> None:
        """Obey the launcher to its end, and the end of all jobs. Jobs die with the thread that starts them: this one"""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's
        signal.signal(signal.SIGTERM, lambda *_: self.orders.put({"kind": "close"}))
        adopt_orphans()
        self.launcher.listen(self.orders.put, lambda: self.orders.put({"kind": "close"}))
        while self.jobs or not self.closing:
            order = self.orders.get()
            getattr(self, f"_do_{order.pop('kind')}")(**order)
        self._sweep()
        for left_over in self.temporary:
            shutil.rmtree(left_over, ignore_errors=True)
            with contextlib.suppress(OSError):
                Path(left_over).unlink(missing_ok=True)

    def _do_start(self, name: str, **job: Any) -> None:
        if self.closing:
            return
        self.jobs[name] = _Job(self, name, **job).start()
        self.launcher.tell("started", job=name, pid=self.jobs[name].pid)
        threading.Thread(target=self.jobs[name].await_end, daemon=True).start()

    def _do_go(self, name: str) -> None:
        if name in self.jobs:
            self.jobs[name].send({"kind": "go"})

    def _do_end(self, name: str, kill: bool = False) -> None:
        if name in self.jobs and (kill or not self.jobs[name].asked):
            self.jobs[name].asked = True
            threading.Thread(target=self.jobs[name].end_by, args=(kill,), daemon=True).start()

    def _do_forget(self, job: _Job) -> None:
        """A job is over. What it started, and this process adopted, has statuses that nobody else takes."""
        if self.jobs.get(job.name) is job:  # and not one of its name that was started as soon as its end was told
            del self.jobs[job.name]
        own = {job.pid for job in self.jobs.values()} | {self.mps_guard and self.mps_guard.pid}
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if child.pid not in own and child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)

    def _do_mps(self, gpus: list[str]) -> None:
        from labkit.hardware import start_mps

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
        self.launcher.tell("sweep", left=self._sweep())

    def _do_remove_at_end(self, path: str) -> None:
        self.temporary.append(path)

    def _do_close(self) -> None:
        """End everything: nobody gives orders any more."""
        self.closing = True
        for name in self.jobs:
            self._do_end(name)

    def _sweep(self) -> list[int]:
        """Kill what jobs left, then end the daemon, for a client whose daemon goes loses its GPU; what would not go."""
        left = kill_until_gone(
            lambda: (descendants() | marked(self.mark, but=DAEMON)) - marked(self.mark, DAEMON)
        )  # fmt: skip
        if self.mps_guard is not None:
            with contextlib.suppress(OSError):
                self.mps_guard.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.mps_guard.wait(DAEMON_ENDS_S)
            self.mps_guard = None
        return left or kill_until_gone(lambda: descendants() | marked(self.mark))


if __name__ == "__main__":
    _Supervisor().run()
    os._exit(0)
