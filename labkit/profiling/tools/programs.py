"""The table of profilers: how each is called, what hinders it here, and what shows what it wrote.

py-spy and perf attach to the process that trains while its steady steps last. Nsight's tools start it themselves, and
look between cudaProfilerStart and cudaProfilerStop (Nsight Systems, User Guide, CLI profile).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.hardware.tools import ANSWER_TIMEOUT_S, find_profiler, perf_limit

FACTS = "tool.json"
"""File in a run's `trace/`: what is known of the window in which a tool looked"""
WHERE_FROM = {
    "nsys": "It comes with the CUDA toolkit and from https://developer.nvidia.com/nsight-systems; add its folder to "
    "PATH. Without it, a trace of torch.profiler shows the same kernels and operators.",
    "ncu": "It comes with the CUDA toolkit and from https://developer.nvidia.com/nsight-compute; add its folder to "
    "PATH. Without it, a trace of torch.profiler shows the kernels' times, though not what they do to the hardware.",
    "py-spy": "Install it with `pip install py-spy`.",
    "perf": "It belongs to Linux, and to a kernel's version: install it with `sudo apt install linux-perf` (Debian), "
    "`sudo apt install linux-tools-$(uname -r)` (Ubuntu) or `sudo dnf install perf` (Fedora).",
}
"""Where each tool is to be had, and what to use instead"""
NCU_FORBIDDEN = (
    "ncu may not read the GPU's performance counters here (ERR_NVGPUCTRPERM). An administrator allows it to everybody "
    "with `echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
    "/etc/modprobe.d/nvidia-profiling.conf`, perhaps `sudo update-initramfs -u`, and a restart. Or run it as root with "
    "`sudo -E`; a container needs `docker run --cap-add=SYS_ADMIN`; on Windows and WSL it is NVIDIA's control panel, "
    "Developer, Manage GPU Performance Counters. See https://developer.nvidia.com/ERR_NVGPUCTRPERM. Nsight Systems and "
    "torch.profiler need no such right."
)
PERF_FORBIDDEN = (
    "`sudo sysctl kernel.perf_event_paranoid=2` allows it until the next start, and the same setting in a file of "
    "/etc/sysctl.d/ for good; a container needs `docker run --cap-add=PERFMON`."
)
PY_SPY_FORBIDDEN = (
    "On macOS run labkit with sudo. In a container, start that with `docker run --cap-add=SYS_PTRACE`. Elsewhere "
    "`sudo sysctl kernel.yama.ptrace_scope=0` allows it until the next start."
)
DRIVER_SETTINGS = Path("/proc/driver/nvidia/params")
KERNELS = 300
"""Launches that ncu looks at, each of which it repeats: enough for a step or more of a small model"""
PERF_EVENTS = (
    "cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses",
    "task-clock", "page-faults", "context-switches", "cpu-migrations",
)  # fmt: skip
"""Of the processor, and, in the second line, of the kernel, which has its own everywhere"""
SET_PTRACER = 0x59616D61  # linux/prctl.h


@dataclass(frozen=True)
class Program:
    """A profiler that is a program of its own."""

    output: str
    """Its file in a run's `trace/`"""
    viewer: str
    """Where that is to be looked at; braces stand for its path"""
    why_not: Callable[[], str | None]
    """Why it cannot look here, as far as can be told before, and how to mend that; None where nothing is known"""
    attaches: Callable[[Path, int], list[str]] | None = None
    """Its command line to look at a process that runs, given the file to write and the process' number"""
    starts: Callable[[Path], list[str]] | None = None
    """Its command line, given the file to write, to be followed by that of the program to look at"""
    least_s: float = 0.0
    """Seconds that the steady steps go on for at least"""
    sees: str = ""
    """What it records of a GPU, if it needs one"""


def unusable(name: str) -> str | None:
    """Why a tool is not to be had here; None where it starts."""
    tool = find_profiler(name)
    if tool.path is None:
        return f"{name} is not on PATH. {WHERE_FROM[name]}"
    return None if tool.works else f"{name} does not work here: {tool.note}. {WHERE_FROM[name]}"


def _nsys(output: Path) -> list[str]:
    # the kernel may forbid samples of the CPU, and nsys refuses to start then
    sample = "process-tree" if perf_limit() is None else "none"
    return [
        "nsys", "profile", "--trace=cuda,nvtx,osrt,cublas,cudnn", f"--sample={sample}", f"--cpuctxsw={sample}",
        "--force-overwrite=true", "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "-o", str(output),
    ]  # fmt: skip


def _ncu(output: Path) -> list[str]:
    how = ["--target-processes", "all", "--profile-from-start", "off", "--launch-count", str(KERNELS)]
    return ["ncu", "--export", str(output), *how]


def _py_spy(output: Path, pid: int) -> list[str]:
    how = ["--format", "raw", "--full-filenames", "--rate", "100"]
    return ["py-spy", "record", *how, "--output", str(output), "--pid", str(pid)]


def _perf(output: Path, pid: int) -> list[str]:
    return ["perf", "stat", "-e", ",".join(PERF_EVENTS), "-o", str(output), "-p", str(pid)]


def _why_no_ncu() -> str | None:
    if why := unusable("ncu"):
        return why
    try:
        only_root = "RmProfilingAdminOnly: 1" in DRIVER_SETTINGS.read_text()
    except OSError:
        return None
    return NCU_FORBIDDEN if only_root and os.geteuid() != 0 else None


def _why_no_py_spy() -> str | None:
    if sys.platform == "linux":  # Yama lets no process look at its parent that has not allowed it
        ctypes.CDLL(None).prctl(SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    return unusable("py-spy") or _refused(["py-spy", "dump", "--pid", str(os.getpid())], PY_SPY_FORBIDDEN)


def _why_no_perf() -> str | None:
    if why := unusable("perf"):
        return why
    return _refused(["perf", "stat", "-e", "task-clock", "-p", str(os.getpid()), "sleep", "0"], PERF_FORBIDDEN)


def _refused(command: Sequence[str], remedy: str) -> str | None:
    """Why a tool may not look at this process; it tries."""
    try:
        tried = subprocess.run(
            [find_profiler(command[0]).path, *command[1:]],
            capture_output=True, text=True, errors="replace", timeout=ANSWER_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not answer within {ANSWER_TIMEOUT_S} s when it was tried on this process."
    if tried.returncode == 0:
        return None
    said = " ".join(tried.stderr.split()) or f"status {tried.returncode}"
    return f"{command[0]} may not look at this process ({said}). {remedy}"


PROGRAMS = {
    "nsys": Program(
        "nsys.nsys-rep", "`nsys-ui {}` shows its timeline", lambda: unusable("nsys"), starts=_nsys,
        sees="what the host and the GPU do",
    ),
    "ncu": Program(
        "ncu.ncu-rep", "`ncu-ui {}` shows its kernels", _why_no_ncu, starts=_ncu, sees="single kernels of a GPU",
    ),
    # with 100 samples a second, a share of 10 % is known to a standard error of 1.3 points (binomial) after 5 s
    "py-spy": Program(
        "py-spy.txt", "{} holds the stacks, which https://www.speedscope.app and flamegraph.pl draw", _why_no_py_spy,
        attaches=_py_spy, least_s=5.0,
    ),
    # after which the turns that its counters take have evened out
    "perf": Program("perf.txt", "{} is perf's own", _why_no_perf, attaches=_perf, least_s=5.0),
}  # fmt: skip
"""By their names"""
