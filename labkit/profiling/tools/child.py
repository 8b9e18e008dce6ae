"""The program that runs under a profiler's command: a job or a script, whose steady steps the tool is to look at.

It is started with one argument, a JSON file that says what to do. What came of it, the run's folder or the error, goes
to the file that is named in there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from labkit.errors import UserError, refusal
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.recording.steady_steps import PerfSwitch, SteadySteps
from labkit.runs.atomic import replace_text
from labkit.runs.process import is_alive

LOOK_EVERY_S = 1.0


def main(request: Path) -> int:
    asked = json.loads(request.read_text(encoding="utf-8"))
    # tools pass on no open standard input whose end could tell that the launcher is gone
    threading.Thread(target=_end_with_launcher, args=asked["launcher"], daemon=True).start()
    perf_switch = PerfSwitch(*map(Path, asked["control"])) if asked["control"] else None
    steady = SteadySteps(
        ProfileSettings(**asked["settings"]), asked["tool"], least_s=asked["least_s"], perf_switch=perf_switch
    )
    try:
        answer = _run_job(asked, steady) if asked["job"] else _run_script(asked, steady)
    except UserError as error:
        answer = {"error": str(error)}
    except KeyboardInterrupt:
        return 130  # the launcher knows: it asked for it
    except Exception as error:
        refused = refusal(error)  # else it is a bug of ours, which the tool's messages would hide
        answer = {"error": str(refused)} if refused else {"traceback": traceback.format_exc()}
    replace_text(Path(asked["result"]), json.dumps(answer))
    return 0 if "folder" in answer else 2


def _run_job(asked: dict[str, Any], steady: SteadySteps) -> dict[str, Any]:
    from labkit.runs.parts import spare_pandas
    from labkit.training.announcements import Notice
    from labkit.training.request import TrainRequest
    from labkit.training.session import train
    from labkit.training.stop import StopRequest

    spare_pandas()
    notes: list[str] = []

    def hear(event: Any) -> None:
        if isinstance(event, Notice):
            notes.append(event.text)

    with StopRequest() as stop:
        answer = train(
            TrainRequest.from_dict(asked["job"]),
            runs_dir=Path(asked["runs_dir"]),
            on_event=hear,
            stop=stop,
            observer=steady,
        )
    if answer["status"] == "stopped":
        notes.append(f"The run was {answer['result']['reason']}")
    return {"folder": answer["folder"], "notes": notes}


def _run_script(asked: dict[str, Any], steady: SteadySteps) -> dict[str, Any]:
    from labkit.profiling.recording.script_run import profile_script

    signal.signal(signal.SIGTERM, _interrupt)  # so that the run's record says that it was stopped
    folder, notes = profile_script(
        Path(asked["script"]),
        asked["arguments"],
        settings=steady.settings,
        runs_dir=Path(asked["runs_dir"]),
        budget=asked["budget"],
        observer=steady,
    )
    return {"folder": str(folder), "notes": notes}


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with_launcher(pid: int, started: float) -> None:
    while is_alive(pid, started):
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # not os._exit: what a tool has put into this process may write at its end
    sys.exit(main(Path(sys.argv[1])))
