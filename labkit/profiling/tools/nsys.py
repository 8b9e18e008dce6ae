"""Nsight Systems: a script is run under it, its steady steps are recorded, and `nsys stats` sums them up.

nsys starts the program itself, and looks between cudaProfilerStart and cudaProfilerStop (User Guide, CLI profile). What
is to run there is a JSON file, which what came of it replaces; run as a module, this is the process under nsys.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from labkit.errors import UserError
from labkit.hardware import perf_limit, which
from labkit.process import kill_until_gone
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.tools.programs import OUTPUTS
from labkit.runs import replace_text
from labkit.tracking import Notice, OnEvent, ScriptCommand, StopRequest, bind_process

REPORTS = "cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_api_sum,nvtx_sum"
"""Of `nsys stats` since 2023: kernels, copies and fills, CUDA's calls on the host, and the steps' phases"""
SHOWN_LINES = 12
"""Of each report, its head included"""


def command_line(output: Path) -> list[str]:
    """How nsys is called, to be followed by the program to look at."""
    # the kernel may forbid samples of the CPU, and nsys refuses to start then
    sample = "process-tree" if perf_limit() is None else "none"
    return [
        "nsys", "profile", "--trace=cuda,nvtx,osrt,cublas,cudnn", f"--sample={sample}", f"--cpuctxsw={sample}",
        "--force-overwrite=true", "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "-o", str(output),
    ]  # fmt: skip


def profile_under_nsys(script: ScriptCommand, settings: ProfileSettings, on_event: OnEvent) -> tuple[Path, list[str]]:
    """Run a script under nsys until its steady steps are over; what they print goes to stderr.

    Returns:
        The run's folder, with the recording and its statistics in its `trace/`, and what its user should know.

    Raises:
        UserError: the run or nsys failed.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-") as place:
        request, output = Path(place, "request.json"), Path(place, OUTPUTS["nsys"])
        request.write_text(json.dumps({"command": script.to_dict(), "settings": asdict(settings)}), encoding="utf-8")
        command = [*command_line(output), sys.executable, "-m", __name__, str(request)]
        on_event(Notice(shlex.join(command)))
        status = _run(command)
        answer = json.loads(request.read_text(encoding="utf-8"))
        if "error" in answer:  # more to the point than what nsys says of a program that failed
            raise UserError(answer["error"])
        if "folder" not in answer or not output.is_file():
            raise UserError(
                f"nsys ended with status {status} and recorded nothing; above is what it said. Run it with --tool "
                "torch first."
            )
        folder = Path(answer["folder"])
        kept = shutil.move(output, folder / "trace" / output.name)
    replace_text(kept.with_suffix(".txt"), stats(kept))
    return folder, answer["notes"]


def _run(command: list[str]) -> int:
    """Run nsys to its end; whatever happens, Ctrl-C included, nothing that it started is left running."""
    process = subprocess.Popen([which(command[0]), *command[1:]], stdin=subprocess.DEVNULL, stdout=2)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            nsys = psutil.Process(process.pid)
            started = [nsys, *nsys.children(recursive=True)]
            kill_until_gone(lambda: started)
            process.poll()


def main(request: Path) -> int:
    """Do what the file asks for, under nsys."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    command, notes = ScriptCommand.from_dict(asked["command"]), []

    def hear(event: Any) -> None:
        if isinstance(event, Notice):
            notes.append(event.text)

    try:
        with StopRequest() as stop:
            bind_process(command, hear, stop)
            from labkit.profiling.recording.profile_steps import profile_script  # torch comes with it
            from labkit.profiling.recording.recorder import SteadySteps

            steps = SteadySteps(ProfileSettings(**asked["settings"]), "nsys", command.script)
            folder, more = profile_script(command, steps, stop, hear)
        answer = {"folder": str(folder), "notes": [*notes, *more]}
    except UserError as error:
        answer = {"error": str(error)}
    except KeyboardInterrupt:
        return 130
    replace_text(request, json.dumps(answer))
    return 0 if "folder" in answer else 2


def stats(recording: Path) -> str:
    """What `nsys stats` tells of a recording, the dearest of each report first; a UserError where it fails."""
    command = [which("nsys"), "stats", "--force-export=true", "--report", REPORTS, str(recording)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-500:]
        raise UserError(f"{recording}: nsys stats ended with status {done.returncode}: {said}. `nsys-ui` may open it.")
    reports = done.stdout.strip().split("\n\n")
    return "\n\n".join("\n".join(report.splitlines()[:SHOWN_LINES]) for report in reports)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
