"""The program that trains one job on command: commands come in on standard input, answers go out on standard output.

One line of JSON each; the first line in is the job. When standard input closes, because the launcher ended or was
killed, the job ends, so that nothing is left running.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError, refusal
from labkit.runs.parts import spare_pandas

LEAST_SAMPLES_HZ = 0.1
"""On a CPU nothing of the telemetry is used, and each sample takes time from the job."""

LONGEST_STEP_S = 60.0
"""Within which a job whose launcher is gone comes to the end of its step."""


def main() -> int:
    # what the job prints must not get among the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    commands: queue.Queue = queue.Queue()
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    try:
        _train(PlannedJob.from_dict(asked["job"]), Path(asked["runs_dir"]), commands, answers)
    except Exception as error:
        refused = error if isinstance(error, UserError) else refusal(error)
        if refused is None:
            raise
        _send(answers, {"error": str(refused)})
        return 2
    return 0


def _train(job: PlannedJob, runs_dir: Path, commands: queue.Queue, answers: TextIO) -> None:
    from labkit.collocation.interference.commanded_steps import RECORDED, CommandedSteps

    observer = CommandedSteps(commands, lambda answer: _send(answers, answer))
    if job.script is not None:
        from labkit.profiling.recording.script_run import profile_script

        profile_script(Path(job.script), job.arguments, settings=RECORDED, runs_dir=runs_dir, observer=observer)
        return
    from labkit.training.request import TrainRequest
    from labkit.training.session import train
    from labkit.training.stop import StopRequest

    spare_pandas()
    request: dict[str, Any] = {"device": job.device or "auto", **job.request, "job": job.kind}
    if request["device"] == "cpu":
        request["sample_hz"] = LEAST_SAMPLES_HZ
    with StopRequest() as stop:
        train(
            TrainRequest.from_dict(request),
            runs_dir=runs_dir,
            on_event=lambda event: None,
            stop=stop,
            observer=observer,
        )


def _listen(commands: queue.Queue) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put(None)
    time.sleep(LONGEST_STEP_S)
    os._exit(1)  # it hangs in a step, and nobody is there to end it


def _send(answers: TextIO, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=answers, flush=True)


if __name__ == "__main__":
    status = main()
    os._exit(status)  # all is written; taking torch apart would take up to a second more
