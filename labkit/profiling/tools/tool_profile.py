"""What a profiler that is a program of its own saw of a run's steady steps, read from the run's `trace/`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from labkit.errors import UserError
from labkit.json_data import read_json
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
    output: Path
    """The tool's own file"""
    functions: pd.DataFrame | None = None
    """Of py-spy: `py_spy.python_functions`"""
    text: str = ""
    """Of nsys: what `nsys stats` tells"""

    @property
    def where_to_look(self) -> str:
        """What shows the tool's own file, in a sentence."""
        return VIEWERS[self.facts["tool"]].format(self.output)

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs; a figure that is not known is null."""
        functions = None if self.functions is None else json.loads(self.functions.to_json(orient="records"))
        told = {"run": self.folder.name, "folder": str(self.folder), "tool": self.facts["tool"], "facts": self.facts}
        return told | {"output": str(self.output), "functions": functions, "text": self.text}


def is_tool_profile(folder: Path) -> bool:
    """Whether a run was profiled by one of these tools."""
    return (folder / "trace" / FACTS).is_file()


def read_tool_profile(folder: Path | str) -> ToolProfile:
    """Read what a tool saw of a run that `is_tool_profile`; a UserError where it saw nothing or its file is damaged."""
    folder = Path(folder)
    read_run(folder)  # or say that it is none
    facts = read_json(folder / "trace" / FACTS, Facts, fix="Profile again.")
    output = folder / "trace" / OUTPUTS[facts["tool"]]
    told = output.with_suffix(".txt")
    if facts["steps"] <= 0 or facts["window_s"] <= 0 or not told.is_file():
        raise UserError(
            f"{folder}: {facts['tool']} recorded no steady step: profile again, with fewer steps before them (--skip, "
            "--warmup)."
        )
    if facts["tool"] == "nsys":
        return ToolProfile(folder, facts, output, text=told.read_text(encoding="utf-8", errors="replace"))
    return ToolProfile(folder, facts, output, python_functions(output, facts["script"]))
