"""A memory control group of our own (cgroup v2) around a process: what it and its children hold, mapped files included.

The kernel gives files back first and then kills the whole group, without a word. Run as a program, this is the guard
that has the words: it stays outside, says what happened when the process has ended, and takes the group away.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

PREFIX = "labkit-"
LEFT = "LABKIT_GROUP_LEFT"
"""Names to children the group in which they would be without the budget."""
MOUNTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
GONE_S = 5.0
"""For the kernel to take away what it killed."""


class NoGroup(Exception):
    """No memory group can be had, and why."""


def home(root: Path = Path("/")) -> tuple[Path, Path]:
    """The group this process is in, and the one in which a group for it can be made.

    Args:
        root: the root of the file system, for tests.

    Raises:
        NoGroup: there is none.
    """
    listed = _read(root / "proc/self/cgroup")
    own = re.search(r"^0::(/.*)$", listed, re.MULTILINE)
    mount = next((root / mount for mount in MOUNTS if (root / mount / "cgroup.controllers").is_file()), None)
    if own is None or mount is None:
        raise NoGroup("this system has no control groups of version 2")
    if "memory" not in _read(mount / "cgroup.controllers").split():
        raise NoGroup("the memory controller is not one of cgroup v2 here")
    group = mount / own[1].strip("/")
    if not group.is_dir():
        raise NoGroup("a container hides the control group of this process")
    # only a group without processes of its own, or the root of all, gives its controllers on
    parent = group if "memory" in _read(group / "cgroup.subtree_control").split() else group.parent
    if "memory" not in _read(parent / "cgroup.subtree_control").split():
        raise NoGroup("the control groups above this process do not give the memory controller on")
    if not (os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)):
        raise NoGroup(f"{parent} belongs to another user")
    return group, parent


def confine(memory_bytes: int, farewell: str, root: Path = Path("/")) -> None:
    """Put this process into a group of its own with so much memory, or give the group that it has so much.

    Args:
        memory_bytes: of all processes in it together.
        farewell: what is printed on standard error when the kernel has killed the group.
        root: the root of the file system, for tests.

    Raises:
        NoGroup: it cannot be had.
    """
    group, parent = home(root)
    try:
        if group.name == f"{PREFIX}{os.getpid()}":
            _write(group / "memory.max", memory_bytes)
            return
        _take_away_empty(parent)
        own = parent / f"{PREFIX}{os.getpid()}"
        own.mkdir()
        # its input ends with this process, and its output later than that of this process: who reads hears the farewell
        command = [sys.executable, "-m", "labkit.hardware.memory_group", str(own), farewell]
        guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        try:
            _write(own / "memory.max", memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                _write(own / "memory.swap.max", 0)
            _write(own / "memory.oom.group", 1)
            _write(own / "cgroup.procs", os.getpid())
        except OSError:
            guard.communicate()  # which takes the group away
            raise
        _guards.append(guard)
    except OSError as error:
        raise NoGroup(f"{error.filename or parent}: {error.strerror}") from error
    os.environ[LEFT] = str(group)


def leave() -> None:
    """Return to the group that the budget's process was in: an observer's memory is not the job's."""
    if group := os.environ.get(LEFT):
        with contextlib.suppress(OSError):
            _write(Path(group) / "cgroup.procs", os.getpid())


def guard(group: Path, farewell: str) -> None:
    """Wait until the process in the group has ended, say so if the kernel did it, and take the group away."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    if re.search(r"^oom_kill [1-9]", _read(group / "memory.events"), re.MULTILINE):
        print(farewell, file=sys.stderr, flush=True)
    end = time.monotonic() + GONE_S
    while _is_left(group) and time.monotonic() < end:
        time.sleep(0.05)


_guards: list[subprocess.Popen] = []
"""Their input must stay open as long as this process lives."""


def _is_left(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return group.is_dir()


def _take_away_empty(parent: Path) -> None:
    """Groups whose guard was killed."""
    for group in parent.glob(f"{PREFIX}*"):
        if not _read(group / "cgroup.procs"):
            _is_left(group)


def _write(path: Path, value: int) -> None:
    with path.open("r+") as file:  # the kernel makes these files, not we
        file.write(str(value))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    guard(Path(sys.argv[1]), sys.argv[2])
