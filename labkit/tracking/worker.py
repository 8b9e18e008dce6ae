"""The process of one script: `python -m labkit.tracking.worker`.

It is told a `ScriptCommand`; the order "go" lets it take its first step, where it waits for that. What it tells are the
events of `labkit.tracking.events`, and at last "Ended" or "Failed".
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from dataclasses import asdict
from typing import Any

from labkit.process import Parent
from labkit.tracking.command import ScriptCommand
from labkit.tracking.ending import RunFailed, StopRequest


def main() -> int:
    parent = Parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a starter may ignore, and so would its children
    command = ScriptCommand.from_dict(parent.content)
    if command.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, command.cores)  # before any library counts its cores
    stop, go = StopRequest(), threading.Event()

    def end() -> None:
        stop.request("its launcher")
        go.set()

    parent.listen(lambda order: go.set(), end)
    with stop:  # a SIGTERM is polite, too
        return _run(command, stop, go, parent)


def _run(command: ScriptCommand, stop: StopRequest, go: threading.Event, parent: Parent) -> int:
    from labkit.errors import UserError, refusal
    from labkit.hardware import is_out_of_memory
    from labkit.runs import is_disk_full
    from labkit.tracking.events import Ready

    def hear(event: Any) -> None:
        parent.tell(type(event).__name__, **asdict(event))
        if isinstance(event, Ready) and command.waits:
            go.wait()

    try:
        from labkit.tracking.binding import bind_process

        bind_process(command, hear, stop)
        from labkit.tracking.script import exit_status, run_command  # torch comes with it

        answer = run_command(command, stop, hear, outlet=parent.outlet)
    except BaseException as error:
        reason = error if isinstance(error, UserError) else refusal(error)
        if isinstance(error, SystemExit):
            reason = f"the script ended with status {error.code!r} before its first step"
        if isinstance(error, KeyboardInterrupt):
            reason = "it was stopped before its run began"
        if reason is None:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
        memory = is_out_of_memory(error) or (error.__cause__ is not None and is_out_of_memory(error.__cause__))
        status = "out_of_memory" if memory else "failed"
        # a run that was cut short, by a full disk say, is "stopped", and its folder is known
        answer = error.answer if isinstance(error, RunFailed) else None
        refused = isinstance(reason, UserError)
        code = error.code if isinstance(error, SystemExit) else None  # of a script that had no run
        more = {
            "refused": refused,
            "disk_full": is_disk_full(error),
            "exit_code": code if isinstance(code, int) else None,
        }
        parent.tell("Failed", status=status, reason=str(reason), answer=answer, **more)
        return 2
    parent.tell("Ended", **answer)
    return exit_status(answer)


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(status)  # a script's threads, exit handlers and open files end as Python ends them
