"""What a profiler that is a program of its own saw of a run's steady steps, read from the run's `trace/`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from labkit.errors import UserError
from labkit.json_data import read_json
from labkit.profiling.tools.nsys import read_stats
from labkit.profiling.tools.programs import OUTPUTS, VIEWERS
from labkit.profiling.tools.py_spy import python_functions
from labkit.runs import read_run

if TYPE_CHECKING:
    import pandas as pd

FACTS = "tool.json"
"""File in a run's `trace/`: what is known of the window in which a tool looked"""


class Facts(TypedDict):
    """What readers rely on of `tool.json`."""

    tool: Literal["nsys", "py-spy"]
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
    """nsys: kernels, api_calls, ranges (`nsys.read_stats`); py-spy: functions (`py_spy.python_functions`)"""

    @property
    def tool(self) -> str:
        return self.facts["tool"]

    @property
    def output(self) -> Path:
        """The tool's own file."""
        return self.folder / "trace" / OUTPUTS[self.tool]

    @property
    def where_to_look(self) -> str:
        """What shows that, in a sentence."""
        return VIEWERS[self.tool].format(self.output)

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs; a figure that is not known is null."""
        return {
            "run": self.folder.name,
            "folder": str(self.folder),
            "tool": self.tool,
            "output": str(self.output),
            "facts": self.facts,
            "tables": {name: json.loads(table.to_json(orient="records")) for name, table in self.tables.items()},
        }


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
        return replace(profile, tables=read_stats(profile.output))
    return replace(profile, tables={"functions": python_functions(profile.output, facts["script"])})
