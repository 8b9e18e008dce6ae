"""A CUDA MPS daemon of our own, in its own pipe directory: started for one process, and ended with it.

A daemon that others started is never used and never touched. Run as a program, this is the guard. It starts the daemon
in the foreground, prints its folder, and ends it when its standard input closes, which the kernel does when its parent
ends. It must not end earlier: a client whose daemon ends loses its GPU.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit import UserError

CONTROL = "nvidia-cuda-mps-control"
READY = "ready "
START_S, ANSWER_S = 20.0, 10.0
"""Seconds for the daemon to start listening; seconds for an answer, and for its end."""


def find_mps() -> dict:
    """Whether CUDA MPS can be used here, and whether a daemon's pipe exists (which is never touched)."""
    path = shutil.which(CONTROL)
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    note = None if path else f"{CONTROL} is not on PATH; it comes with NVIDIA's Linux driver"
    return {"available": path is not None, "daemon_seen": (pipes / "control").exists(), "note": note}


def start_mps(gpus: Sequence[str] = ()) -> tuple[dict[str, str], subprocess.Popen]:
    """Start a daemon that lives as long as this process.

    Args:
        gpus: UUIDs of the only GPUs that it serves; its clients must then name GPUs by UUID. By default it serves all,
            because clients number their GPUs among those that the daemon sees.

    Returns:
        The variables that make CUDA its client, and its guard.

    Raises:
        UserError: it does not start.
    """
    if note := find_mps()["note"]:
        raise UserError(f"CUDA MPS does not start: {note}")
    # limits and pipes of another user's daemon must not reach ours
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    command, pipe = [sys.executable, "-m", "labkit.hardware.mps"], subprocess.PIPE
    how: dict[str, Any] = {"stdin": pipe, "stdout": pipe, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    guard = subprocess.Popen(command, start_new_session=True, **how)  # a new session: Ctrl-C is for the run only
    said = []
    assert guard.stdout is not None  # a pipe
    for line in guard.stdout:
        if line.startswith(READY):
            return pipes(line.removeprefix(READY).strip()), guard
        said.append(line.strip())
    guard.communicate()
    raise UserError(f"CUDA MPS does not start: {' '.join(said) or 'it printed nothing'}")


def pipes(folder: str) -> dict[str, str]:
    """Variables that a daemon and its clients share, to find each other."""
    return {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": str(Path(folder) / "log")}


def guard() -> int:
    """Keep a daemon until standard input closes."""
    # in /tmp, because the path of a socket must be short
    with tempfile.TemporaryDirectory(prefix="labkit-mps-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        environment = os.environ | pipes(folder)
        Path(environment["CUDA_MPS_LOG_DIRECTORY"]).mkdir()
        with Path(folder, "said").open("wb") as said:
            how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": subprocess.STDOUT}
            daemon = subprocess.Popen([CONTROL, "-f"], **how, env=environment)
        try:
            if why_not := _wait_until_it_listens(daemon, environment, Path(said.name)):
                print(why_not)
                return 1
            print(READY + folder, flush=True)
            while os.read(sys.stdin.fileno(), 4096):
                pass
        finally:
            _ask("quit -t 1", environment)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(ANSWER_S)
            daemon.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may keep even a killed process
                daemon.wait(ANSWER_S)
    return 0


def _wait_until_it_listens(daemon: subprocess.Popen, environment: dict[str, str], said: Path) -> str | None:
    """Reason why the daemon, whose output is in `said`, does not listen; None if it does."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if _ask("get_server_list", environment):
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(0.1)
            return said.read_text(errors="replace").strip() or f"it ended with {daemon.returncode}"
    return f"it does not listen after {START_S:g} s"


def _ask(what: str, environment: dict[str, str]) -> bool:
    try:
        answer = subprocess.run(
            [CONTROL], input=f"{what}\n", text=True, capture_output=True, check=False, timeout=ANSWER_S, env=environment
        )
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0


if __name__ == "__main__":
    sys.exit(guard())
