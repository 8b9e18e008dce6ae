"""The process of a job: it comes as far as the first step, waits at the barrier, and trains.

The first line on standard input says what to do, the next is the barrier's "go", and its end asks to stop. Events go
out as JSON lines; whatever else is printed goes to the log.
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

from labkit.collocation.launching.containment import die_with
from labkit.collocation.launching.keeper import KEEPER

if TYPE_CHECKING:
    from labkit.training.stop import StopRequest


class _Barrier:
    """Lets the job through when the launcher says so, and asks it to stop when it is gone."""

    def __init__(self, orders: int, stop: StopRequest):
        """Listen at a file descriptor."""
        self._gone_through, self._stop = threading.Event(), stop
        threading.Thread(target=self._listen, args=(orders,), daemon=True).start()

    def wait(self) -> None:
        self._gone_through.wait()

    def _listen(self, orders: int) -> None:
        heard = b""
        while chunk := os.read(orders, 4096):  # not through a buffer, whose lock would be held at exit
            heard += chunk
            if b"go\n" in heard:
                self._gone_through.set()
        self._stop.request("its launcher")
        self._gone_through.set()


def main() -> int:
    die_with(int(os.environ[KEEPER]))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which the keeper ignores, and so would its children
    command = json.loads(_first_line())
    if command["cores"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, command["cores"])  # before any library counts its cores
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library or a script prints is no event
    orders = os.dup(0)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)

    from labkit.training.stop import StopRequest

    stop = StopRequest()
    return _run(command, stop, _Barrier(orders, stop), events)


def _first_line() -> bytes:
    """The first line of standard input, and not a byte more: what follows is the barrier's."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _run(command: dict[str, Any], stop: StopRequest, barrier: _Barrier, events: IO[str]) -> int:
    from labkit.errors import UserError, refusal
    from labkit.hardware.budgets.budget import is_out_of_memory
    from labkit.training.announcements import Ready
    from labkit.training.session import RunFailed

    def tell(kind: str, content: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # where the keeper is gone, so is this process in a moment
            events.write(json.dumps({"kind": kind, **content}) + "\n")
            events.flush()

    def hear(event: Any) -> None:
        tell(type(event).__name__, asdict(event))
        if isinstance(event, Ready):
            barrier.wait()

    try:
        answer = (_run_script if command["job"]["kind"] == "script" else _train)(command, stop, hear)
    except BaseException as error:
        reason = error if isinstance(error, UserError) else refusal(error)
        if reason is None:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
        memory = is_out_of_memory(error) or (error.__cause__ is not None and is_out_of_memory(error.__cause__))
        status = "out_of_memory" if memory else "failed"
        # a run that was cut short, by a full disk say, is "stopped", and its folder is known
        answer = error.answer if isinstance(error, RunFailed) else None
        tell("Failed", {"status": status, "reason": str(reason), "answer": answer})
        return 2
    tell("Ended", answer)
    return 0


def _train(command: dict[str, Any], stop: StopRequest, hear: Any) -> dict[str, Any]:
    from labkit.runs.parts import spare_pandas
    from labkit.training.request import TrainRequest
    from labkit.training.session import train

    spare_pandas()
    job = command["job"]
    request = job["request"] | {"job": job["kind"], "device": command["device"]}
    if command["memory_bytes"] is not None:
        cores = "" if command["cores"] is None else f"cores={len(command['cores'])},"
        request["budget"] = f"{cores}memory={command['memory_bytes'] // 2**20}MiB"
    return train(TrainRequest.from_dict(request), runs_dir=Path(command["runs_dir"]), on_event=hear, stop=stop)


def _run_script(command: dict[str, Any], stop: StopRequest, hear: Any) -> dict[str, Any]:
    from labkit.collocation.launching.script_job import run_script

    job = command["job"]
    return run_script(
        Path(job["script"]).absolute(),
        job["arguments"],
        folder=job["folder"],
        runs_dir=Path(command["runs_dir"]),
        device=command["device"],
        memory_bytes=command["memory_bytes"],
        on_event=hear,
        stop=stop,
    )


if __name__ == "__main__":
    status = main()
    if "labkit.collocation.launching.script_job" in sys.modules:
        sys.exit(status)  # a script's threads, exit handlers and open files end as Python ends them
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # all is written; taking torch apart would take up to a second more
