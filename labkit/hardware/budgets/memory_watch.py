"""A watch beside a process: it reads what the process and its children hold, and ends them beyond their memory budget.

What is held is private and shared memory that was touched, and what of it was swapped out: neither address space that
a library reserved, nor mapped files (libraries, prepared data), which the kernel can give back. At the budget the
process gets a signal, which raises `MemoryError` in its main thread: it ends with a named error and writes its record.
Should it go on, or take much more before it hears the signal, it is killed with all its children, and the watch
records its end. A thread inside of the process could do neither while a call into C holds the interpreter.

The watch looks more often the nearer the budget comes, and cannot see what is taken and given back between two looks.
Run as a program, this is the watch.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

GROWTH = 20e9
"""Bytes a second that a process is taken to grow by at most. One core of an AMD EPYC (Zen 5) took 1.8e9 of fresh pages
from the kernel in a second, which has to clear them (23 November 2026)."""
LONGEST_S = 0.25
"""Between two looks, at most"""
MOST_OF_A_CORE = 0.05
"""That the watch takes: it rests for twenty times as long as its last look took"""
FAMILY_S = 0.5
"""So often children are looked for"""
ENDING_S, FREED_S = 30.0, 5.0
"""For a process that was told to end to write its record, and for the kernel to take away what was killed"""
SIGNAL = getattr(signal, "SIGRTMIN", 0) + 5
"""Says that the budget is used up; of Linux' free signals, because schedulers send SIGUSR1 and SIGUSR2"""


def hard_limit(memory_bytes: int) -> int:
    """What a process is killed at that may have so much: an eighth more, and room enough to write a record."""
    return memory_bytes + max(memory_bytes // 8, 2**27)


# in the process


_watches: list[subprocess.Popen] = []
"""That of this process, whose input must stay open as long as the process lives"""
_used_up: list[bool] = []


def start(memory_bytes: int, message: str, at_end: str | None = None, files: Sequence[int] = ()) -> None:
    """Watch this process from here on; once a process, in its main thread.

    Args:
        memory_bytes: that it and its children may hold.
        message: what is printed on standard error when they had to be killed.
        at_end: a function, as "module:name", that the watch calls with `message`, whether it had to kill them, and what
            `tell` told, when a process that used up its budget has ended.
        files: descriptors that stay open for that function.
    """
    assert not _watches, "one watch a process"
    what = json.dumps({"pid": os.getpid(), "limit": memory_bytes, "message": message, "at_end": at_end})
    command = [sys.executable, "-m", "labkit.hardware.budgets.memory_watch", what]
    signal.signal(SIGNAL, _end)
    watch = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, pass_fds=files
    )
    if watch.wait() != 0:
        raise RuntimeError("the watch of this process' memory did not start; what it said stands above")
    _watches.append(watch)


def tell(**facts: Any) -> None:
    """Name what the function of the end is to be called with; nothing where this process has no watch."""
    _order(facts=facts)


def leave_out(pid: int) -> None:
    """Do not count a child of this process: an observer's memory is not the job's."""
    _order(leave_out=pid)


def is_used_up() -> bool:
    """Whether this process was told so: what it then raises, a library may turn into another error."""
    return bool(_used_up)


def _end(*_: Any) -> None:
    _used_up.append(True)
    raise MemoryError("the budget of memory is used up")


def _order(**order: Any) -> None:
    if _watches:
        # at once and unbuffered: the signal may come meanwhile
        with contextlib.suppress(OSError):
            os.write(_watches[0].stdin.fileno(), json.dumps(order).encode() + b"\n")


# beside it


def held(pid: int) -> int | None:
    """Bytes that a process holds, pages that forked processes share among them; None where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    sizes = re.findall(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", status, re.MULTILINE)
    return 1024 * sum(map(int, sizes)) if sizes else None  # one that ended and waits for its parent has no sizes


def share(pid: int) -> int:
    """Bytes that a process holds, those that n processes share by an nth; dear, because the kernel visits each page."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return held(pid) or 0
    return 1024 * sum(map(int, re.findall(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", rollup, re.MULTILINE)))


class Watch:
    """The watch over one process, which it sees from outside; the arguments are those of `start`."""

    def __init__(self, orders: int, *, pid: int, limit: int, message: str, at_end: str | None):
        """Watch process `pid`; orders come from a file descriptor, as JSON lines."""
        self._process, self._orders, self._unread = psutil.Process(pid), orders, b""
        self._limit, self._message, self._at_end = limit, message, at_end
        self._family: list[psutil.Process] = []
        self._counted_at = -FAMILY_S
        self._left_out: set[int] = set()
        self._facts: dict[str, Any] = {}
        self._asked_at: float | None = None
        self._killed = self._is_closed = False

    def run(self) -> None:
        """Watch to the end of the process."""
        began = time.perf_counter()
        while (holds := self._look()) is not None:
            self._judge(holds)
            took = time.perf_counter() - began
            room = (self._limit if self._asked_at is None else hard_limit(self._limit)) - holds
            self._hear(min(LONGEST_S, max(room / GROWTH, took / MOST_OF_A_CORE)))
            began = time.perf_counter()
        self._close()

    def _look(self) -> int | None:
        """Bytes that all hold; None where the process has ended."""
        if time.monotonic() - self._counted_at >= FAMILY_S:
            self._find_family()
        own = held(self._process.pid)
        if own is None or not self._family:
            return own
        pids = [self._process.pid, *(child.pid for child in self._family)]
        together = sum(held(pid) or 0 for pid in pids)
        # forked processes share pages, which that counts more than once
        return sum(map(share, pids)) if together >= self._limit else together

    def _find_family(self) -> None:
        self._counted_at = time.monotonic()
        with contextlib.suppress(psutil.Error):
            children = self._process.children(recursive=True)
            self._family = [child for child in children if child.pid not in self._left_out]

    def _judge(self, holds: int) -> None:
        if self._killed:
            return
        is_overdue = self._asked_at is not None and time.monotonic() - self._asked_at > ENDING_S
        if holds < self._limit:
            if is_overdue:
                self._asked_at = None  # it made itself smaller, and has gone on
        elif self._asked_at is None and holds < hard_limit(self._limit):
            self._asked_at = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, SIGNAL)
        elif holds >= hard_limit(self._limit) or is_overdue:
            self._kill()

    def _kill(self) -> None:
        self._killed = True
        with contextlib.suppress(psutil.Error):
            self._process.suspend()  # once it is gone, its children cannot be found
            self._find_family()
        for process in [self._process, *self._family]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _hear(self, timeout_s: float) -> None:
        if self._is_closed:  # the process is ending, or has become another program
            time.sleep(min(timeout_s, 0.02))
        elif select.select([self._orders], [], [], timeout_s)[0]:
            chunk = os.read(self._orders, 2**16)
            self._is_closed = not chunk
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for order in map(json.loads, lines):
                self._facts |= order.get("facts", {})
                if "leave_out" in order:
                    self._left_out.add(order["leave_out"])
                    self._counted_at = -FAMILY_S

    def _close(self) -> None:
        while not self._is_closed and select.select([self._orders], [], [], 0)[0]:
            self._hear(0)
        if not self._killed and self._asked_at is None:
            return
        had_to_kill = self._killed
        self._kill()  # children that are left
        self._wait_until_gone()
        if self._at_end is not None:  # one that heard the signal may yet have died while it wrote its record
            pkgutil.resolve_name(self._at_end)(self._message, killed=had_to_kill, **self._facts)
        if had_to_kill:
            with contextlib.suppress(OSError):  # whoever read standard error may be gone, too
                print(self._message, file=sys.stderr, flush=True)

    def _wait_until_gone(self) -> None:
        """Wait for processes that may hold nothing any more: a record is theirs as long as they are there."""
        until = time.monotonic() + FREED_S
        for process in [self._process, *self._family]:
            with contextlib.suppress(psutil.Error):
                while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
                    time.sleep(0.01)


if __name__ == "__main__":
    watch = Watch(sys.stdin.fileno(), **json.loads(sys.argv[1]))
    if os.fork():  # the watch is nobody's child: neither it nor a sampler takes it for a part of the job
        os._exit(0)
    with contextlib.suppress(OSError):  # those of the run are its own
        os.sched_setaffinity(0, range(os.cpu_count()))
    watch.run()
