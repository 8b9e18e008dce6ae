"""Linux perf, which reads the processor's own counters: its command line, whether it may here, and its counts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import DataError
from labkit.hardware.tools import ANSWER_TIMEOUT_S, find_profiler
from labkit.profiling.tools.run_tool import Refusal, missing_tool

if TYPE_CHECKING:
    import pandas as pd

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
UNKNOWN = {
    "<not supported>": "this machine does not have the counter",
    "<not counted>": "not counted: the program ended before its turn came, or never ran on such a core",
}
_ROW = re.compile(
    r"(?P<value>[^,]*),(?P<unit>[^,]*),(?P<counter>.+?),(?P<run_ns>\d+),(?P<percent>\d+(?:\.\d+)?)(?:,.*)?"
)
"""Fields in their order; a counter's name may have commas (perf-stat(1), CSV FORMAT)"""
_FIGURES = {
    "ipc": ("instructions", "cycles"),
    "cache_miss_share": ("cache-misses", "cache-references"),
    "branch_miss_share": ("branch-misses", "branches"),
}


def perf_command(
    output: Path, command: Sequence[str], *, events: Sequence[str] = EVENTS, options: Sequence[str] = ()
) -> list[str]:
    """The command line that counts events of a program and of all that it starts.

    Args:
        output: the counts to write, `.csv`.
        command: the program and its arguments.
        events: as `perf list` names them.
        options: more of `perf stat`.
    """
    return ["perf", "stat", "-x,", "-e", ",".join(events), *options, "-o", str(output), "--", *command]


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


def read_perf_stat(path: Path) -> pd.DataFrame:
    """Read what `perf stat -x, -o` wrote.

    Returns:
        Columns counter, value (null where it was not counted), unit, note (why it is null, or that it is an estimate)

    Raises:
        DataError: there are no counts in it, or it is damaged.
    """
    import pandas as pd

    rows = []
    for place, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith(("#", ",,,")):  # ,,, is a figure that perf derived
            continue
        row = _ROW.fullmatch(line)
        if row is None:
            fix = "The file was cut off, or is none of `perf stat -x,`: count once more."
            raise DataError("this is no row of counts.", fix=fix, file=path, line=place)
        rows.append((row["counter"], _value(row["value"], path, place), row["unit"] or None, _note(row)))
    if not rows:
        fix = "Was perf stopped before the program ended? Count once more."
        raise DataError("there are no counts in it.", fix=fix, file=path)
    frame = pd.DataFrame(rows, columns=["counter", "value", "unit", "note"])
    return frame.astype({"value": "float64"})


def perf_figures(counts: pd.DataFrame) -> dict[str, float | None]:
    """What follows from the counts of `read_perf_stat`.

    Counts of a processor with two kinds of cores are added up, over the kinds on which both were counted.

    Returns:
        ipc (instructions a cycle), cache_miss_share and branch_miss_share (of the references and the branches), each
        None where a count is missing.
    """
    known = counts.dropna(subset=["value"])
    found = {_kind_and_event(counter): value for counter, value in zip(known["counter"], known["value"], strict=True)}
    figures = {}
    for name, (above, below) in _FIGURES.items():
        kinds = [kind for kind, event in found if event == above and (kind, below) in found]
        whole = sum(found[kind, below] for kind in kinds)
        figures[name] = sum(found[kind, above] for kind in kinds) / whole if whole else None
    return figures


def _value(text: str, path: Path, place: int) -> float | None:
    if text in UNKNOWN:
        return None
    try:
        return float(text)
    except ValueError:
        fix = "The file was edited, or written in a language with a decimal comma: count once more with LC_ALL=C."
        raise DataError(f"{text!r} is not a number.", fix=fix, file=path, line=place, field="value") from None


def _note(row: re.Match[str]) -> str | None:
    if row["value"] in UNKNOWN:
        return UNKNOWN[row["value"]]
    percent = float(row["percent"])
    if percent < 100:  # more events than counters: they take turns
        return f"an estimate: counted during {percent:g} % of the time"
    return None


def _kind_and_event(counter: str) -> tuple[str, str]:
    """The kind of core and the event without its modifier.

    >>> _kind_and_event("cpu_atom/cycles/u"), _kind_and_event("cycles:u")
    (('cpu_atom', 'cycles'), ('', 'cycles'))
    """
    if "/" in counter:
        kind, event, _ = counter.split("/", 2)
        return kind, event
    return "", counter.split(":")[0]
