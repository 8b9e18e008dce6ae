"""Core leases: no two labkit runs on a host measure on the same logical CPU.

A lease is a locked file per CPU, in a folder that all users of the host share. The system drops the lock when the
process that holds it ends for any reason. Its child processes may use its CPUs too, while it waits for them.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Generator
from datetime import datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labkit import UserError
from labkit.hardware.cpu import core_order

FOLDER_VARIABLE = "LABKIT_CORE_LEASES"
"""Environment variable with the folder of the locks; the default is /tmp/labkit-cores."""
LEASED_VARIABLE = "LABKIT_LEASED_CORES"
"""Environment variable for child processes: the holder's pid and the cores they may use, as "4242:0,1"."""

_locks: dict[int, FileLock] = {}
"""Locks of this process, by core. A forked process, such as a data loader's worker, inherits them open."""


def lease_cores(
    count: int,
    *,
    waits: bool = True,
    say: Callable[[str], None] = lambda words: print(words, file=sys.stderr),
    stopped: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Take cores that no other labkit process on this host holds, until this process ends or releases them.

    Cores that this process already holds count, as do those of the process that started it and waits for it.

    Args:
        count: cores to take, at most those that this process may use.
        waits: whether to wait until that many are free.
        say: called with who holds the missing cores, at the start of the wait and whenever the holders change.
        stopped: called during the wait; True ends it.

    Returns:
        Logical CPUs: first one per physical core.

    Raises:
        UserError: too few are free, and `waits` is False.
        KeyboardInterrupt: `stopped` ended the wait.
    """
    order = core_order()
    if not hasattr(os, "sched_setaffinity"):
        return order[:count]  # this system cannot bind a process to a core
    assert count <= len(order), f"{count} of {len(order)} cores"
    usable = _lent() | _held()
    own = [cpu for cpu in order if cpu in usable][:count]
    reported = ""
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
            raise UserError(f"{holders} Wait until they end, or ask for fewer cores.")
        if holders != reported:
            say(f"{holders} Waiting for them: Ctrl-C gives up; --no-wait fails at once instead.")
            reported = holders
        # pauses differ between processes, or two that want all cores could collide every time
        time.sleep(0.5 * (1 + os.getpid() % 16 / 16))
    if _held():
        os.environ[LEASED_VARIABLE] = f"{os.getpid()}:{','.join(map(str, own))}"
    return own


def _lent() -> set[int]:
    """Cores of an ancestor that still runs."""
    holder, _, cpus = os.environ.get(LEASED_VARIABLE, "").partition(":")
    if not holder.isdecimal() or int(holder) not in (parent.pid for parent in psutil.Process().parents()):
        return set()
    return {int(cpu) for cpu in cpus.split(",") if cpu.isdecimal()}


def _held() -> set[int]:
    return {cpu for cpu, lock in _locks.items() if lock.is_locked}


def own_cores() -> list[int]:
    """The cores that this process holds; if it holds none, those that it may use."""
    order, held = core_order(), _held()
    return [cpu for cpu in order if cpu in held] or order


@contextlib.contextmanager
def leased_cores(count: int, **how) -> Generator[list[int]]:
    """Hold cores during a block, with the arguments of `lease_cores`; cores held before stay held after it."""
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
    """Lock `count` of the cores, or none. Returns those that were locked, and those that others hold."""
    taken: dict[int, FileLock] = {}
    busy = []
    for cpu in cores:
        if len(taken) == count:
            break
        try:
            taken[cpu] = take(f"cpu{cpu}")
        except Timeout:
            busy.append(cpu)
    if len(taken) < count:  # holding some while waiting for more could let two processes wait for each other
        for lock in taken.values():
            lock.release()
        return [], busy
    _locks.update(taken)
    return list(taken), busy


def take(name: str) -> FileLock:
    """Take a lock that all users of the host share, until it is released or this process ends for any reason.

    Raises:
        Timeout: another process holds it; `holder_of` says which.
        UserError: locks cannot be made here.
    """
    try:
        # no soft lock where the file system has none: a marker file would outlive a killed holder
        lock = FileLock(_file(name), mode=0o666, thread_local=False, fallback_to_soft=False, on_acquired=_sign)
        lock.acquire(blocking=False)
    except Timeout:
        raise
    except OSError as error:
        raise UserError(
            f"{_folder()}: labkit cannot make its core locks there ({error}). Set the variable {FOLDER_VARIABLE} to a "
            "folder that all users of this host may write to."
        ) from error
    return lock


def holder_of(name: str) -> str:
    """The process that took a lock last, as text."""
    with contextlib.suppress(OSError):
        if holder := _file(name).read_text(encoding="utf-8"):
            return holder
    return "an unknown process"


def _sign(lock: int) -> None:
    os.truncate(lock, 0)
    holder = f"process {os.getpid()} of {psutil.Process().username()}, since {datetime.now():%H:%M}"
    os.write(lock, holder.encode())


def _folder() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE, "/tmp/labkit-cores"))  # one for all users of the host


def _file(name: str) -> Path:
    folder = _folder()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    if folder.is_symlink() or not folder.is_dir():  # a link could lead to other users' files
        raise NotADirectoryError("it is not a folder")
    return folder / name


def _holders(cores: list[int]) -> str:
    held: dict[str, list[str]] = {}
    for cpu in cores:
        held.setdefault(holder_of(f"cpu{cpu}"), []).append(f"CPU {cpu}")
    return "; ".join(f"{', '.join(cpus)} ({holder})" for holder, cpus in held.items())
