"""A memory control group of our own (cgroup v2) around a process: the kernel's limit for it and its children.

Mapped files and shared memory count, too, for the group that touches them first. The kernel gives files back first and
then kills the whole group, without a word: the watch (`memory_watch`), which stays outside, has the words.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import psutil

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
    if group.name.startswith(PREFIX) and group.name != _own_name():
        raise NoGroup("this process is in the memory group of another budget, which binds it")
    # only a group without processes of its own, or the root of all, gives its controllers on
    parent = group if "memory" in _read(group / "cgroup.subtree_control").split() else group.parent
    if "memory" not in _read(parent / "cgroup.subtree_control").split():
        raise NoGroup("the control groups above this process do not give the memory controller on")
    if not (os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)):
        raise NoGroup(f"{parent} belongs to another user")
    return group, parent


def enter(memory_bytes: int, root: Path = Path("/")) -> Path:
    """Put this process into a group of its own with so much memory, or give the group that it has so much.

    Args:
        memory_bytes: of all processes in it together.
        root: the root of the file system, for tests.

    Returns:
        The group.

    Raises:
        NoGroup: it cannot be had.
    """
    group, parent = home(root)
    try:
        if group.name == _own_name():
            _write(group / "memory.max", memory_bytes)
            return group
        _take_away_left_behind(parent)
        own = parent / _own_name()
        own.mkdir()
        try:
            _write(own / "memory.max", memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                _write(own / "memory.swap.max", 0)
            _write(own / "memory.oom.group", 1)
            _write(own / "cgroup.procs", os.getpid())
        except OSError:
            _is_left(own)
            raise
    except OSError as error:
        raise NoGroup(f"{error.filename or parent}: {error.strerror}") from error
    os.environ[LEFT] = str(group)
    return own


def put_outside(pid: int) -> None:
    """Move a child of this process into the group that this one has left: an observer's memory is not the job's.

    Raises:
        OSError: the kernel refuses.
    """
    if group := os.environ.get(LEFT):
        _write(Path(group) / "cgroup.procs", pid)


def ended_by_limit(group: Path) -> bool:
    """Whether the kernel killed the processes of a group because of the group's own limit."""
    events = _read(group / "memory.events")
    # "oom" counts in the group whose limit was reached: a machine without memory is not the budget's doing
    return all(re.search(rf"^{event} [1-9]", events, re.MULTILINE) for event in ("oom", "oom_kill"))


def take_away(group: Path) -> None:
    """Remove a group whose processes have ended, or are about to."""
    end = time.monotonic() + GONE_S
    while _is_left(group) and time.monotonic() < end:
        time.sleep(0.05)


def _is_left(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return group.is_dir()


def _own_name() -> str:
    return f"{PREFIX}{os.getpid()}"


def _take_away_left_behind(parent: Path) -> None:
    """Groups whose guard was killed; one without processes may belong to a run that is just starting."""
    for group in parent.glob(f"{PREFIX}*"):
        pid = group.name.removeprefix(PREFIX)
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            _is_left(group)


def _write(path: Path, value: int) -> None:
    file = os.open(path, os.O_WRONLY)  # the kernel makes these files, not we
    try:
        os.write(file, str(value).encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(file)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
