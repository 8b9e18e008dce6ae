"""Warm starts: processes forked from a template, a process that has imported what they need and does nothing else.

A template is a child of its owner and dies with it. What it forks becomes what `python -m module` would be: a session
of its own, the given streams, and the folder and environment that its requester has now. Each forked process has a
template in turn, a fork of itself made before it did anything, from which its sampler starts.

Before the fork there is no thread that computes, no CUDA and no seed. What a library reads only while it is loaded
must be equal (`LIBRARIES`), or the process starts cold. `multiprocessing`'s fork server would not do: its children have
neither our streams nor the requester's environment, and outlive a requester that is killed.
"""

import contextlib
import hashlib
import importlib.util
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.process.containment import PARENT

VARIABLE = "LABKIT_WARM"
"""Environment variable: 0 starts every process cold, 1 also starts scripts of the reader's warm"""
LIBRARIES = (
    "ARROW_", "ATEN_", "BLIS_", "DNNL_", "GLIBC_", "GOMP_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "NUMBA_",
    "NUMEXPR_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH", "VECLIB_",
)  # fmt: skip
"""Prefixes of variables that libraries read while they are loaded"""
SETTABLE = ("_NUM_THREADS", "_MAXIMUM_THREADS", "MALLOC_CONF")
"""Ends of those that can still be set after the fork (`hardware.set_threads`)"""
READY_S, ANSWER_S = 60.0, 2.0
"""Longest waits for a template to import, and for the answer to a request"""
ROOM = "LABKIT_ROOM"
"""Variable whose place in a process' environment, as the system shows it, is for the mark and the job"""
ROOM_BYTES = 400
PACKAGE = Path(__file__).parents[1]

_own: "Template | None" = None


def is_possible() -> bool:
    """Whether this system can start processes warm, and the user has not turned it off."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and os.environ.get(VARIABLE) != "0"


def own_template() -> "Template | None":
    """The template of this process, if it has one."""
    return _own if _own is not None and _own.owner == os.getpid() and not _own.is_over and is_possible() else None


def keep(own: "Template") -> "Template":
    """Make this the template of this process."""
    global _own
    _own = own
    return own


def identity() -> str:
    """A digest of all that must be equal for a forked process to be like one that started cold."""
    import resource  # which Windows does not have

    torch = importlib.util.find_spec("torch")
    origin = Path(torch.origin) if torch and torch.origin else None
    sources = [*sorted(PACKAGE.rglob("*.py")), *([origin, origin.parents[1]] if origin else [])]
    limits = [resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if name[:7] == "RLIMIT_"]
    places = [str(path.readlink()) for path in sorted(Path("/proc/self/ns").iterdir())]
    facts = [
        [(str(path), path.stat().st_mtime_ns) for path in sources if path.exists()],
        [sys.executable, sys.version, sys.flags],
        [sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0), limits, os.getgroups()],
        [places, Path("/proc/self/cgroup").read_text()],
        sorted(library_variables(os.environ).items()),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def library_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a process could differ from its template in what libraries have read."""
    return {
        name: value for name, value in environment.items() if name.startswith(LIBRARIES) and not name.endswith(SETTABLE)
    }


class ForkedProcess:
    """A process that a template forked for this one; like `subprocess.Popen`."""

    def __init__(self, pid: int, pidfd: int, connection: socket.socket):
        self.pid = pid
        self.stdin: Any = None
        self.stdout: Any = None
        self.returncode: int | None = None
        self._pidfd, self._connection, self._lock = pidfd, connection, threading.Lock()

    def poll(self) -> int | None:
        return self._await(0)

    def wait(self, timeout: float | None = None) -> int:
        if (status := self._await(timeout)) is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return status

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _await(self, timeout: float | None) -> int | None:
        if self.returncode is None and readable(self._pidfd, timeout):
            with self._lock:
                if self.returncode is None:
                    self._connection.settimeout(ANSWER_S)
                    said = b""
                    with contextlib.suppress(OSError):
                        said = self._connection.recv(4)
                    # a template that was killed says nothing, and what it forked was killed with it
                    self.returncode = int.from_bytes(said, signed=True) if said else -signal.SIGKILL
                    self._connection.close()
        return self.returncode

    def __del__(self):
        os.close(self._pidfd)


def readable(descriptor: int, timeout: float | None) -> bool:
    """Whether there is something to read, or the end, within `timeout` seconds; None waits without end."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(None if timeout is None else 1000 * timeout))


class Template:
    """A template that this process owns."""

    def __init__(
        self, control: socket.socket, pid: int, process: "subprocess.Popen | None" = None, identity: str | None = None
    ):
        """`process` is one that was started for this process, when `identity` was so; it still has to import."""
        self._control, self.pid, self._process, self.identity = control, pid, process, identity
        self.owner = os.getpid()
        self.variables = library_variables(os.environ)
        self._lock, self._is_ready = threading.Lock(), process is None

    def fork(self, streams: Sequence[int], **request: Any) -> ForkedProcess | None:
        """Fork a process (see `send_request`); None if it must start cold: variables differ, or none is forked."""
        if library_variables(request["environment"]) != self.variables:
            if self._process is None:
                self.close()  # it would count as a process of the run, and those that start cold need none
            return None
        if self._control.fileno() < 0:
            return None
        if not self.await_ready():
            self.close()
            say_cold("its template did not get ready")
            return None
        ours, its = socket.socketpair()
        with its:
            try:
                self._control.settimeout(ANSWER_S)
                socket.send_fds(self._control, [b"+"], [its.fileno()])
                send_request(ours, streams, **request)
                return read_answer(ours)
            except (OSError, EOFError) as error:
                ours.close()
                say_cold(f"its template does not answer ({error or type(error).__name__})")
                return None

    def await_ready(self, is_stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait until it has imported; False if it does not within `READY_S`, or before `is_stopped`."""
        with self._lock:
            until = time.monotonic() + READY_S
            while not (self._is_ready or self.is_over or is_stopped()) and time.monotonic() < until:
                with contextlib.suppress(OSError):
                    self._is_ready = readable(self._control.fileno(), 0.1) and self._control.recv(1) != b""
        return self._is_ready

    @property
    def is_over(self) -> bool:
        """Whether one that was started for this process has ended."""
        return self._process is not None and self._process.poll() is not None

    def close(self) -> None:
        """End it. What it forked, and does not die with it, stays."""
        self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def say_cold(why: str) -> None:
    print(f"labkit: a process starts cold, which takes seconds: {why}.", file=sys.stderr, flush=True)


def start_template(idle_s: float = math.inf) -> Template:
    """Start a template for this process, if it has none.

    It ends when none of its processes has run for `idle_s`, and with the thread that calls this.
    """
    if (own := own_template()) is not None:
        return own
    now = identity()
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "labkit.process.forking", str(its.fileno()), str(idle_s)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            # without the threads that it else makes at once
            env={**os.environ, PARENT: str(os.getpid()), ROOM: "-" * ROOM_BYTES, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # the terminal's Ctrl-C is not for it
        )
    return keep(Template(ours, process.pid, process, now))


def current_template(idle_s: float) -> Template:
    """`start_template`, but one that differs from what would start now ends first, and what is to die with it.

    Jobs are; the supervisors that a notebook's template forks are not.
    """
    if (own := own_template()) is not None and own.identity not in (None, identity()):
        own.close()
    return start_template(idle_s)


def send_request(connection: socket.socket, streams: Sequence[int], **request: Any) -> None:
    """Ask for a process with these streams, that runs `module` in an `environment`.

    It may also have `arguments`, and a `path`, the first place of its imports; by default this is its folder.
    """
    umask = os.umask(0)
    os.umask(umask)
    own = {"folder": str(Path.cwd()), "umask": umask, "requester": os.getpid()}
    content = json.dumps({"arguments": [], "path": None, **request, **own}).encode()
    connection.settimeout(ANSWER_S)
    socket.send_fds(connection, [len(content).to_bytes(4)], list(streams))
    connection.sendall(content)


def read_answer(connection: socket.socket) -> ForkedProcess:
    """The process that was forked. Raises OSError or EOFError if there is none."""
    said, descriptors, *_ = socket.recv_fds(connection, 4, 1)
    if not descriptors:
        raise EOFError("it closed the connection")
    return ForkedProcess(int.from_bytes(said), descriptors[0], connection)
