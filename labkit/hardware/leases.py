"""Core leases: no two runs of labkit on a host measure on the same logical CPU.

A lease is a locked file, one a CPU, in a folder that all users of the host share. The system drops the lock when the
process that holds it ends, however it ends. What that process starts may use its CPUs, too; it waits meanwhile.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import psutil

from labkit.errors import UserError
from labkit.hardware.cpu import core_order

try:
    import fcntl
except ImportError:  # Windows, which has no CPU affinity for us either
    fcntl = None

FOLDER_VARIABLE = "LABKIT_CORE_LEASES"
"""Names the folder of the locks, where it is not /tmp/labkit-cores"""
LEASED_VARIABLE = "LABKIT_LEASED_CORES"
"""Tells the processes that a holder starts who it is and which cores are theirs to use: "4242:0,1" """
LOOK_EVERY_S = 0.5

_held: dict[int, int] = {}
"""The file descriptor of the lock of each core that this process holds"""


class CoresHeld(UserError):
    """Other processes of labkit hold the cores that a budget needs."""


def lease_cores(
    count: int,
    *,
    waits: bool = True,
    say: Callable[[str], None] = lambda words: None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Take cores that no other process of labkit on this host holds, until this process ends or releases them.

    Cores that this process holds already count, and cores of the process that started it, which waits meanwhile.

    Args:
        count: cores to take, at most those that this process may use.
        waits: whether to wait until so many are free.
        say: told who holds the others where it waits, and again when others do.
        stopped: asked while it waits.

    Returns:
        Logical CPUs, one of every physical core first.

    Raises:
        CoresHeld: too few are free, and it does not wait.
        KeyboardInterrupt: it was stopped while it waited.
        UserError: the folder of the locks cannot be used.
    """
    order = core_order()
    if fcntl is None or not hasattr(os, "sched_setaffinity"):
        return order[:count]  # nothing could keep a process on a core
    assert count <= len(order), f"{count} of {len(order)} cores"
    lent = _lent()
    own = [cpu for cpu in order if cpu in lent or cpu in _held][:count]
    told = ""
    while len(own) < count:
        missing = count - len(own)
        taken, busy = _take([cpu for cpu in order if cpu not in own], missing)
        own = sorted(own + taken, key=order.index)
        if taken:
            break
        holders = f"This needs {missing} more CPU core{'s' * (missing > 1)}, and other runs hold {_holders(busy)}."
        if stopped():
            raise KeyboardInterrupt
        if not waits:
            raise CoresHeld(f"{holders} Wait until they are done, or ask for fewer cores.")
        if holders != told:
            say(f"{holders} Waiting for them; Ctrl-C gives up, --no-wait would refuse.")
            told = holders
        # not all at the same moments, or two that want all cores could always meet
        time.sleep(LOOK_EVERY_S * (1 + os.getpid() % 16 / 16))
    if _held:
        os.environ[LEASED_VARIABLE] = f"{os.getpid()}:{','.join(map(str, own))}"
    return own


def _lent() -> set[int]:
    """The cores of an ancestor that still holds them."""
    holder, _, cpus = os.environ.get(LEASED_VARIABLE, "").partition(":")
    if not holder.isdecimal() or int(holder) not in (parent.pid for parent in psutil.Process().parents()):
        return set()
    return {int(cpu) for cpu in cpus.split(",") if cpu.isdecimal()}


def _forget_in_child() -> None:
    """A forked process, such as one that loads data, holds nothing: the lock is its parent's, and goes with that."""
    for lock in _held.values():
        os.close(lock)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def own_cores() -> list[int]:
    """The cores that this process holds; where it holds none, those that it may use."""
    order = core_order()
    return [cpu for cpu in order if cpu in _held] or order


@contextlib.contextmanager
def leased_cores(count: int, **how) -> Iterator[list[int]]:
    """Hold cores for a block, as `lease_cores` takes them; those that were held before stay so."""
    before, lent = set(_held), os.environ.get(LEASED_VARIABLE)
    try:
        yield lease_cores(count, **how)
    finally:
        for cpu in set(_held) - before:
            os.close(_held.pop(cpu))
        if lent is None:
            os.environ.pop(LEASED_VARIABLE, None)
        else:
            os.environ[LEASED_VARIABLE] = lent


def _take(cores: list[int], count: int) -> tuple[list[int], list[int]]:
    """Lock so many of the cores, or none; and those that others hold."""
    locked: dict[int, int] = {}
    busy = []
    for cpu in cores:
        if len(locked) == count:
            break
        if (lock := _lock(_file(cpu))) is not None:
            locked[cpu] = lock
        else:
            busy.append(cpu)
    if len(locked) == count:
        _held.update(locked)
        return list(locked), busy
    for lock in locked.values():  # holding some while waiting for more would let two wait for each other
        os.close(lock)
    return [], busy


def _file(cpu: int) -> Path:
    folder = Path(os.environ.get(FOLDER_VARIABLE, "/tmp/labkit-cores"))  # one for all users of the host
    with _told(folder):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
        if folder.is_symlink() or not folder.is_dir():  # which would lead to files of others
            raise NotADirectoryError("it is no folder")
    return folder / f"cpu{cpu}"


def _lock(path: Path) -> int | None:
    """The descriptor of a file that is now locked; None where another process has it."""
    with _told(path):
        descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise BlockingIOError  # the file was swept away meanwhile, and its lock is nobody's
    except BlockingIOError:
        os.close(descriptor)
        return None
    with contextlib.suppress(OSError, KeyError):  # a lock that says nothing is a lock; a user may have no name
        holder = {"pid": os.getpid(), "user": getpass.getuser(), "since": datetime.now().strftime("%H:%M")}
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    return descriptor


def _open(path: Path) -> int:
    # in a folder that all may write to, some systems refuse to create what another user's file is
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except PermissionError:  # one that another user has made for itself
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            created = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            os.fchmod(created, 0o666)
            return created
        return _open(path)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path}: the locks that keep runs of one host on cores of their own cannot be made there ({error}): name "
            f"a folder that all users of this host may write to with the variable {FOLDER_VARIABLE}."
        ) from error


def _holders(cores: list[int]) -> str:
    """Who has the locks of cores, in words."""
    held: dict[str, list[str]] = {}
    for cpu in cores:
        try:
            holder = json.loads(_file(cpu).read_text(encoding="utf-8"))
            words = f"process {holder['pid']} of {holder['user']}, since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            words = "a process that does not say which"
        held.setdefault(words, []).append(f"CPU {cpu}")
    return "; ".join(f"{', '.join(cpus)} ({words})" for words, cpus in held.items())
