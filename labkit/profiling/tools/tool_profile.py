"""What a profiler that is a program of its own saw of a run's steady steps, read from the run's `trace/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from labkit.errors import UserError
from labkit.json_data import read_json
from labkit.profiling.tools.outputs import python_functions, read_stats
from labkit.profiling.tools.programs import FACTS, PROGRAMS
from labkit.runs import read_run

if TYPE_CHECKING:
    import pandas as pd

NO_COUNTERS = (
    "This machine shows no counters of its processor, as most virtual machines do not: cycles, instructions and misses "
    "are not to be had, though times, page faults and context switches are. Use a machine of its own, or a virtual one "
    "that passes the counters on."
)


class Facts(TypedDict):
    """What readers rely on of `tool.json`."""

    tool: Literal["nsys", "ncu", "py-spy", "perf"]
    script: str
    device: str
    threads: int
    steps: int
    window_s: float


@dataclass(frozen=True)
class ToolProfile:
    """What a tool saw of a run's steady steps."""

    folder: Path
    """Of the run"""
    facts: Facts
    """What was noted of the window: tool, steps, window_s, device, threads, …"""
    tables: dict[str, pd.DataFrame]
    """nsys: kernels, api_calls, ranges (`outputs.read_stats`); py-spy: functions (`python_functions`)"""
    text: str = ""
    """perf's own"""

    @property
    def tool(self) -> str:
        return self.facts["tool"]

    @property
    def output(self) -> Path:
        """The tool's own file."""
        return self.folder / "trace" / PROGRAMS[self.tool].output

    @property
    def notes(self) -> list[str]:
        """What its reader should know: what is missing and why."""
        return [NO_COUNTERS] if "<not supported>" in self.text else []


def is_tool_profile(folder: Path) -> bool:
    """Whether a run was profiled by one of these tools."""
    return (folder / "trace" / FACTS).is_file()


def read_tool_profile(folder: Path | str) -> ToolProfile:
    """Read what a tool saw of a run.

    Raises:
        FileNotFoundError: no tool looked at it (`is_tool_profile`).
        UserError: it saw nothing.
        DataError: its file is damaged.
    """
    folder = Path(folder)
    read_run(folder)  # or say that it is none
    facts = read_json(folder / "trace" / FACTS, Facts, fix="Profile again.")
    profile = ToolProfile(folder, facts, {})
    if facts["steps"] <= 0 or facts["window_s"] <= 0:
        raise UserError(
            f"{folder}: the run ended before its first steady step: profile again, with fewer steps before it (--skip, "
            "--warmup)."
        )
    if not profile.output.is_file():
        raise UserError(
            f"{folder}: there is no {profile.output.name} in its trace/, so {profile.tool} recorded nothing: profile "
            "again, for longer (--steps)."
        )
    if profile.tool == "nsys":
        return ToolProfile(folder, facts, read_stats(profile.output))
    if profile.tool == "py-spy":
        return ToolProfile(folder, facts, {"functions": python_functions(profile.output, facts["script"])})
    text = profile.output.read_text(encoding="utf-8", errors="replace") if profile.tool == "perf" else ""
    return ToolProfile(folder, facts, {}, text.strip())
