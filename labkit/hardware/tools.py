"""Profilers and NVIDIA tools on this machine: found, and whether they start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Profiler(NamedTuple):
    """A profiler that labkit knows, and how to get it; each prints its version when called with --version."""

    install: str
    needs_gpu: bool = True
    """Whether it says nothing on a machine without an NVIDIA GPU"""


PROFILERS = {
    "nsys": Profiler("install NVIDIA Nsight Systems: https://developer.nvidia.com/nsight-systems"),
    "ncu": Profiler("install NVIDIA Nsight Compute: https://developer.nvidia.com/nsight-compute"),
    "py-spy": Profiler("python -m pip install py-spy", needs_gpu=False),
    "perf": Profiler("sudo apt install linux-tools-common linux-tools-generic", needs_gpu=False),
    "dcgmi": Profiler("install NVIDIA DCGM: https://developer.nvidia.com/dcgm"),
}
ANSWER_TIMEOUT_S = 10
"""A tool that does not tell its version within this time is reported as not starting."""


@dataclass(frozen=True)
class Tool:
    """A command that was looked for."""

    name: str
    path: str | None
    version: str | None
    works: bool
    note: str | None = None
    """Why it does not work, or what limits it"""


def find_profilers() -> list[Tool]:
    """Every profiler labkit knows, found or not."""
    return [find_profiler(name) for name in PROFILERS]


def find_profiler(name: str) -> Tool:
    """Return one of the profilers, found or not."""
    path = which(name)
    if path is None:
        return Tool(name, None, None, works=False, note="not on PATH")
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return Tool(name, path, None, works=False, note=f"gave no version within {ANSWER_TIMEOUT_S} s")
    except OSError as error:
        return Tool(name, path, None, works=False, note=f"does not start: {error.strerror}")
    said = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if line.strip()] or ["no message"]
    if answer.returncode != 0:
        return Tool(name, path, None, works=False, note=f"ends with status {answer.returncode}: {said[0]}")
    # The line with a number in it: some tools print a banner or a licence first.
    version = next((line for line in said if any(character.isdigit() for character in line)), None)
    return Tool(name, path, version, works=True, note=perf_limit() if name == "perf" else None)


def which(name: str) -> str | None:
    """Where a command is: on PATH, or beside the Python that runs, where pip puts its own."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def find_mps() -> dict:
    """Say whether CUDA MPS can be used here, and whether a daemon runs (it is looked at, never touched)."""
    path = shutil.which("nvidia-cuda-mps-control")
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    note = None if path else "nvidia-cuda-mps-control is not on PATH; it comes with NVIDIA's Linux driver"
    return {"available": path is not None, "daemon_seen": (pipes / "control").exists(), "note": note}


def perf_limit() -> str | None:
    """Why this user may not count perf events here; None where nothing forbids it."""
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
    if not paranoid.is_file():
        return "the kernel has no perf events"
    if (level := int(paranoid.read_text())) > 2 and os.geteuid() != 0:
        return f"the kernel forbids it to users (perf_event_paranoid is {level}, it needs 2 or less)"
    return None
