"""Profilers that are programs of their own: whether they may look, commands for some, and what others saw of a run."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from labkit.errors import UserError
from labkit.hardware import PROFILERS, find_profiler, offered_budgets
from labkit.json_data import read_json
from labkit.profiling.tools.py_spy import python_functions, why_refused
from labkit.runs import read_run
from labkit.tracking import ScriptCommand

if TYPE_CHECKING:
    import pandas as pd

TOOL_FACTS = "tool.json"
"""File in a run's `trace/`: what is known of the window in which a tool looked"""
OUTPUTS = {"nsys": "nsys.nsys-rep", "py-spy": "py-spy.txt"}
"""The file of each in a run's `trace/`"""
VIEWERS = {
    "nsys": "`nsys-ui {}` shows its timeline",
    "py-spy": "{} holds the stacks, which https://www.speedscope.app and flamegraph.pl draw",
}
"""Where that is to be looked at; braces stand for its path"""
BY_HAND = {
    "ncu": ("ncu --export ncu --target-processes all --launch-skip 5000 --launch-count 300 --kill yes",
            "`ncu-ui ncu.ncu-rep` shows the 300 kernels after the first 5,000, each of which it repeats"),
    "perf": ("perf stat -d --delay 10000 --timeout 20000",
             "it prints the counters of twenty seconds, ten seconds after the start, and ends the training"),
}  # fmt: skip
"""Commands of those that one starts oneself, to be followed by that of the training, and what comes of each"""


def check_tool(name: str, script: ScriptCommand) -> None:
    """Refuse a tool that cannot look at a script here: a UserError says why, and what to do."""
    tool = find_profiler(name)
    if tool.path is None:
        raise UserError(f"{name} is not on PATH: {PROFILERS[name].install}. Or take --tool torch.")
    if not tool.works:
        raise UserError(f"{name} does not work here: {tool.note}. Another one: {PROFILERS[name].install}.")
    if PROFILERS[name].needs_gpu and not runs_on_gpu(script):
        raise UserError(
            f"{name} looks at a GPU, and this would run on the CPU. There, use --tool py-spy for the Python code, "
            "--tool perf for the processor's counters, or --tool torch for the operators; `labkit doctor` says which "
            "GPUs were found."
        )
    if name == "perf" and tool.note:
        raise UserError(f"{tool.note}: `sudo sysctl kernel.perf_event_paranoid=2` allows it until the next start.")
    if name == "py-spy" and (why := why_refused()):
        raise UserError(why)


def command_by_hand(name: str, script: ScriptCommand) -> str:
    """The command that looks at a script with a tool of `BY_HAND`."""
    flags = ["--runs-dir", script.runs_dir, *(["--budget", script.budget.name] if script.budget else [])]
    ran = ["-m", script.module] if script.module else [script.script]
    return f"{BY_HAND[name][0]} {shlex.join([sys.executable, '-m', 'labkit', 'run', *flags, *ran, *script.arguments])}"


def runs_on_gpu(script: ScriptCommand) -> bool:
    """Whether a script's budget, or what it has without one, is a GPU."""
    return (script.budget or offered_budgets()[-1]).torch_name != "cpu"  # GPUs come last


class ToolFacts(TypedDict):
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
    facts: ToolFacts
    output: Path
    """The tool's own file"""
    functions: pd.DataFrame | None = None
    """Of py-spy: `py_spy.python_functions`"""
    text: str = ""
    """Of nsys: what `nsys stats` tells"""

    @property
    def where_to_look(self) -> str:
        return VIEWERS[self.facts["tool"]].format(self.output)

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs; a figure that is not known is null."""
        functions = None if self.functions is None else json.loads(self.functions.to_json(orient="records"))
        told = {"run": self.folder.name, "folder": str(self.folder), "tool": self.facts["tool"], "facts": self.facts}
        return told | {"output": str(self.output), "functions": functions, "text": self.text}


def is_tool_profile(folder: Path) -> bool:
    """Whether a run was profiled by one of these tools."""
    return (folder / "trace" / TOOL_FACTS).is_file()


def read_tool_profile(folder: Path | str) -> ToolProfile:
    """Read what a tool saw of a run that `is_tool_profile`; a UserError where it saw nothing or its file is damaged."""
    folder = Path(folder)
    read_run(folder)  # or say that it is none
    facts = read_json(folder / "trace" / TOOL_FACTS, ToolFacts, fix="Profile again.")
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
