"""The warm server: a template that outlives the command which left it, for the next `labkit train` of this checkout.

There is one for each user and checkout, behind a socket in a folder that only the user can enter. It ends by itself
when it was idle for `IDLE_S`, when labkit or torch on the disk is no longer what it has imported, or when a command
asks whose limits, cores or variables differ. What it forked dies with it, and with the command that asked.
"""

import contextlib
import fcntl
import hashlib
import importlib
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.process import forking, template
from labkit.process.containment import MARK, PARENT

IDLE_S = float(os.environ.get("LABKIT_WARM_IDLE_S") or 300.0)
"""Seconds without a run after which the server ends; 0: there is none"""
HARNESS = ("LABKIT_HARNESS", MARK)
"""Variables of processes that belong to another command's runs, which the server must not outlive"""

_at_start: dict[str, Any] = {}
"""Cores, environment and folder of this command at its start, before a budget bound it"""


def place() -> Path:
    """The path of the server's socket.

    Raises:
        OSError: its folder is not the user's own and private.
    """
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"labkit-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that only you can enter")
    return folder / f"{hashlib.sha256(f'{template.PACKAGE} {sys.prefix}'.encode()).hexdigest()[:12]}.sock"


# the command's side


def run_in_server(arguments: Sequence[str]) -> int | None:
    """Run `labkit` with these arguments in a process of the server; its exit status. None: this process must do it."""
    is_possible = IDLE_S > 0 and template.is_possible() and not forking.is_warm()
    if not is_possible or any(name in os.environ for name in HARNESS):
        return None
    cores = sorted(os.sched_getaffinity(0))
    _at_start.update(cores=cores, environment=dict(os.environ), folder=Path.cwd())
    connection = socket.socket(socket.AF_UNIX)
    try:
        path = place()
        connection.settimeout(template.ANSWER_S)
        if not path.exists():
            return None  # it is left at the end
        connection.connect(str(path))
        connection.sendall(template.identity().encode())
        if connection.recv(1) != b"y":
            raise EOFError("the warm server has another labkit, torch, limit or variable, and ends")
        request = {"module": "labkit", "arguments": list(arguments), "path": sys.path[0]}
        template.send_request(connection, (0, 1, 2), **request, environment=os.environ | {PARENT: str(os.getpid())})
        forked = template.read_answer(connection)
    except TimeoutError:
        why = f"the warm server, process {_peer(connection)[0]}, does not answer (end it with kill -9)"
    except (OSError, EOFError) as error:
        why = f"there is no warm server to fork it ({error})"
    else:
        return _await(forked, connection)
    connection.close()
    template.say_cold(why)
    return None


def _await(forked: template.ForkedProcess, connection: socket.socket) -> int:
    """Wait for the process of this command, and pass signals on to it. Returns its exit status."""

    def pass_on(number: int, _: Any) -> None:
        with contextlib.suppress(OSError):
            connection.send(bytes([signal.SIGSTOP if number == signal.SIGTSTP else number]))
            if number == signal.SIGTSTP:
                signal.raise_signal(signal.SIGSTOP)
                connection.send(bytes([signal.SIGCONT]))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    status = forked.wait()
    if status < 0:
        print(f"labkit: the process of this run was ended by {signal.Signals(-status).name}.", file=sys.stderr)
        with contextlib.suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)  # SIGKILL has no handler
        signal.raise_signal(-status)
    return status


def leave_server() -> None:
    """Start a server for the next command, if this is one that asked for it and there is none."""
    if not _at_start:
        return
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "labkit.process.warm_server", json.dumps(_at_start["cores"])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**_at_start["environment"], template.ROOM: "-" * template.ROOM_BYTES, "OPENBLAS_NUM_THREADS": "1"},
            cwd=_at_start["folder"],
            start_new_session=True,
        )


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Pid and user at the other end."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[:2]


# the server's side


def main() -> None:
    os.sched_setaffinity(0, json.loads(sys.argv[1]))  # the command that left it was bound to a budget
    own, path = template.identity(), place()
    lock = path.with_suffix(".lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # there is one
    os.register_at_fork(after_in_child=lock.close)
    path.unlink(missing_ok=True)
    forking.preload()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    server = forking.Server(listener, lambda: accept(listener))
    is_over = False

    def accept(listener: socket.socket) -> socket.socket | None:
        nonlocal is_over
        connection, _ = listener.accept()
        connection.settimeout(template.ANSWER_S)
        with contextlib.suppress(OSError):
            is_equal = connection.recv(64, socket.MSG_WAITALL) == own.encode()
            if _peer(connection)[1] == os.geteuid():
                is_over |= not is_equal
                connection.sendall(b"y" if is_equal else b"n")
                if is_equal:
                    return connection
        connection.close()
        return None

    def ends() -> bool:
        idle_s = server.idle_s
        over = idle_s > 0 and (is_over or idle_s > IDLE_S or not path.exists() or not _is(own))
        if over:
            path.unlink(missing_ok=True)
        return over

    os.chdir(path.parent)
    server.serve(ends, min(15.0, IDLE_S / 10))()


def _is(own: str) -> bool:
    try:
        return template.identity() == own
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    importlib.import_module("labkit.process.warm_server").main()
