"""What keeps a round's processes together, so that all of them can be ended however they or their starter end.

Three nets: a job dies with its supervisor (PR_SET_PDEATHSIG); children that lose their parent become the supervisor's
(PR_SET_CHILD_SUBREAPER); and all carry a mark in their environment, by which the launcher finds them should the
supervisor itself be killed. The first two are Linux's; elsewhere children and mark have to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable

import psutil

PARENT = "LABKIT_SUPERVISOR"
"""Environment variable that names the supervisor's process to a worker, which dies with it."""
MARK = "LABKIT_ROUND"
"""Environment variable that all processes of a round inherit; its value is the round's own."""
JOB = "LABKIT_JOB"
"""Names the job to all its processes."""
DAEMON = "/mps"
"""Stands for a job's name in the processes of our MPS daemon, which ends after all jobs."""
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
LOOK_S = 0.02
"""Between two looks at whether processes are gone"""
GONE_S = 10.0
"""A killed process is gone after this long, unless a driver keeps it."""


def adopt_orphans() -> bool:
    """Make this process the parent of descendants that lose theirs; whether the system can."""
    return _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent ends; at once where that has ended already."""
    if _prctl(_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent_pid:
        os._exit(1)


def marked(mark: str, job: str | None = None, but: str | None = None) -> set[psutil.Process]:
    """The other processes that carry a round's mark: those of one job, or all but one's, if it is named."""

    def is_one(process: psutil.Process) -> bool:
        environment = process.environ()
        own = environment.get(JOB, "")
        return environment.get(MARK) == mark and job in (None, own) and own != but

    return _all_where(is_one)


def descendants() -> set[psutil.Process]:
    """All that this process, or what it adopted, has started."""
    return set(psutil.Process().children(recursive=True))


def kill_session(pid: int) -> None:
    """Kill a process that began a session, and all of that session."""
    if sys.platform == "win32":
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()
    else:
        kill_until_gone(lambda: of_session(pid))


def of_session(pid: int) -> set[psutil.Process]:
    """The processes of the session that a process began, which may have ended; on Windows, those that it started."""
    if sys.platform == "win32":
        with contextlib.suppress(psutil.Error):
            return set(psutil.Process(pid).children(recursive=True))
        return set()
    return _all_where(lambda process: os.getsid(process.pid) == pid)


def _all_where(is_one: Callable[[psutil.Process], bool]) -> set[psutil.Process]:
    found = set()
    for process in psutil.process_iter():
        # those of other users cannot be read, and are not ours
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and is_one(process):
                found.add(process)
    return found


def kill_until_gone(find: Callable[[], Iterable[psutil.Process]]) -> list[int]:
    """Kill what `find` finds, anew until it finds nothing: while one is killed, another may be born.

    Returns the numbers of those that would not go, which a driver keeps.
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
    """Says of a process that SIGKILL did not end in which state it is; empty where it has ended after all."""
    try:
        state = psutil.Process(pid).status()
    except psutil.Error:
        return ""
    if state == psutil.STATUS_ZOMBIE:
        return ""
    why = ": it waits within the kernel, as for a driver or a disk" if state == psutil.STATUS_DISK_SLEEP else ""
    return f"process {pid} is still there after SIGKILL, in state {state}{why}"


def end_killed(process: subprocess.Popen) -> None:
    """Wait for a child that was killed, but not for ever: a warning names one that does not go, which is then left."""
    try:
        process.wait(GONE_S)
    except subprocess.TimeoutExpired:
        if words := still_there(process.pid):
            warnings.warn(f"{words}; nobody waits for it any more", stacklevel=2)


def wait_until_gone(find: Callable[[], Iterable[psutil.Process]], timeout_s: float) -> None:
    """Wait for processes that end by themselves."""
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
