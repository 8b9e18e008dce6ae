"""The program that runs under a profiler's command: a script, whose steady steps the tool is to look at.

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
from typing import Any

from labkit.errors import UserError, refusal
from labkit.profiling.recording.script_run import profile_script
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.recording.steady_steps import PerfSwitch, SteadySteps
from labkit.runs.atomic import replace_text
from labkit.runs.parts import spare_pandas
from labkit.runs.process import is_alive
from labkit.tracking.command import ScriptCommand
from labkit.tracking.events import Notice
from labkit.tracking.stop import StopRequest

LOOK_EVERY_S = 1.0


def main(request: Path) -> int:
    asked = json.loads(request.read_text(encoding="utf-8"))
    # tools pass on no open standard input whose end could tell that the launcher is gone
    threading.Thread(target=_end_with_launcher, args=asked["launcher"], daemon=True).start()
    try:
        answer = _run(asked)
    except UserError as error:
        answer = {"error": str(error)}
    except KeyboardInterrupt:
        return 130  # the launcher knows: it asked for it
    except Exception as error:
        refused = refusal(error)  # else it is a bug of ours, which the tool's messages would hide
        answer = {"error": str(refused)} if refused else {"traceback": traceback.format_exc()}
    replace_text(Path(asked["result"]), json.dumps(answer))
    return 0 if "folder" in answer else 2


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    spare_pandas()
    command = ScriptCommand.from_dict(asked["command"])
    steady = SteadySteps(
        ProfileSettings(**asked["settings"]),
        asked["tool"],
        script=Path(command.script).absolute(),
        least_s=asked["least_s"],
        perf_switch=PerfSwitch(*map(Path, asked["control"])) if asked["control"] else None,
    )
    notices: list[str] = []

    def hear(event: Any) -> None:
        if isinstance(event, Notice):
            notices.append(event.text)

    with StopRequest() as stop:
        folder, notes = profile_script(command, steady, stop, hear)
    return {"folder": str(folder), "notes": notices + notes}


def _end_with_launcher(pid: int, started: float) -> None:
    while is_alive(pid, started):
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # not os._exit: what a tool has put into this process may write at its end
    sys.exit(main(Path(sys.argv[1])))
