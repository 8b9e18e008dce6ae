"""Keeps the processes of a launch together, so that all of them can be ended, whatever happens to any of them.

There are three nets. A job dies with its supervisor (PR_SET_PDEATHSIG). Children that lose their parent become the
supervisor's (PR_SET_CHILD_SUBREAPER). All processes carry a mark in their environment, by which the launcher finds them
if the supervisor itself is killed. The first two exist on Linux only.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import psutil

PARENT = "LABKIT_SUPERVISOR"
"""Environment variable with the supervisor's pid, for a job that must die with it."""
MARK = "LABKIT_ROUND"
"""Environment variable that all processes of one launch inherit, with the same value."""
JOB = "LABKIT_JOB"
"""Environment variable with the name of the job, for all its processes."""
DAEMON = "/mps"
"""Name in place of a job's, for the processes of our MPS daemon, which ends after all jobs."""
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
LOOK_S = 0.02
"""Seconds between two looks at whether processes are gone."""
GONE_S = 10.0
"""Seconds in which a killed process is gone, unless a driver keeps it."""


def adopt_orphans() -> bool:
    """Make this process the parent of descendants that lose theirs; False if the system cannot."""
    return _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent ends, or at once if it has ended already."""
    if _prctl(_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent_pid:
        os._exit(1)


def marked(mark: str, job: str | None = None, but: str | None = None) -> set[psutil.Process]:
    """The other processes with this mark: all, those of `job` only, or all but those of the job `but`."""

    def is_one(process: psutil.Process) -> bool:
        environment = process.environ()
        own = environment.get(JOB, "")
        return environment.get(MARK) == mark and job in (None, own) and own != but

    return _all_where(is_one)


def descendants() -> set[psutil.Process]:
    """All descendants of this process, including adopted ones."""
    return set(psutil.Process().children(recursive=True))


def kill_session(pid: int) -> None:
    """Kill the session that a process began, and on Windows its children."""
    kill_until_gone(lambda: of_session(pid))


def of_session(pid: int) -> set[psutil.Process]:
    """The processes of the session that a process began, even if it has ended; on Windows, its children."""
    if sys.platform == "win32":
        with contextlib.suppress(psutil.Error):
            return set(psutil.Process(pid).children(recursive=True))
        return set()
    return _all_where(lambda process: os.getsid(process.pid) == pid)


def _all_where(is_one: Callable[[psutil.Process], bool]) -> set[psutil.Process]:
    found = set()
    for process in psutil.process_iter():
        # processes of other users cannot be read, and are not ours
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and is_one(process):
                found.add(process)
    return found


def kill_until_gone(find: Callable[[], Iterable[psutil.Process]]) -> list[int]:
    """Kill what `find` returns until it finds nothing, because new processes may start meanwhile.

    Returns the pids of processes that remained, which a driver keeps.
    """
    until = time.monotonic() + GONE_S
    while left := [process for process in find() if _lives(process)]:
        if time.monotonic() > until:
            break
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(LOOK_S)
    return [process.pid for process in left]


def still_there(pid: int) -> str:
    """A sentence on the state of a process that SIGKILL did not end; empty if it has ended after all."""
    try:
        state = psutil.Process(pid).status()
    except psutil.Error:
        return ""
    if state == psutil.STATUS_ZOMBIE:
        return ""
    why = ": it waits in the kernel, for example for a driver or a disk" if state == psutil.STATUS_DISK_SLEEP else ""
    return f"process {pid} still exists after SIGKILL, in state {state}{why}"


def end_killed(process: Any) -> None:
    """Wait a bounded time for a killed child; warn about one that does not end, and leave it."""
    try:
        process.wait(GONE_S)
    except subprocess.TimeoutExpired:
        if state := still_there(process.pid):
            warnings.warn(f"{state}; labkit no longer waits for it", stacklevel=2)


def wait_until_gone(find: Callable[[], Iterable[psutil.Process]], timeout_s: float) -> None:
    """Wait for processes to end by themselves."""
    until = time.monotonic() + timeout_s
    while any(map(_lives, find())) and time.monotonic() < until:
        time.sleep(LOOK_S)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
