"""Being a template, and what it forks: a process as `python -m module` would be, with a template of its own.

Run as a program, this is the template of the process that started it.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.process import template
from labkit.process.containment import JOB, MARK, PARENT, die_with

PRELOADED = (
    *("torch", "pyarrow.parquet", "labkit.fast.compiled_tables", "labkit.jobs.dlrm", "labkit.jobs.speech"),
    *("labkit.tracking.script", "labkit.telemetry.sources.ladder", "labkit.launch", "labkit.cli.run"),
)
"""What a template imports: what the worker of a run, its sampler and the command line import"""

_request: dict[str, Any] = {}
"""What this process was forked for; empty if it started cold"""
before_cold: list[Callable[[], None]] = []
"""Called before this process starts again cold"""


def is_warm() -> bool:
    """Whether this process was forked from a template."""
    return _request.get("pid") == os.getpid()


def starter_pid() -> int:
    """The process that asked for this one: its parent, where that is no template."""
    return _request["requester"] if is_warm() else os.getppid()


def preload() -> None:
    """Import what forked processes need."""
    for name in PRELOADED:
        with contextlib.suppress(Exception):  # what is not installed, or does not work, reports that where it is used
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        importlib.import_module("labkit.runs").spare_pandas()
    gc.collect()
    gc.freeze()  # pages that no collection touches stay shared


class Server:
    """Forks a process for each request, and reports how it ended."""

    def __init__(self, control: socket.socket, accept: Callable[[], socket.socket | None] | None = None):
        """`accept` takes a requester's connection from `control`; raises EOFError when there will be no more."""
        self._control, self._accept = control, accept or self._take
        self._pids: dict[int, tuple[int, socket.socket, bool]] = {}
        """Pid, connection, and whether it dies with its requester, of each process, by pidfd"""
        self._connections: dict[int, int] = {}
        """Pidfd by descriptor of the connection"""
        self._busy_at = time.monotonic()

    def _take(self) -> socket.socket:
        said, descriptors, *_ = socket.recv_fds(self._control, 1, 1)
        if not said:
            raise EOFError
        return socket.socket(fileno=descriptors[0])

    @property
    def idle_s(self) -> float:
        """Seconds since the last of its processes ended; 0 while one runs."""
        return 0.0 if self._pids else time.monotonic() - self._busy_at

    def serve(self, ends: Callable[[], bool] = lambda: False, poll_s: float | None = None) -> Callable[[], None]:
        """Serve until the owner is gone, or `ends`, asked every `poll_s`. Returns in a forked process: what it is."""
        while True:
            waiting = select.poll()
            for descriptor in (self._control.fileno(), *self._pids, *self._connections):
                if descriptor >= 0:
                    waiting.register(descriptor, select.POLLIN)
            for descriptor, _ in waiting.poll(None if poll_s is None else 1000 * poll_s):
                if descriptor == self._control.fileno():
                    try:
                        connection = self._accept()
                    except (EOFError, OSError):
                        os._exit(0)
                    if connection is not None and (become := self._fork(connection)) is not None:
                        return become
                elif descriptor in self._pids:
                    self._ended(descriptor)
                elif descriptor in self._connections:
                    self._hear(descriptor)
            if ends():
                os._exit(0)

    def _fork(self, connection: socket.socket) -> Callable[[], None] | None:
        streams: list[int] = []
        try:
            connection.settimeout(template.ANSWER_S)
            said, streams, *_ = socket.recv_fds(connection, 4, 3)
            with connection.makefile("rb") as file:
                request = json.loads(file.read(int.from_bytes(said)))
            parent, pid = os.getpid(), os.fork()
        except (OSError, ValueError):
            pid = -1
        if pid == 0:
            for each in (self._control, connection, *(own for _, own, _ in self._pids.values())):
                each.close()
            for descriptor in self._pids:
                os.close(descriptor)
            return lambda: _become(request, streams, parent)
        for stream in streams:
            os.close(stream)
        if pid < 0:
            connection.close()
            return None
        pidfd = os.pidfd_open(pid)
        self._pids[pidfd] = pid, connection, PARENT in request["environment"]
        self._connections[connection.fileno()] = pidfd
        with contextlib.suppress(OSError):
            socket.send_fds(connection, [pid.to_bytes(4)], [pidfd])
        return None

    def _ended(self, pidfd: int) -> None:
        pid, connection, _ = self._pids.pop(pidfd)
        self._busy_at = time.monotonic()
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._connections.pop(connection.fileno(), None)
        with contextlib.suppress(OSError):
            connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
        connection.close()

    def _hear(self, descriptor: int) -> None:
        """Pass on a requester's signals; where it is gone, kill what was to die with it."""
        pid, connection, dies = self._pids[self._connections[descriptor]]
        try:
            signals = connection.recv(16)
        except OSError:
            signals = b""
        if not signals:
            del self._connections[descriptor]
            signals = bytes([signal.SIGKILL] if dies else [])
        for number in signals:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)


def _become(request: dict[str, Any], streams: Sequence[int], parent: int) -> None:
    """Be the process of a request: what `python -m module arguments` would be."""
    global _request
    environment, module = request["environment"], request["module"]
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
    if environment.pop(PARENT, None):
        die_with(parent)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    _show_marks(environment)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    _request = request | {"pid": os.getpid()}
    sys.argv = [module, *request["arguments"]]
    if not sys.flags.safe_path:
        sys.path[0] = request["folder"] if request["path"] is None else request["path"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        # those of the template are for /dev/null, in which one can seek
        mode, before, buffering = "rww"[number], getattr(sys, name), 1 if number == 2 or os.isatty(number) else -1
        stream = os.fdopen(number, mode, buffering, before.encoding, before.errors, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    # their states would be the same in all forked processes; Python sees to its own
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    _fork_template()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _fork_template() -> None:
    """Make this process' own template, as long as it has done nothing."""
    ours, its = socket.socketpair()
    owner = os.getpid()
    if pid := os.fork():
        its.close()
        template.keep(template.Template(ours, pid))
        return
    ours.close()
    die_with(owner)
    with Path(os.devnull).open("r+b", buffering=0) as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    _ignore_signals()
    Server(its).serve()()
    sys.exit(0)


def _ignore_signals() -> None:
    """Leave it to the owner when to end, also where a signal goes to a whole group."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _show_marks(environment: Mapping[str, str]) -> None:
    """Write mark and job where the system shows a process' environment, which otherwise stays as at its start."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end, proc(5)
    place = ctypes.string_at(start, end - start).find(f"{template.ROOM}=".encode())
    if place >= 0:
        size = len(template.ROOM) + 1 + template.ROOM_BYTES
        marks = [f"{name}={environment[name]}" for name in (MARK, JOB) if name in environment]
        text = "\0".join([f"{template.ROOM}=", *marks, "_="]).encode()
        ctypes.memmove(start + place, text.ljust(size, b"-")[:size], size)


def go_cold() -> None:
    """Start this process again, cold, with the same pid, streams and environment; returns if it started cold."""
    if not is_warm():
        return
    for each in before_cold:
        each()
    os.environ[template.VARIABLE] = "0"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", _request["module"], *_request["arguments"]])


def main() -> None:
    die_with(int(os.environ.pop(PARENT)))
    _ignore_signals()
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    preload()
    control.sendall(b"!")
    server, idle_s = Server(control), float(sys.argv[2])
    server.serve(lambda: server.idle_s > idle_s, min(15.0, idle_s / 10))()


if __name__ == "__main__":
    # as the module that what it forks imports
    importlib.import_module("labkit.process.forking").main()
