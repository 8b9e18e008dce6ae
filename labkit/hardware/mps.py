"""A CUDA MPS daemon of our own: in its own pipe directory, started for one run and ended with it.

A daemon that others started is never used and never touched. Run as a program, this is the guard: it starts the daemon
in the foreground, says so, and ends it when its standard input closes, which the kernel does for a killed parent.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from labkit.errors import UserError

CONTROL = "nvidia-cuda-mps-control"
READY = "ready"
PATIENCE_S = 10.0
"""For the daemon to end when asked."""


class MpsDaemon:
    """Runs the daemon during a block; `environment` makes CUDA processes its clients."""

    def __enter__(self) -> MpsDaemon:
        """Start it.

        Raises:
            UserError: it does not start, with what it said.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-mps-")
        self.environment = {
            # clients find the daemon by its pipes; a short path, because sockets have short names
            "CUDA_MPS_PIPE_DIRECTORY": self._folder.name,
            "CUDA_MPS_LOG_DIRECTORY": str(Path(self._folder.name) / "log"),
        }
        Path(self.environment["CUDA_MPS_LOG_DIRECTORY"]).mkdir()
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "labkit.hardware.mps"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | self.environment,
            start_new_session=True,  # Ctrl-C in the terminal is for the run, which then ends this
        )
        said = []
        for line in self._guard.stdout:
            if line.strip() == READY:
                return self
            said.append(line.strip())
        self.__exit__()
        raise UserError(f"CUDA MPS does not start: {' '.join(said) or 'it says nothing'}")

    def __exit__(self, *exception) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.close()
        self._guard.wait(2 * PATIENCE_S)
        self._guard.stdout.close()
        self._folder.cleanup()


def guard() -> int:
    """Keep a daemon until standard input closes."""
    path = shutil.which(CONTROL)
    if path is None:
        print(f"{CONTROL} is not on PATH; it comes with NVIDIA's Linux driver")
        return 1
    daemon = subprocess.Popen([path, "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # asked for its clients, it answers once it listens
    while subprocess.run([path], input="get_server_list\n", text=True, capture_output=True, check=False).returncode:
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(0.1)
            print(daemon.stdout.read().decode(errors="replace").strip() or f"it ended with {daemon.returncode}")
            return 1
    threading.Thread(target=daemon.stdout.read, daemon=True).start()  # nobody reads it, and it must not fill up
    print(READY, flush=True)
    while os.read(sys.stdin.fileno(), 4096):
        pass
    subprocess.run([path], input="quit -t 1\n", text=True, capture_output=True, check=False)
    try:
        daemon.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    return 0


if __name__ == "__main__":
    sys.exit(guard())
