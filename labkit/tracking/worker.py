"""The process of one script: `python -m labkit.tracking.worker`.

The first line on standard input is a `ScriptCommand`; "go" lets it take its first step, where it waits for that; the
end of input, because its starter is done or was killed, asks it to stop. Events go out as JSON lines; what the script
prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from labkit.process.containment import PARENT, die_with

if TYPE_CHECKING:
    from labkit.tracking.stop import StopRequest


class _Orders:
    """Listens to the starter."""

    def __init__(self, orders: int, stop: StopRequest):
        """Listen at a file descriptor."""
        self._go, self._stop = threading.Event(), stop
        threading.Thread(target=self._listen, args=(orders,), daemon=True).start()

    def wait_for_go(self) -> None:
        self._go.wait()

    def _listen(self, orders: int) -> None:
        heard = b""
        while chunk := os.read(orders, 4096):  # not through a buffer, whose lock would be held at exit
            heard += chunk
            if b"go\n" in heard:
                self._go.set()
        self._stop.request("its launcher")
        self._go.set()


def main() -> int:
    if parent := os.environ.pop(PARENT, None):  # what this process starts has another parent
        die_with(int(parent))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a starter may ignore, and so would its children
    values = json.loads(_first_line())
    if values.get("cores") is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, values["cores"])  # before any library counts its cores
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library or a script prints is no event
    orders = os.dup(0)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)

    from labkit.tracking.command import ScriptCommand
    from labkit.tracking.stop import StopRequest

    stop = StopRequest()
    with stop:  # a SIGTERM is polite, too
        return _run(ScriptCommand.from_dict(values), stop, _Orders(orders, stop), events)


def _first_line() -> bytes:
    """The first line of standard input, and not a byte more: what follows are orders."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _run(command: Any, stop: StopRequest, orders: _Orders, events: IO[str]) -> int:
    from labkit.errors import UserError, refusal
    from labkit.hardware.budgets.budget import is_out_of_memory
    from labkit.tracking.ending import RunFailed
    from labkit.tracking.events import Ready

    def tell(kind: str, content: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # where the starter is gone, so is this process in a moment
            events.write(json.dumps({"kind": kind, **content}) + "\n")
            events.flush()

    def hear(event: Any) -> None:
        tell(type(event).__name__, asdict(event))
        if isinstance(event, Ready) and command.waits:
            orders.wait_for_go()

    try:
        from labkit.tracking.binding import bind_process

        budget = bind_process(command, hear, stop)
        from labkit.tracking.script import exit_status, run_command  # torch comes with it

        answer = run_command(command, stop, hear, budget=budget, outlet=events.fileno())
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
        tell("Failed", {"status": status, "reason": str(reason), "answer": answer, "refused": refused})
        return 2
    tell("Ended", answer)
    return exit_status(answer)


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(status)  # a script's threads, exit handlers and open files end as Python ends them
