"""What a profiler that is a program of its own saw of a run's steady steps, read from the run's `trace/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from labkit.errors import UserError
from labkit.json_data import read_json
from labkit.profiling.tools import nsys, py_spy
from labkit.runs import read_run

if TYPE_CHECKING:
    import pandas as pd

OUTPUTS = {"nsys": "nsys.nsys-rep", "ncu": "ncu.ncu-rep", "py-spy": "py-spy.txt", "perf": "perf.txt"}
"""Each tool, and its file in a run's `trace/`"""
FACTS = "tool.json"
"""File beside it: what is known of the window in which the tool looked"""
OF_A_GPU = ("nsys", "ncu")


class _Optional(TypedDict, total=False):
    notes: list[str]
    loop: tuple[str, int, int] | None


class Facts(_Optional):
    """What readers rely on of `tool.json`."""

    tool: Literal["nsys", "ncu", "py-spy", "perf"]
    device: str
    threads: int
    steps: int
    window_s: float
    observed_s: float


@dataclass(frozen=True)
class ToolProfile:
    """What a tool saw of a run's steady steps."""

    folder: Path
    """Of the run"""
    tool: str
    tables: dict[str, pd.DataFrame]
    """nsys: kernels, api_calls, ranges (`nsys.NsysStats`); py-spy: functions (`python_functions`, with the line that
    had most samples); of perf and ncu none"""
    notes: list[str]
    """What its reader should know: what is missing and why, and what the numbers are not"""
    facts: Facts
    """What was noted of the window: steps, window_s, device, threads, …"""

    @property
    def output(self) -> Path:
        """The tool's own file."""
        return self.folder / "trace" / OUTPUTS[self.tool]


def is_tool_profile(folder: Path) -> bool:
    """Whether a run was profiled by one of these tools."""
    return (folder / "trace" / FACTS).is_file()


def read_tool_profile(folder: Path | str) -> ToolProfile:
    """Read what a tool saw of a run.

    Raises:
        UserError: no tool looked at it, or it saw nothing.
        DataError: its file is damaged.
    """
    folder = Path(folder)
    read_run(folder)  # or say that it is none
    path = folder / "trace" / FACTS
    if not path.is_file():
        raise UserError(f"{folder}: no tool looked at this run: `labkit profile dlrm --tool py-spy` makes one, say.")
    facts = read_json(path, Facts, fix="Profile again.")
    tool, notes = facts["tool"], facts.get("notes", [])
    output = path.with_name(OUTPUTS[tool])
    if facts["steps"] <= 0 or facts["observed_s"] <= 0:
        raise UserError(
            f"{folder}: the run ended before its first steady step: profile again, with fewer steps before it (--skip, "
            "--warmup)."
        )
    if not output.is_file():
        on = "the run computed on the CPU" if tool in OF_A_GPU and facts["device"] == "cpu" else "profile again"
        raise UserError(f"{folder}: there is no {output.name} in its trace/, so {tool} recorded nothing: {on}.")
    tables, more = _PARSERS[tool](output, facts) if tool in _PARSERS else ({}, [])
    return ToolProfile(folder, tool, tables, [*notes, *more], facts)


def _parse_nsys(output: Path, facts: dict[str, Any]) -> tuple[dict, list[str]]:
    stats = nsys.read_nsys_stats(output)
    return {"kernels": stats.kernels, "api_calls": stats.api_calls, "ranges": stats.ranges}, list(stats.notes)


def _parse_py_spy(output: Path, facts: dict[str, Any]) -> tuple[dict, list[str]]:
    if facts.get("loop") is None:
        raise UserError(f"{output.with_name(FACTS)}: the lines of the training loop are missing: profile again.")
    script, first, last = facts["loop"]
    stacks = _within(py_spy.read_py_spy(output), script, first, last)
    if stacks.empty:
        raise UserError(
            f"{output}: py-spy took no sample within the steps. Let them go on for longer (--steps), or see what it "
            "took in the file."
        )
    functions = py_spy.python_functions(stacks)
    lines = stacks.groupby(["function", "file", "line"], as_index=False)["self_samples"].sum()
    lines = lines.sort_values("self_samples", ascending=False).drop_duplicates(["function", "file"])
    functions = functions.merge(lines[["function", "file", "line"]], on=["function", "file"], how="left")
    share = facts["window_s"] / facts["observed_s"]
    note = (
        f"py-spy cannot be switched on and off: these are its samples in the training loop (lines {first} to {last} of "
        f"{script}), in the thread that trains. The steady steps took {share:.0%} of that time."
    )
    return {"functions": functions}, [note]


def _within(stacks: pd.DataFrame, script: str, first: int, last: int) -> pd.DataFrame:
    """The stacks that pass through these lines of a script."""
    passed = (stacks["file"] == script) & stacks["line"].between(first, last)
    through = {stack[-1] for stack in stacks.loc[passed, "stack"]}
    return stacks[[not through.isdisjoint(stack) for stack in stacks["stack"]]]


_PARSERS = {"nsys": _parse_nsys, "py-spy": _parse_py_spy}
