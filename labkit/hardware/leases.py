"""Core leases: no two runs of labkit on a host measure on the same logical CPU.

A lease is a locked file, one a CPU, in a folder that all users of the host share. The system drops the lock when the
process that holds it ends, however it ends. What that process starts may use its CPUs, too; it waits meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labkit.errors import UserError
from labkit.hardware.cpu import core_order

FOLDER_VARIABLE = "LABKIT_CORE_LEASES"
"""Names the folder of the locks, where it is not /tmp/labkit-cores"""
LEASED_VARIABLE = "LABKIT_LEASED_CORES"
"""Tells the processes that a holder starts who it is and which cores are theirs to use: "4242:0,1" """

_locks: dict[int, FileLock] = {}
"""By core that this process has taken; a forked process, such as one that loads data, finds them open"""


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
    """
    order = core_order()
    if not hasattr(os, "sched_setaffinity"):
        return order[:count]  # nothing could keep a process on a core
    assert count <= len(order), f"{count} of {len(order)} cores"
    usable = _lent() | _held()
    own = [cpu for cpu in order if cpu in usable][:count]
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
        time.sleep(0.5 * (1 + os.getpid() % 16 / 16))
    if _held():
        os.environ[LEASED_VARIABLE] = f"{os.getpid()}:{','.join(map(str, own))}"
    return own


def _lent() -> set[int]:
    """The cores of an ancestor that still holds them."""
    holder, _, cpus = os.environ.get(LEASED_VARIABLE, "").partition(":")
    if not holder.isdecimal() or int(holder) not in (parent.pid for parent in psutil.Process().parents()):
        return set()
    return {int(cpu) for cpu in cpus.split(",") if cpu.isdecimal()}


def _held() -> set[int]:
    return {cpu for cpu, lock in _locks.items() if lock.is_locked}


def own_cores() -> list[int]:
    """The cores that this process holds; where it holds none, those that it may use."""
    order, held = core_order(), _held()
    return [cpu for cpu in order if cpu in held] or order


@contextlib.contextmanager
def leased_cores(count: int, **how) -> Iterator[list[int]]:
    """Hold cores for a block, as `lease_cores` takes them; those that were held before stay so."""
    before, lent = _held(), os.environ.get(LEASED_VARIABLE)
    try:
        yield lease_cores(count, **how)
    finally:
        for cpu in _held() - before:
            _locks.pop(cpu).release()
        if lent is None:
            os.environ.pop(LEASED_VARIABLE, None)
        else:
            os.environ[LEASED_VARIABLE] = lent


def _take(cores: list[int], count: int) -> tuple[list[int], list[int]]:
    """Lock so many of the cores, or none; and those that others hold."""
    taken: dict[int, FileLock] = {}
    busy = []
    for cpu in cores:
        if len(taken) == count:
            break
        try:
            taken[cpu] = take(_name(cpu))
        except Timeout:
            busy.append(cpu)
    if len(taken) < count:  # holding some while waiting for more would let two wait for each other
        for lock in taken.values():
            lock.release()
        return [], busy
    _locks.update(taken)
    return list(taken), busy


def take(name: str) -> FileLock:
    """Lock what all users of the host share, until the lock is released or this process ends, however it ends.

    Raises:
        Timeout: another process holds it; `holder_of` says which.
        UserError: there can be no locks here.
    """
    path = _file(name)
    # for all users; where the file system has no locks, a file that outlives its holder would be none either
    lock = FileLock(path, mode=0o666, thread_local=False, fallback_to_soft=False, on_acquired=_sign)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise
    except OSError as error:
        raise _unusable(path, error) from error
    return lock


def holder_of(name: str) -> str:
    """Who took a lock last, in words."""
    with contextlib.suppress(OSError):
        if words := _file(name).read_text(encoding="utf-8"):
            return words
    return "a process that does not say which"


def _sign(lock: int) -> None:
    os.truncate(lock, 0)
    words = f"process {os.getpid()} of {psutil.Process().username()}, since {datetime.now():%H:%M}"
    os.write(lock, words.encode())


def _name(cpu: int) -> str:
    return f"cpu{cpu}"


def _file(name: str) -> Path:
    folder = Path(os.environ.get(FOLDER_VARIABLE, "/tmp/labkit-cores"))  # one for all users of the host
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
        if folder.is_symlink() or not folder.is_dir():  # which would lead to files of others
            raise NotADirectoryError("it is no folder")
    except OSError as error:
        raise _unusable(folder, error) from error
    return folder / name


def _unusable(path: Path, error: OSError) -> UserError:
    return UserError(
        f"{path}: the locks that keep runs of one host apart cannot be made there ({error}): name "
        f"a folder that all users of this host may write to with the variable {FOLDER_VARIABLE}."
    )


def _holders(cores: list[int]) -> str:
    held: dict[str, list[str]] = {}
    for cpu in cores:
        held.setdefault(holder_of(_name(cpu)), []).append(f"CPU {cpu}")
    return "; ".join(f"{', '.join(cpus)} ({words})" for words, cpus in held.items())
