"""A process that watches another: it reads how much memory that one and its children hold, and ends them above a limit.

Memory counts if it is private or shared and was touched, including what was swapped out. Address space that a library
only reserved does not count, nor do mapped files (libraries, prepared data), which the kernel can reclaim.

At the limit the process gets a signal, which raises `MemoryError` in its main thread, so it ends with a named error and
writes its record. If it goes on, or takes much more before it handles the signal, the watch kills it with all its
children and records its end. A thread inside the process could do neither while a call into C holds the interpreter.

The watch looks more often as the limit comes closer. It cannot see memory that is taken and returned between two looks.
Run as a program, this is the watch. What a run says when its memory ends is here, too.
"""

import contextlib
import errno
import json
import os
import pkgutil
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from labkit import UserError, errors
from labkit.hardware.cpu import size_text

if TYPE_CHECKING:
    from labkit.hardware.budgets import Budget
    from labkit.hardware.devices import Device

GROWTH = 20e9
"""Bytes per second that a process is assumed to grow by at most. One core of an AMD EPYC (Zen 5) got 1.8e9 per second
of fresh pages from the kernel, which has to clear them (23 November 2026)."""
LONGEST_S = 0.25
"""Longest time between two looks, in seconds."""
MOST_OF_A_CORE = 0.05
"""Largest share of a core that the watch uses: it rests twenty times as long as its last look took."""
FAMILY_S = 0.5
"""Seconds between two searches for child processes."""
ENDING_S, FREED_S = 30.0, 5.0
"""Seconds for a process to write its record after the signal, and for the kernel to remove a killed process."""
SIGNAL = getattr(signal, "SIGRTMIN", 0) + 5
"""Signal that the budget is used up: one of Linux' free ones, because schedulers send SIGUSR1 and SIGUSR2."""


def hard_limit(memory_bytes: int) -> int:
    """Bytes at which a process with that budget is killed: an eighth more, with room to write its record."""
    return memory_bytes + max(memory_bytes // 8, 2**27)


# in the process


_watches: list[subprocess.Popen] = []
"""The watch of this process; its input must stay open as long as the process lives."""
_used_up: list[bool] = []
"""Not empty once this process got the signal; a library may turn the `MemoryError` into another error."""
SMALLER = "make it smaller: reduce its batch (--batch-size in labkit's jobs) or its model (--preset)"
"""What to do about a run that needs too much memory, if its script has no stages"""
_doing, _smaller = "", SMALLER
"""What this process does at present, and how its user makes that smaller, for the message if memory runs out"""


def start(budget: "Budget", at_end: str | None = None, outlet: int | None = None) -> None:
    """Watch this process from here on. Call it once per process, in its main thread.

    Args:
        budget: it limits the memory of the process and its children together.
        at_end: a function, as "module:name", that the watch calls after the end of a process that used up its budget.
            Its arguments are a message, whether the process had to be killed, and the facts of `note`.
        outlet: file descriptor that stays open for that function, whose argument `events` it is.
    """
    assert not _watches, "one watch per process"
    facts = {} if outlet is None else {"events": outlet}
    limit = {"pid": os.getpid(), "limit": budget.memory_bytes, "message": f"{too_much(budget)}."}
    what = json.dumps({**limit, "at_end": at_end, "facts": facts})
    command = [sys.executable, "-m", "labkit.hardware.memory_watch", what]
    signal.signal(SIGNAL, _end)
    how: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "start_new_session": True}
    with errors.refusals():
        watch = subprocess.Popen(command, pass_fds=[*facts.values()], **how)
    if watch.wait() != 0:
        raise RuntimeError("the memory watch of this process did not start; its output is above")
    _watches.append(watch)


def note(**facts: Any) -> None:
    """Add arguments for the function `at_end`; does nothing if this process has no watch."""
    _order(facts=facts)


def leave_out(pid: int) -> None:
    """Do not count a child of this process, such as an observer, whose memory is not the job's."""
    _order(leave_out=pid)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error from Python, NumPy, Arrow or torch means that memory ran out."""
    if isinstance(error, MemoryError) or (_used_up and isinstance(error, Exception)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # the last is oneDNN's, which also needs memory for kernels and buffers
    signs = "can('|no)t allocate memory|bad_alloc|out of memory|could not create a (primitive|memory)$"
    if _watches:  # without a limit of memory, the system allows no more
        signs += "|can't start new thread"
    return isinstance(error, RuntimeError) and re.search(signs, str(error).lower()) is not None


def _end(*_: Any) -> None:
    _used_up.append(True)
    raise MemoryError("the budget of memory is used up")


def _order(**order: Any) -> None:
    if _watches:
        pipe = _watches[0].stdin
        assert pipe is not None
        # in one unbuffered write, because the signal may arrive at any time
        with contextlib.suppress(OSError):
            os.write(pipe.fileno(), json.dumps(order).encode() + b"\n")


def now_in(budget: "Budget | None", doing: str = "", smaller: str = SMALLER) -> None:
    """Note what this process does from now on, here and in the watch over its memory.

    `doing` is for example " in its stage 'load' at scale 4"; by default the script does not say it.
    """
    global _doing, _smaller
    _doing, _smaller = doing, smaller
    if budget is not None and budget.memory_bytes is not None:
        _order(message=f"{too_much(budget)}, or {smaller}." if doing else f"{too_much(budget)}.")


def memory_error(budget: "Budget", device: "Device", error: BaseException) -> UserError:
    """Return the error of a run that needs more memory than its budget, its GPU or the machine has."""
    if type(error).__name__ == "OutOfMemoryError":  # torch's, for a GPU
        if budget.gpu_memory_bytes is not None:
            return UserError(
                f"The run needs more GPU memory than its budget {budget.name!r} allows "
                f"({size_text(budget.gpu_memory_bytes)}), so it was stopped: {_smaller}, or give it a larger budget."
            )
        has = f" ({size_text(device.memory_bytes)})" if device.memory_bytes else ""
        return UserError(f"The run needs more memory than {device.name} has{has}, so it was stopped: {_smaller}.")
    if budget.memory_bytes is not None:
        return UserError(f"{too_much(budget)}, or {_smaller}.")
    said = f" ({error})" if str(error) else ""
    return UserError(f"This machine ran out of memory{_doing}{said}: close other programs, or {_smaller}.")


def too_much(budget: "Budget") -> str:
    """Reason why its memory budget stopped a run: a sentence without its full stop."""
    most = errors.certain(budget.memory_bytes)
    return (
        f"The run needs more memory{_doing} than its budget {budget.name!r} allows ({size_text(most)}), so it "
        f"was stopped and nothing else on this machine was touched. Give it more (for example "
        f"{budget.with_memory(2 * most)})"
    )


# in the watch


def held(pid: int) -> int | None:
    """Bytes that a process holds, including pages that forked processes share; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    sizes = re.findall(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", status, re.MULTILINE)
    return 1024 * sum(map(int, sizes)) if sizes else None  # a zombie has no sizes


def share(pid: int) -> int:
    """Bytes that a process holds, with a page shared by n processes counted as 1/n.

    This is slow, because the kernel visits each page.
    """
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return held(pid) or 0
    return 1024 * sum(map(int, re.findall(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", rollup, re.MULTILINE)))


class Watch:
    """The watch over one process, seen from outside."""

    def __init__(self, orders: int, *, pid: int, limit: int, message: str, at_end: str | None, facts: dict):
        """Watch process `pid`, with `limit` in bytes; `message` is printed on standard error if it had to be killed.

        Orders come through a file descriptor, as JSON lines. `at_end` is that of `start`, and `facts` its arguments.
        """
        self._process, self._orders, self._unread = psutil.Process(pid), orders, b""
        self._limit, self._message, self._at_end, self._facts = limit, message, at_end, facts
        self._family: list[psutil.Process] = []
        self._counted_at = -FAMILY_S
        self._left_out: set[int] = set()
        self._asked_at: float | None = None
        self._killed = self._is_closed = False

    def run(self) -> None:
        """Watch until the process ends."""
        began = time.perf_counter()
        while (holds := self._look()) is not None:
            self._judge(holds)
            took = time.perf_counter() - began
            room = (self._limit if self._asked_at is None else hard_limit(self._limit)) - holds
            self._hear(min(LONGEST_S, max(room / GROWTH, took / MOST_OF_A_CORE)))
            began = time.perf_counter()
        self._close()

    def _look(self) -> int | None:
        """Bytes that the process and its children hold; None if it has ended."""
        if time.monotonic() - self._counted_at >= FAMILY_S:
            self._find_family()
        own = held(self._process.pid)
        if own is None or not self._family:
            return own
        pids = [self._process.pid, *(child.pid for child in self._family)]
        together = sum(held(pid) or 0 for pid in pids)
        # that sum counts pages shared by forked processes more than once: before acting on it, count exactly
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
                self._asked_at = None  # it freed memory, and goes on
        elif self._asked_at is None and holds < hard_limit(self._limit):
            self._asked_at = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, SIGNAL)
        elif holds >= hard_limit(self._limit) or is_overdue:
            self._kill()

    def _kill(self) -> None:
        self._killed = True
        with contextlib.suppress(psutil.Error):
            self._process.suspend()  # its children could not be found after its end
            self._find_family()
        for process in [self._process, *self._family]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _hear(self, timeout_s: float) -> None:
        if self._is_closed:  # the process is ending, or replaced itself by another program
            time.sleep(min(timeout_s, 0.02))
        elif select.select([self._orders], [], [], timeout_s)[0]:
            chunk = os.read(self._orders, 2**16)
            self._is_closed = not chunk
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for order in map(json.loads, lines):
                self._facts |= order.get("facts", {})
                self._message = order.get("message", self._message)
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
        if self._at_end is not None:  # also if it was only signalled: it may have died while it wrote its record
            pkgutil.resolve_name(self._at_end)(self._message, killed=had_to_kill, **self._facts)
        if had_to_kill:
            with contextlib.suppress(OSError):  # the reader of standard error may be gone
                print(self._message, file=sys.stderr, flush=True)

    def _wait_until_gone(self) -> None:
        """Wait until the killed processes are gone: as long as they exist, the run's record is theirs."""
        until = time.monotonic() + FREED_S
        for process in [self._process, *self._family]:
            with contextlib.suppress(psutil.Error):
                while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
                    time.sleep(0.01)


if __name__ == "__main__":
    watch = Watch(sys.stdin.fileno(), **json.loads(sys.argv[1]))
    if os.fork():  # the child has no parent in the job, so neither this watch nor a sampler counts it
        os._exit(0)
    with contextlib.suppress(OSError):  # leave the run's cores to the run
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    watch.run()
