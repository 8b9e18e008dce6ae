"""Profilers that are programs of their own: whether they are here, and commands for those that one starts oneself."""

from __future__ import annotations

import shlex
import sys

from labkit.errors import UserError
from labkit.hardware.budgets.names import offered_budgets
from labkit.hardware.tools import PROFILERS, find_profiler
from labkit.tracking.command import ScriptCommand

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
    """Refuse a tool that cannot look at a script here.

    Raises:
        UserError: why, and what to do.
    """
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
    if name == "py-spy":
        from labkit.profiling.tools.py_spy import why_refused

        if why := why_refused():
            raise UserError(why)


def command_by_hand(name: str, script: ScriptCommand) -> str:
    """The command that looks at a script with a tool of `BY_HAND`."""
    flags = ["--runs-dir", script.runs_dir, *(["--budget", script.budget.name] if script.budget else [])]
    ran = ["-m", script.module] if script.module else [script.script]
    return f"{BY_HAND[name][0]} {shlex.join([sys.executable, '-m', 'labkit', 'run', *flags, *ran, *script.arguments])}"


def runs_on_gpu(script: ScriptCommand) -> bool:
    """Whether a script's budget, or what it has without one, is a GPU."""
    return (script.budget or offered_budgets()[-1]).torch_name != "cpu"  # GPUs come last
