"""Runs a script under a profiler that is a program of its own, which looks at the steady steps."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from labkit.errors import UserError
from labkit.hardware.budgets.names import offered_budgets, parse_budget
from labkit.hardware.devices import get_devices
from labkit.hardware.tools import ANSWER_TIMEOUT_S
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.tools import ncu, nsys, perf, py_spy
from labkit.profiling.tools.run_tool import Refusal, run_tool
from labkit.profiling.tools.tool_profile import FACTS, OF_A_GPU, OUTPUTS, ToolProfile, read_tool_profile
from labkit.runs.atomic import replace_text
from labkit.runs.process import own_process
from labkit.tracking.command import ScriptCommand

LEAST_S = {"nsys": 0.0, "ncu": 0.0, "py-spy": 5.0, "perf": 5.0}
"""Seconds that the steady steps go on for at least. py-spy takes 100 samples a second: after 5 s, a share of 10 % is
known to a standard error of 1.3 points (binomial), and the turns that perf's counters take have evened out"""


def profile_under_tool(
    tool: str, script: ScriptCommand, *, settings: ProfileSettings, show: bool = True
) -> ToolProfile:
    """Run a script under a tool until its steady steps are over.

    Args:
        tool: one of `OUTPUTS`.
        script: to run.
        settings: how many steps pass (skip and warm-up), and how many are looked at, at least.
        show: pass on what the tool and the program print.

    Raises:
        UserError: the tool is not here or may not look, the run was refused or failed, or nothing was seen.
    """
    notes, is_switched = _before(tool)
    if tool in OF_A_GPU and (why := why_no_gpu(tool, script)):
        raise UserError(why)
    environment = dict(os.environ)
    if script.budget is not None:
        environment |= parse_budget(script.budget).environment()  # before the program loads what reads it
    with tempfile.TemporaryDirectory(prefix="labkit-") as place:
        scratch = Path(place)
        control = _fifos(scratch) if is_switched else None
        result = scratch / "result.json"
        request = scratch / "request.json"
        asked = {
            "command": script.to_dict(),
            "settings": asdict(settings),
            "tool": tool,
            "least_s": LEAST_S[tool],
            "control": control and [str(fifo) for fifo in control],
            "result": str(result),
            "launcher": own_process(),
        }
        request.write_text(json.dumps(asked), encoding="utf-8")
        output = scratch / OUTPUTS[tool]
        program = [sys.executable, "-m", "labkit.profiling.tools.child", str(request)]
        command, refusals = _command(tool, output, program, control)
        failure = None
        try:
            run_tool(command, refusals=refusals, log=ncu.log_of(output), env=environment, show=show)
        except UserError as error:
            failure = error
        answer = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else {}
        if "error" in answer:  # more to the point than what the tool says of a program that failed
            raise UserError(answer["error"]) from failure
        if "traceback" in answer:
            raise RuntimeError(f"the program under {tool} failed:\n{answer['traceback']}") from failure
        if failure is not None:
            # by itself, the command would not find what is in the scratch folder
            whole = f"; if that works, run the whole command by itself: {shlex.join(command)}"
            raise UserError(str(failure).replace(whole, ", with --tool torch.")) from failure
        if not answer:
            raise UserError(
                f"{tool} ended, and the program under it left no word: it was killed, or ended itself. Run it with "
                "--tool torch first."
            )
        folder = Path(answer["folder"])
        _keep(folder, tool, output, [*notes, *answer["notes"]])
    return read_tool_profile(folder)


def why_no_gpu(tool: str, script: ScriptCommand) -> str | None:
    """Why a tool for GPUs would see nothing of it; None where it may run on a GPU."""
    devices = get_devices()
    if script.budget is not None:
        on = parse_budget(script.budget, devices).torch_name
    else:
        on = offered_budgets(devices)[-1].torch_name  # GPUs come last
    if on != "cpu":
        return None
    seen = {"nsys": "what the host and the GPU do", "ncu": "single kernels of a GPU"}[tool]
    return (
        f"{tool} records {seen}, and this would run on the CPU. There, use --tool py-spy for the Python code, --tool "
        "perf for the processor's counters, or --tool torch for the operators; `labkit doctor` says which GPUs were "
        "found."
    )


def _before(tool: str) -> tuple[list[str], bool]:
    """What will be missing, and whether perf can be switched on and off.

    Raises:
        UserError: the tool cannot do its work here.
    """
    if tool == "nsys":
        return nsys.nsys_limits(), False
    why = {"ncu": ncu.why_no_ncu, "py-spy": py_spy.why_no_py_spy, "perf": perf.why_no_perf}[tool]()
    if tool == "perf" and why == f"{perf.NO_COUNTERS}.":
        why, notes = None, [f"{why[0].upper()}{why[1:]}"]
    else:
        notes = []
    if why is not None:
        raise UserError(why)
    if tool != "perf" or _perf_has_switch():
        return notes, tool == "perf"
    return [
        *notes,
        "This perf is too old to be switched on and off (--control=fifo: came with Linux 5.10): the counts are of the "
        "whole program, its start included, and cannot be divided by steps.",
    ], False


def _perf_has_switch() -> bool:
    """Whether perf stat can be told by a FIFO when to count."""
    try:
        said = subprocess.run(
            ["perf", "stat", "-h"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return "fifo:" in said.stdout + said.stderr


def _fifos(folder: Path) -> tuple[Path, Path]:
    """Where perf is told what to do, and where it answers."""
    fifos = folder / "control", folder / "answers"
    for fifo in fifos:
        os.mkfifo(fifo)
    return fifos


def _command(
    tool: str, output: Path, program: list[str], control: tuple[Path, Path] | None
) -> tuple[list[str], Sequence[Refusal]]:
    """The command that looks at the steady steps of the program only, as far as the tool can, and its refusals."""
    if tool == "nsys":
        # Nsight Systems, User Guide, CLI profile: the range is between cudaProfilerStart and cudaProfilerStop, after
        # which the program goes on
        within = ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
        return nsys.nsys_command(output, program, options=within), ()
    if tool == "ncu":
        return ncu.ncu_command(output, program), ncu.REFUSALS
    if tool == "py-spy":
        return py_spy.py_spy_command(output, program, options=["--full-filenames"]), py_spy.REFUSALS
    within = [f"--control=fifo:{control[0]},{control[1]}", "--delay=-1"] if control else []
    return perf.perf_command(output, program, options=within), perf.REFUSALS


def _keep(folder: Path, tool: str, output: Path, notes: list[str]) -> None:
    """Move a tool's output into the run's folder, and write the notes down."""
    path = folder / "trace" / FACTS
    facts = json.loads(path.read_text(encoding="utf-8"))
    replace_text(path, json.dumps(facts | {"notes": notes}, indent=1) + "\n")
    if output.is_file():
        shutil.move(output, path.with_name(output.name))
