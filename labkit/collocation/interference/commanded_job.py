"""The program that runs a training script on command: commands come in on standard input, answers go out on output.

One line of JSON each; the first line in is the script's `ScriptCommand`. When standard input closes, because the
launcher ended or was killed, the script ends, so that nothing is left running.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any, TextIO

from labkit.errors import UserError, refusal
from labkit.tracking.command import ScriptCommand

LONGEST_STEP_S = 60.0
"""Within which a script whose launcher is gone comes to the end of its step."""


def main() -> int:
    # what the script prints must not get among the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    commands: queue.Queue = queue.Queue()
    command = ScriptCommand.from_dict(json.loads(sys.stdin.readline()))
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    try:
        _run(command, commands, answers)
    except Exception as error:
        refused = error if isinstance(error, UserError) else refusal(error)
        if refused is None:
            raise
        _send(answers, {"error": str(refused)})
        return 2
    return 0


def _run(command: ScriptCommand, commands: queue.Queue, answers: TextIO) -> None:
    from labkit.collocation.interference.commanded_steps import CommandedSteps
    from labkit.tracking.script import run_command
    from labkit.tracking.stop import StopRequest

    steps = CommandedSteps(commands, lambda answer: _send(answers, answer))
    run_command(command, StopRequest(), lambda event: None, observer=steps)
    if not steps.is_done:
        raise UserError(f"{command.script} ended by itself, after {steps.taken} steps: let it train for longer.")


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
