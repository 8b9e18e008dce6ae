"""Software on this machine: the packages labkit asks for, profilers, and NVIDIA's tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

EXTRAS = {
    "core": "labkit needs it",
    "fast": "training steps and data preparation are faster with it",
    "lab": "the notebooks need it",
}
"""What a missing package means, by what needs it: the core, or the extra of that name."""


def requirements() -> dict[str, tuple[str, str]]:
    """Requirement (as `pip` takes it) and the one of `EXTRAS` that needs it, by package; empty if not installed."""
    try:
        listed = metadata.requires("labkit") or []
    except metadata.PackageNotFoundError:
        return {}
    found = {}
    for line in listed:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        extra = re.search(r"extra == ['\"](\w+)", marker)
        need, name = extra[1] if extra else "core", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if need in EXTRAS and name != "labkit":
            found[name] = requirement, need
    return found


def package_versions() -> dict[str, str | None]:
    """Return the version of every package that labkit requires, None where it is missing."""
    return {package: installed_version(package) for package in requirements()}


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class Profiler(NamedTuple):
    """A profiler that labkit can use. Each prints its version when called with --version."""

    install: str
    needs_gpu: bool = True
    """Whether it is useless on a machine without an NVIDIA GPU."""


PROFILERS = {
    "nsys": Profiler("install NVIDIA Nsight Systems: https://developer.nvidia.com/nsight-systems"),
    "ncu": Profiler("install NVIDIA Nsight Compute: https://developer.nvidia.com/nsight-compute"),
    "py-spy": Profiler("python -m pip install py-spy", needs_gpu=False),
    "perf": Profiler("sudo apt install linux-tools-common linux-tools-generic", needs_gpu=False),
    "dcgmi": Profiler("install NVIDIA DCGM: https://developer.nvidia.com/dcgm"),
}
ANSWER_TIMEOUT_S = 10
"""Seconds that a tool may take to print its version; after that it counts as not working."""


@dataclass(frozen=True)
class Tool:
    """A command on this machine, found or not."""

    name: str
    path: str | None
    version: str | None
    works: bool
    note: str | None = None
    """Reason why it does not work, or what limits it."""


def find_profilers() -> list[Tool]:
    """Every profiler that labkit can use, found or not."""
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
        return Tool(name, path, None, works=False, note=f"did not print its version within {ANSWER_TIMEOUT_S} s")
    except OSError as error:
        return Tool(name, path, None, works=False, note=f"does not start: {error.strerror}")
    said = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if line.strip()] or ["no message"]
    if answer.returncode != 0:
        return Tool(name, path, None, works=False, note=f"ends with status {answer.returncode}: {said[0]}")
    # the first line with a digit, because some tools print a banner or a licence first
    version = next((line for line in said if any(character.isdigit() for character in line)), None)
    return Tool(name, path, version, works=True, note=perf_limit() if name == "perf" else None)


def which(name: str) -> str | None:
    """Path of a command: on PATH, or next to the running Python, where pip installs commands."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def find_mps() -> dict:
    """Whether CUDA MPS can be used here, and whether a daemon's pipe exists (which is never touched)."""
    path = shutil.which("nvidia-cuda-mps-control")
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    note = None if path else "nvidia-cuda-mps-control is not on PATH; it comes with NVIDIA's Linux driver"
    return {"available": path is not None, "daemon_seen": (pipes / "control").exists(), "note": note}


def perf_limit() -> str | None:
    """Reason why this user may not count perf events here; None where they may."""
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
    if not paranoid.is_file():
        return "the kernel has no perf events"
    if (level := int(paranoid.read_text())) > 2 and os.geteuid() != 0:
        return f"the kernel does not allow it for users (perf_event_paranoid is {level}; it must be 2 or less)"
    return None
