"""A training script in a process of its own, which `labkit.launch` starts.

Run as a program, this is that process. It gets a `ScriptCommand`, and the order "go" if its first step must wait for
it. It sends the events of `labkit.tracking.events`, and at last "Ended" or "Failed".
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from dataclasses import asdict
from typing import Any

from labkit import UserError, errors, hardware, json_data, process, runs, telemetry
from labkit.tracking.ending import RunFailed, StopRequest, is_cut_off
from labkit.tracking.events import Notice, OnEvent, Ready
from labkit.tracking.harness import ScriptCommand

WAIT_POLICY = "OMP_WAIT_POLICY"


def bind_process(command: ScriptCommand, on_event: OnEvent, stop: StopRequest) -> None:
    """Bind this process to the cores of a command's budget, for the rest of its life.

    Call it before NumPy and torch are loaded, because they read their number of threads only once. If other runs hold
    the cores, it waits until they are free or `stop` is requested, or raises a `UserError`.

    It also decides how threads wait for each other. Busy waiting is best on free cores, but ruinous if another program
    takes one of them: next to a busy process, a DLRM on two cores trained 16 times as fast with passive waiting
    (benchmarks/busy_neighbour.py). So threads wait passively if other programs take a tenth of the cores or half a
    core, unless OMP_WAIT_POLICY is set.
    """

    def say(text: str) -> None:
        on_event(Notice(text))

    budget, cores = command.budget, telemetry.own_affinity()
    if budget is not None:
        os.environ.update(budget.environment())
        for note in budget.take_cores(waits=command.waits_for_cores, say=say, stopped=lambda: bool(stop)):
            say(note)
    if process.is_warm():
        hardware.set_threads(budget.cores if budget is not None and budget.cores else len(telemetry.own_affinity()))
    if command.collocation is not None or "RANK" in os.environ:
        return  # the command that runs several processes has checked, and chosen
    # on all cores that it could have had: programs on other cores do not disturb it
    found = runs.disturbance_text(telemetry.others_now(count=budget and budget.cores, cores=cores))
    if not found:
        return
    waits = ""
    if (budget is None or budget.cores != 1) and WAIT_POLICY not in os.environ:
        os.environ[WAIT_POLICY] = "PASSIVE"
        process.go_cold()  # OpenMP reads it only once
        waits = ", and its threads wait passively, which costs least next to other programs"
    say(f"Before the start {found}. If this continues, the run is marked as disturbed{waits}.")


class WorkerFailed(RuntimeError):
    """The process of a run ended without an answer, or its script raised an error of its own."""


def main() -> int:
    parent = process.Parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent that ignores it would pass that on
    command = json_data.build(parent.content, ScriptCommand)
    if command.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, command.cores)  # before any library counts its cores
    stop, go = StopRequest(), threading.Event()

    def end() -> None:
        stop.request("its launcher")
        go.set()

    parent.listen(lambda order: go.set(), end)
    with stop:  # a SIGTERM also asks politely
        return _run(command, stop, go, parent)


def _run(command: ScriptCommand, stop: StopRequest, go: threading.Event, parent: "process.Parent") -> int:
    def hear(event: Any) -> None:
        parent.tell(type(event).__name__, **asdict(event))
        if isinstance(event, Ready) and command.waits:
            go.wait()

    try:
        bind_process(command, hear, stop)
        from labkit.tracking.script import exit_status, run_command  # torch comes with it

        answer = run_command(command, stop, hear, outlet=parent.outlet)
    except BaseException as error:
        reason = error if isinstance(error, UserError) else errors.refusal(error)
        if isinstance(error, SystemExit):
            reason = f"the script ended with status {error.code!r} before its first step"
        if isinstance(error, KeyboardInterrupt):
            reason = "it was stopped before its run started"
        if reason is None:
            if not is_cut_off(error):  # the rank that is to blame prints its own
                traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
        has_no_memory = any(each and hardware.is_out_of_memory(each) for each in (error, error.__cause__))
        code = error.code if isinstance(error, SystemExit) else None
        parent.tell(
            "Failed",
            status="out_of_memory" if has_no_memory else "failed",
            reason=str(reason),
            # a run that was cut short, for example by a full disk, is "stopped", and its folder is known
            answer=error.answer if isinstance(error, RunFailed) else None,
            refused=isinstance(reason, UserError),
            disk_full=runs.is_disk_full(error),
            exit_code=code if isinstance(code, int) else None,
            cut_off=is_cut_off(error),
        )
        return 2
    parent.tell("Ended", **answer)
    return exit_status(answer)


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if "RANK" in os.environ:
        atexit._run_exitfuncs()
        os._exit(status)  # closing its process group could abort the process, now and then
    sys.exit(status)  # threads, exit handlers and open files of the script end as usual
