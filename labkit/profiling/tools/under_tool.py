"""Runs a script in a process that a profiler starts; what is to run there, and what came of it, are JSON files.

Run as a module, it is that process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from labkit.errors import UserError
from labkit.hardware.budgets.names import offered_budgets, parse_budget
from labkit.hardware.devices import get_devices
from labkit.hardware.tools import perf_limit, which
from labkit.process.containment import descendants, kill_until_gone
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.tools.outputs import export_stats
from labkit.profiling.tools.programs import NCU_FORBIDDEN, PROGRAMS
from labkit.runs.atomic import replace_text
from labkit.tracking.binding import bind_process
from labkit.tracking.command import ScriptCommand
from labkit.tracking.events import Notice, OnEvent
from labkit.tracking.stop import StopRequest

RESULT = "result.json"
GRACE_S = 5.0
"""A tool that is told to end has this long to write what it has."""


def profile_under_tool(
    tool: str, script: ScriptCommand, settings: ProfileSettings, on_event: OnEvent
) -> tuple[Path, list[str]]:
    """Run a script under a tool that starts it, until its steady steps are over; what they print goes to stderr.

    Args:
        tool: "nsys" or "ncu".
        script: to run.
        settings: how many steps pass (skip and warm-up), and how many are looked at.
        on_event: told the tool's command.

    Returns:
        The run's folder, with the tool's file in its `trace/`, and what its user should know.

    Raises:
        UserError: there is no GPU to look at, or the run or the tool failed.
    """
    program = PROGRAMS[tool]
    if not _runs_on_gpu(script):
        raise UserError(
            f"{tool} records {program.sees}, and this would run on the CPU. There, use --tool py-spy for the Python "
            "code, --tool perf for the processor's counters, or --tool torch for the operators; `labkit doctor` says "
            "which GPUs were found."
        )
    with tempfile.TemporaryDirectory(prefix="labkit-") as place:
        request, output = Path(place, "request.json"), Path(place, program.output)
        asked = {"command": script.to_dict(), "settings": asdict(settings), "tool": tool, "launcher": os.getpid()}
        request.write_text(json.dumps(asked), encoding="utf-8")
        command = [*program.starts(output), sys.executable, "-m", __name__, str(request)]
        on_event(Notice(shlex.join(command)))
        if tool == "nsys" and (limit := perf_limit()):
            mends = "`sudo sysctl kernel.perf_event_paranoid=2` mends it until the next start"
            on_event(Notice(f"No samples of the CPU: {limit}; {mends}."))
        status = _run(command)
        result = request.with_name(RESULT)
        answer = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else {}
        if "error" in answer:  # more to the point than what the tool says of a program that failed
            raise UserError(answer["error"])
        if not answer:
            raise UserError(
                f"{tool} ended with status {status}, and the program under it left no word; above is what they said. "
                "Run it with --tool torch first."
            )
        folder = Path(answer["folder"])
        if not output.is_file():
            why = f": {NCU_FORBIDDEN}" if tool == "ncu" else "; above is what it said: profile again."
            raise UserError(f"{folder}: there is no {program.output}, so {tool} recorded nothing{why}")
        kept = folder / "trace" / program.output
        shutil.move(output, kept)
    if tool == "nsys":
        export_stats(kept)
    return folder, answer["notes"]


def _runs_on_gpu(script: ScriptCommand) -> bool:
    devices = get_devices()
    if script.budget is not None:
        return parse_budget(script.budget, devices).torch_name != "cpu"
    return offered_budgets(devices)[-1].torch_name != "cpu"  # GPUs come last


def _run(command: list[str]) -> int:
    """Run a tool to its end; whatever happens, Ctrl-C included, nothing that it started is left running."""
    process = subprocess.Popen([which(command[0]), *command[1:]], stdin=subprocess.DEVNULL, stdout=2)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            started = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for each in started[::-1]:
                each.terminate()
            psutil.wait_procs(started, GRACE_S)
            kill_until_gone(lambda: started, process.poll)


def _end_after(launcher: int) -> None:
    """End this process, and all that it has started, soon after the one that started the tool is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(launcher).wait()
    kill_until_gone(descendants)
    os._exit(1)


def main(request: Path) -> int:
    """Do what the file asks for, under the tool."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    threading.Thread(target=_end_after, args=[asked["launcher"]], daemon=True).start()
    command, notes = ScriptCommand.from_dict(asked["command"]), []

    def hear(event: Any) -> None:
        if isinstance(event, Notice):
            notes.append(event.text)

    try:
        with StopRequest() as stop:
            budget = bind_process(command, hear, stop)
            from labkit.profiling.recording.script_run import profile_script  # torch comes with it
            from labkit.profiling.recording.steady_steps import SteadySteps

            steps = SteadySteps(ProfileSettings(**asked["settings"]), asked["tool"], command.script)
            folder, more = profile_script(command, steps, stop, hear, budget)
        answer = {"folder": str(folder), "notes": [*notes, *more]}
    except UserError as error:
        answer = {"error": str(error)}
    except KeyboardInterrupt:
        return 130
    replace_text(request.with_name(RESULT), json.dumps(answer))
    return 0 if "folder" in answer else 2


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
