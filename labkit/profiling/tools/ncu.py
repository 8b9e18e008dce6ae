"""NVIDIA Nsight Compute: its command line, and whether it may count here. What it writes is for its own viewer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from labkit.hardware.tools import find_profiler
from labkit.profiling.tools.rights import has_capability
from labkit.profiling.tools.run_tool import Refusal, missing_tool

DRIVER_SETTINGS = Path("/proc/driver/nvidia/params")
FORBIDDEN = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM), without which ncu measures nothing. An "
    "administrator of the machine allows it to everybody with `echo 'options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf` and a restart (where the "
    "driver is in the initial ramdisk, run `sudo update-initramfs -u` before it). Or run it as root with `sudo -E`; a "
    "container needs `docker run --cap-add=SYS_ADMIN`; on Windows and WSL it is NVIDIA's control panel, Developer, "
    "Manage GPU Performance Counters. See https://developer.nvidia.com/ERR_NVGPUCTRPERM. Nsight Systems and "
    "torch.profiler need no such right."
)
REFUSALS = (Refusal("ERR_NVGPUCTRPERM", f"ncu: {FORBIDDEN}"),)
KERNELS = 300
"""Launches that it looks at, each of which it repeats: enough for a step or more of a small model"""


def ncu_command(output: Path, command: Sequence[str]) -> list[str]:
    """The command line that looks at a program's first launches of kernels after `cudaProfilerStart`.

    Args:
        output: the report to write, `.ncu-rep`.
        command: the program and its arguments.
    """
    return [
        "ncu",
        *("--export", str(output)),
        *("--log-file", str(log_of(output))),
        *("--target-processes", "all"),
        *("--profile-from-start", "off"),
        *("--launch-count", str(KERNELS)),
        *command,
    ]


def log_of(output: Path) -> Path:
    """The file of ncu's messages, beside its report."""
    return output.with_suffix(".log")


def why_no_ncu() -> str | None:
    """Why kernels cannot be looked at here, as far as can be told before; None where nothing speaks against it."""
    tool = find_profiler("ncu")
    if tool.path is None:
        return str(missing_tool("ncu"))
    if not tool.works:
        return f"ncu does not work here: {tool.note}. Install it anew, or try `{tool.path} --version`."
    try:
        only_root = "RmProfilingAdminOnly: 1" in DRIVER_SETTINGS.read_text()
    except OSError:
        return None
    allowed = os.geteuid() == 0 and has_capability("SYS_ADMIN")
    return f"ncu: {FORBIDDEN}" if only_root and not allowed else None
