"""py-spy, which looks at a Python program's stack many times a second: its command line, and its samples as frames."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import DataError
from labkit.hardware.tools import find_profiler
from labkit.profiling.tools.rights import has_capability
from labkit.profiling.tools.run_tool import Refusal, missing_tool

if TYPE_CHECKING:
    import pandas as pd

PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
FORBIDDEN = (
    "py-spy may not read the memory of another process here. On macOS run it with sudo. In a container, start that "
    "with `docker run --cap-add=SYS_PTRACE`. On Linux a process that already runs, or belongs to another user, needs "
    "`sudo -E`, or `sudo sysctl kernel.yama.ptrace_scope=0` until the next start; one that py-spy starts itself does "
    "not, unless ptrace_scope is 2 or 3."
)
# "elevated permissions" and "os error 13" are what py-spy 0.4.3 said as an ordinary user and without CAP_SYS_PTRACE;
# "SYS_PTRACE" in a container (github.com/benfred/py-spy/pull/459); "root" on macOS
REFUSALS = (
    Refusal(
        r"running again with elevated permissions|Permission denied \(os error 13\)|Operation not permitted \(os error"
        r" 1\)|SYS_PTRACE capability|requires root on OSX",
        FORBIDDEN,
    ),
)
_PROCESS = re.compile(
    r'process (\d+):"(.*?)"(?=;process \d+:"|;[^;\n]* \([^;\n]*\)(?:;| \d+$)| \d+$)', re.DOTALL | re.MULTILINE
)
"""The first part of a stack with `--subprocesses`: a command line, which may hold what divides stacks"""
_PROCESS_SHOWN = 60
_FRAME = re.compile(r"(?P<function>.*?) \((?P<file>.*?)(?::(?P<line>\d+))?\)")
_THREAD = re.compile(r"thread \(.*\)")


def py_spy_command(
    output: Path,
    target: Sequence[str] | int,
    *,
    rate_hz: int = 100,
    duration_s: int | None = None,
    subprocesses: bool = False,
    options: Sequence[str] = (),
) -> list[str]:
    """The command line that samples a Python program.

    Args:
        output: the stacks to write, `.txt`.
        target: the program and its arguments, or the process number of one that runs.
        rate_hz: samples a second.
        duration_s: stop after that many seconds; else when the program ends.
        subprocesses: also look at the Python programs that it starts, such as a loader's workers.
        options: more of py-spy's own.
    """
    whom = ["--pid", str(target)] if isinstance(target, int) else ["--", *target]
    how_long = [] if duration_s is None else ["--duration", str(duration_s)]
    also = ["--subprocesses"] if subprocesses else []
    return [
        "py-spy",
        "record",
        *("--format", "raw"),
        *("--rate", str(rate_hz)),
        *("--output", str(output)),
        *how_long,
        *also,
        *options,
        *whom,
    ]


def why_no_py_spy() -> str | None:
    """Why Python programs cannot be sampled here, as far as can be told before; None where nothing is against it."""
    tool = find_profiler("py-spy")
    if tool.path is None:
        return str(missing_tool("py-spy"))
    if not tool.works:
        return f"py-spy does not work here: {tool.note}. Install it anew: `pip install --force-reinstall py-spy`."
    if sys.platform == "darwin" and os.geteuid() != 0:
        return FORBIDDEN
    try:
        scope = int(PTRACE_SCOPE.read_text())
    except (OSError, ValueError):
        return None
    return FORBIDDEN if scope == 3 or (scope == 2 and not has_capability("SYS_PTRACE")) else None


def read_py_spy(path: Path) -> pd.DataFrame:
    """Read the stacks of `py-spy record --format raw` as a tree of calls.

    Returns:
        One row for each place in the tree: stack (a tuple of texts, outermost first, the place itself last), function,
        file, line (null where py-spy does not know it), samples (what it called included), self_samples, share (of
        all samples, of its own); most samples first. Processes and threads have no file.

    Raises:
        DataError: there are no samples in it, or it is damaged.
    """
    import pandas as pd

    samples: dict[tuple[str, ...], int] = {}
    own: dict[tuple[str, ...], int] = {}
    for stack, count in _stacks(path):
        own[stack] = own.get(stack, 0) + count
        for depth in range(1, len(stack) + 1):
            samples[stack[:depth]] = samples.get(stack[:depth], 0) + count
    whole = sum(own.values())
    if not whole:
        fix = "Let the program run longer, or raise the rate; a program that is no Python is not seen."
        raise DataError("py-spy took no sample.", fix=fix, file=path)
    rows = [(stack, *_place(stack[-1]), count, own.get(stack, 0)) for stack, count in samples.items()]
    frame = pd.DataFrame(rows, columns=["stack", "function", "file", "line", "samples", "self_samples"])
    frame["line"] = frame["line"].astype("Int64")
    frame["share"] = frame["self_samples"] / whole
    return frame.sort_values("samples", ascending=False, kind="stable", ignore_index=True)


def python_functions(frame: pd.DataFrame) -> pd.DataFrame:
    """Sum up the samples of `read_py_spy` by function.

    Returns:
        Columns function, file, samples (with it anywhere on the stack, once however often it called itself),
        self_samples (in itself), share (of all samples, of its own); dearest first
    """
    import pandas as pd

    samples: dict[tuple[str, str], int] = {}
    own: dict[tuple[str, str], int] = {}
    ended_here = frame[frame["self_samples"] > 0]
    for stack, count in zip(ended_here["stack"], ended_here["self_samples"], strict=True):
        places = [_place(label)[:2] for label in stack]
        for place in set(places):
            samples[place] = samples.get(place, 0) + count
        own[places[-1]] = own.get(places[-1], 0) + count
    rows = [(*place, count, own.get(place, 0)) for place, count in samples.items() if place[1] is not None]
    found = pd.DataFrame(rows, columns=["function", "file", "samples", "self_samples"])
    found["share"] = found["self_samples"] / frame["self_samples"].sum()
    return found.sort_values(["self_samples", "samples"], ascending=False, kind="stable", ignore_index=True)


def _stacks(path: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    place = 0
    for line in _PROCESS.sub(_short, text).split("\n"):
        place += 1 + line.count("\v")
        if not line.strip():
            continue
        stack, _, count = line.rpartition(" ")
        if not stack and count.isdecimal():
            continue  # a sample from before Python had called anything
        if not stack or not count.isdecimal():
            raise DataError(
                "this line has no number of samples at its end.",
                fix="The file was cut off, or is no output of `py-spy record --format raw`: record once more.",
                file=path,
                line=place,
            )
        yield tuple(part.replace("\v", "") for part in stack.split(";")), int(count)


def _short(process: re.Match[str]) -> str:
    """A process without what would divide its stack; a vertical tab stands for each line that it took."""
    command = " ".join(process[2].replace(";", ",").split())
    shown = command if len(command) <= _PROCESS_SHOWN else f"{command[: _PROCESS_SHOWN - 1]}…"
    return f"process {process[1]}: {shown}" + "\v" * process[0].count("\n")


def _place(label: str) -> tuple[str, str | None, int | None]:
    """Function, file and line of `work (train.py:12)`."""
    found = None if _THREAD.fullmatch(label) else _FRAME.fullmatch(label)
    if found is None or label.startswith("process "):
        return label, None, None
    return found["function"], found["file"], int(found["line"]) if found["line"] else None
