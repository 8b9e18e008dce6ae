"""The supervisor: a process between launcher and jobs that starts them, passes on their messages, and ends them all.

The launcher has `SupervisedJobs`: orders go in, events come out, and leaving the block leaves no process. When the
supervisor's input closes, because the launcher is done or was killed, it ends all jobs and their children, politely
first.
"""

import contextlib
import os
import queue
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any

import psutil

from labkit import UserError, errors
from labkit.process import template
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
"""Seconds for a job to save what it has before SIGTERM; SIGKILL follows `TERM_S` later."""
TIDY_S = 1.0
"""Seconds in which a job's children may end by themselves after it."""
DAEMON_ENDS_S = 30.0
"""Seconds in which the guard of our MPS daemon asks it to quit, waits, and kills it."""
MPS_S = 60.0
"""Seconds for our MPS daemon to start, or to report why it does not."""
MORE_S = 2.0
"""Seconds that the supervisor has in addition to all its deadlines together."""


class SupervisorDied(RuntimeError):
    """The supervisor ended without being asked to; all its jobs have ended."""


def how_ended(event: dict[str, Any]) -> str:
    """How the process of a job ended that sent no message about it, from its "ended" event."""
    status = event["status"]
    if status is None:
        return "its process does not end"
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status} and sent no message: see its log"


class SupervisedJobs:
    """Jobs under a supervisor of their own; a context manager."""

    def __init__(self, grace_s: float = JOB_GRACE_S, *, shows_output: bool = False, makes_template: bool = False):
        """A job that is asked to end has `grace_s` seconds to save what it has; then it gets SIGTERM, and then SIGKILL.

        With `shows_output`, standard error of jobs without a log is that of this process. With `makes_template` the
        first job that may be warm waits for a template.
        """
        self._grace_s, self._shows_output, self._makes_template = grace_s, shows_output, makes_template
        self.alive = False
        """Whether the supervisor takes orders."""

    def __enter__(self) -> "SupervisedJobs":
        self.mark = secrets.token_hex(8)
        self._child = Child(
            "labkit.process.supervisor",
            {"grace_s": self._grace_s, "makes_template": self._makes_template},
            environment={MARK: self.mark},
            log="" if self._shows_output else None,
            grace_s=self._grace_s + TERM_S + 3 * TIDY_S + 3 * GONE_S + DAEMON_ENDS_S + MORE_S,
        ).start()
        self.alive = True
        return self

    def _order(self, kind: str, **order: Any) -> None:
        self._child.send({"kind": kind, **order})

    def start(
        self, name: str, module: str, content: Any, log: str, environment: dict[str, str], *, warm: bool = False
    ) -> None:
        """Start a job. It runs up to its first step and waits there for `go`.

        Module, content and environment are those of a `Child`. If `log` is empty, its standard error goes to that of
        the launcher. `warm` says whether it may be forked from a template.
        """
        job = {"module": module, "content": content, "log": log, "environment": environment, "warm": warm}
        self._order("start", name=name, **job)

    def go(self, *names: str) -> None:
        """Let jobs take their first step."""
        for name in names:
            self._order("go", name=name)

    def end(self, name: str) -> None:
        """Ask a job to end, politely first; its children end with it."""
        self._order("end", name=name)

    def kill(self, name: str) -> None:
        """Kill a job and its children at once."""
        self._order("end", name=name, kill=True)

    def sweep(self) -> None:
        """Kill what ended jobs left behind, and end the MPS daemon."""
        self._ask("sweep", 3 * GONE_S + DAEMON_ENDS_S)

    def start_mps(self, gpus: Sequence[str]) -> dict[str, str]:
        """Start an MPS daemon on GPUs, by UUID, until the next `sweep`.

        Returns:
            The variables of its clients.

        Raises:
            UserError: it does not start.
        """
        silent: dict[str, Any] = {"why_not": f"CUDA MPS does not start: it did not answer for {MPS_S:g} s."}
        event = self._ask("mps", MPS_S, gpus=list(gpus)) or silent
        if "why_not" in event:
            raise UserError(event["why_not"])
        return event["environment"]

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """The next event of a job: started (pid), told (event) or ended (status, asked, still).

        If even SIGKILL did not end a job, its status is None, and `still` has a sentence on the state of each of its
        processes.

        Returns:
            The event; None if there is none within the time.

        Raises:
            SupervisorDied: the supervisor was killed, and its jobs with it.
        """
        try:
            return self._child.next_message(timeout_s)
        except EOFError:
            self.alive = False
            self._kill_marked()
            raise SupervisorDied(
                f"the supervisor of the jobs ended with status {self._child.status()}, and the jobs with it: "
                f"{self._child.stderr_tail().strip() or 'it printed nothing'}"
            ) from None

    def _ask(self, kind: str, timeout_s: float, **order: Any) -> dict[str, Any] | None:
        """The event that answers an order; other events before it are of jobs that have ended."""
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
        """Kill what the supervisor left behind, if it was killed itself."""
        wait_until_gone(lambda: marked(self.mark, but=DAEMON), TIDY_S)
        kill_until_gone(lambda: marked(self.mark, but=DAEMON))
        wait_until_gone(lambda: marked(self.mark, DAEMON), DAEMON_ENDS_S)  # the daemon's guard also lost its input
        kill_until_gone(lambda: marked(self.mark))


class _Job(Child):
    """A job in the supervisor's process: passes its messages on to the launcher, and at last how it ended."""

    def __init__(self, supervisor: "_Supervisor", name: str, module: str, content: Any, log: str, environment, warm):
        own = environment | {PARENT: str(os.getpid()), JOB: name}
        super().__init__(module, content, environment=own, log=log, grace_s=supervisor.grace_s, warm=warm)
        self.name, self.supervisor = name, supervisor
        self.asked = False
        """Whether it was asked to end."""
        self._over = threading.Lock()

    def _hear(self, message: dict[str, Any]) -> None:
        self.supervisor.launcher.tell("told", job=self.name, event=message)

    def end_by(self, kill: bool = False) -> None:
        """End it, politely first or by SIGKILL at once, and wait until it has ended."""
        if kill:
            self.kill()
        else:
            self._shut_down()
        self.await_end(TIDY_S)

    def await_end(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the process, then end its children; of two callers, only the first does so."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        if not self._over.acquire(blocking=False):
            return
        # Python's resource tracker ends by itself, after removing the job's shared memory
        wait_until_gone(self._left_by_it, TIDY_S)
        still = [state for pid in kill_until_gone(self._left_by_it) if (state := still_there(pid))]
        self._listener.join(TIDY_S)  # until all writers are gone: its memory watch may report last
        self.stop()
        self._errors.close()
        status = self._process.poll()
        self.supervisor.launcher.tell("ended", job=self.name, status=status, asked=self.asked, still=still)
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

    def run(self) -> None:
        """Carry out orders until the launcher and all jobs have ended. Jobs die with the thread that starts them."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's
        signal.signal(signal.SIGTERM, lambda *_: self.orders.put({"kind": "close"}))
        adopt_orphans()
        self.launcher.listen(self.orders.put, lambda: self.orders.put({"kind": "close"}))
        while self.jobs or not self.closing:
            order = self.orders.get()
            getattr(self, f"_do_{order.pop('kind')}")(**order)
        self._sweep()

    def _do_start(self, name: str, **job: Any) -> None:
        if self.closing:
            return
        try:
            if job["warm"] and self.launcher.content["makes_template"] and template.is_possible():
                with errors.refusals():
                    template.start_template()
            self.jobs[name] = _Job(self, name, **job).start()
            self.launcher.tell("started", job=name, pid=self.jobs[name].pid)
            with errors.refusals():
                threading.Thread(target=self.jobs[name].await_end, daemon=True).start()
        except UserError as error:  # the system allows no more processes or threads
            failed = {"kind": "Failed", "status": "failed", "reason": str(error), "answer": None, "refused": True}
            self.launcher.tell("told", job=name, event=failed)
            if name in self.jobs:
                self.jobs[name].end_by(kill=True)
            else:
                self.launcher.tell("ended", job=name, status=None, asked=False, still=[])

    def _do_go(self, name: str) -> None:
        if name in self.jobs:
            self.jobs[name].send({"kind": "go"})

    def _do_end(self, name: str, kill: bool = False) -> None:
        if name in self.jobs and (kill or not self.jobs[name].asked):
            self.jobs[name].asked = True
            threading.Thread(target=self.jobs[name].end_by, args=(kill,), daemon=True).start()

    def _do_forget(self, job: _Job) -> None:
        """Forget a job that has ended, and collect the exit statuses of its children that this process adopted."""
        if self.jobs.get(job.name) is job:  # a new job may have its name by now
            del self.jobs[job.name]
        own = {job.pid for job in self.jobs.values()} | {self.mps_guard and self.mps_guard.pid, *self._template()}
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if child.pid not in own and child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)

    def _template(self) -> set[int]:
        own = template.own_template()
        return set() if own is None else {own.pid}

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
        self._sweep()
        self.launcher.tell("sweep")

    def _do_close(self) -> None:
        """End everything, because there will be no more orders."""
        self.closing = True
        for name in self.jobs:
            self._do_end(name)

    def _sweep(self) -> None:
        """Kill what jobs left behind, then end the daemon, whose clients would lose their GPU."""
        kept = set() if self.closing else self._template()

        def jobs() -> set[psutil.Process]:
            return {each for each in descendants() | marked(self.mark) if each.pid not in kept}

        kill_until_gone(lambda: jobs() - marked(self.mark, DAEMON))
        if self.mps_guard is not None:
            with contextlib.suppress(OSError):
                errors.certain(self.mps_guard.stdin).close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.mps_guard.wait(DAEMON_ENDS_S)
            self.mps_guard = None
        kill_until_gone(jobs)


if __name__ == "__main__":
    _Supervisor().run()
    os._exit(0)
