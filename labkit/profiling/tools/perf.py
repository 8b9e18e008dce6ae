"""Linux perf, which reads the processor's own counters: its command line, and whether it may here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit.hardware.tools import ANSWER_TIMEOUT_S, find_profiler
from labkit.profiling.tools.run_tool import Refusal, missing_tool

EVENTS = (
    "cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses",
    "task-clock", "page-faults", "context-switches", "cpu-migrations",
)  # fmt: skip
"""Of the processor, and, in the second line, of the kernel, which has its own everywhere"""
FORBIDDEN = (
    "perf may not count here. `sudo sysctl kernel.perf_event_paranoid=2` allows it until the next start, and the same "
    "setting in a file of /etc/sysctl.d/ for good; a container needs `docker run --cap-add=PERFMON`"
)
REFUSALS = (
    Refusal(
        "Access to performance monitoring and observability operations is limited|No permission to enable", FORBIDDEN
    ),
)
NO_COUNTERS = (
    "this machine shows no counters of its processor, as most virtual machines do not: cycles, instructions and misses "
    "are not to be had, though times, page faults and context switches are. Use a machine of its own, or a virtual one "
    "that passes the counters on"
)


def perf_command(output: Path, command: Sequence[str], *, options: Sequence[str] = ()) -> list[str]:
    """The command line that counts events of a program and of all that it starts.

    Args:
        output: the text to write, `.txt`, with perf's own figures of them.
        command: the program and its arguments.
        options: more of `perf stat`.
    """
    return ["perf", "stat", "-e", ",".join(EVENTS), *options, "-o", str(output), "--", *command]


def why_no_perf() -> str | None:
    """Why the processor's counters cannot be read here; None where they can.

    It lets perf count the cycles of a command that does nothing.
    """
    if sys.platform != "linux":
        return "perf belongs to Linux, which this is not. py-spy and torch.profiler work here."
    tool = find_profiler("perf")
    if tool.path is None:
        return str(missing_tool("perf"))
    if not tool.works:
        return (
            f"perf does not work here: {tool.note}. It must be of the kernel's version: on Ubuntu "
            "`sudo apt install linux-tools-$(uname -r)`."
        )
    if tool.note:
        return f"{tool.note}: {FORBIDDEN}."
    try:
        tried = subprocess.run(
            ["perf", "stat", "-x,", "-e", "cycles", "true"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"perf did not count the cycles of a command that does nothing within {ANSWER_TIMEOUT_S} s."
    if any(re.search(refusal.words, tried.stderr) for refusal in REFUSALS):
        return f"{FORBIDDEN}."
    return f"{NO_COUNTERS}." if tried.returncode or "<not supported>" in tried.stderr else None
