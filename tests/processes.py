"""Processes that labkit marks as its own, and waiting for what is to come."""

import contextlib
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

import psutil

from labkit.process.containment import MARK

DEADLINE_S = 90.0
"""Far more than all deadlines of a supervisor together: who is here by then stays."""


class NoSampler(contextlib.nullcontext):
    """In place of the sampler of a run, whose imports take a second of a core."""

    failure, untold = None, ()

    def __init__(self, *arguments, **options):
        super().__init__(self)


def on_ranks(ranks: int, work: Callable, *given: object) -> None:
    """Call `work(rank, *given)` in `ranks` processes, forked from one that has already imported torch and TorchRec."""
    multiprocessing.set_forkserver_preload(["torch.distributed", "torchrec", "pandas", "labkit.jobs.dlrm_sharded"])
    from torch.multiprocessing import start_processes  # which few tests need

    start_processes(work, given, nprocs=ranks, start_method="forkserver")


def gone(process: psutil.Process) -> bool:
    """Whether a process has ended, maybe while we look."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def marked_where(is_ours: Callable[[psutil.Process], bool]) -> list[str]:
    """The processes with a round's mark that are a test's own, in words."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if MARK in process.environ() and is_ours(process):
                found.append(f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}")
    return found


@contextlib.contextmanager
def warm_server_variables() -> Generator[dict[str, str]]:
    """Variables of commands that share a warm server of their own; its socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="lk-", dir="/tmp") as folder:
        yield {"LABKIT_WARM": "", "XDG_RUNTIME_DIR": folder, "LABKIT_WARM_IDLE_S": "30"}
        for process in warm_servers(folder):
            process.kill()


def warm_servers(folder: str) -> list[psutil.Process]:
    """The warm servers that have this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, KeyError):
            if "labkit.process.warm_server" in process.cmdline() and process.environ()["XDG_RUNTIME_DIR"] == folder:
                found.append(process)
    return [process for process in found if process.ppid() not in {each.pid for each in found}]


def wait_for(condition: Callable[[], object], details: Callable[[], object] = str) -> object:
    """What `condition` gives once it is true; if it never is, the failure shows these details."""
    until = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < until, f"it did not come to that. {details()}"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def served(folder: Path) -> Generator[tuple[str, subprocess.Popen]]:
    """The address of the page of a server of its own, which ends with the block."""
    command = [sys.executable, "-m", "labkit", "live", str(folder), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        assert line.startswith("The page is at "), line
        yield line.split()[-1], server
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
