"""Runs a training script in this process, inside a harness: with `Run` in it or without."""

import contextlib
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit import UserError, errors, hardware, runs
from labkit.tracking.ending import (
    CLOSE_RECORD,
    EXIT_STOPPED,
    Enough,
    RunFailed,
    Stopped,
    StopRequest,
    script_frames,
    script_refusal,
)
from labkit.tracking.events import Notice, OnEvent
from labkit.tracking.harness import Harness, ScriptCommand, SpawnedRuns, whole_device
from labkit.tracking.optimisers import OptimiserSteps
from labkit.tracking.position import seed_all
from labkit.tracking.run import Run, open_run

NOT_COUNTED = "steps in other processes that the script started are not counted"
OPEN_A_RUN = "open a labkit.Run in the script, which counts those of its first rank"
OWN_SCRIPTS = Path(__file__).parents[1] / "jobs"
LEAST_CHILDREN_S = 0.5
"""CPU time of its children from which a script without a step may have trained in them, by other means than the torch
of this environment: torch's import takes longer"""


def run_command(
    command: ScriptCommand, stop: StopRequest, on_event: OnEvent, *, steps: OptimiserSteps | None = None, **more: Any
) -> dict[str, Any]:
    """Run a command's script to its end in this process, as `python script arguments` would, under its budget.

    A script without a `Run` gets one that counts its steps, as `steps` reports them, from before the first one on.
    `more` are fields of `Harness`.

    Returns:
        `{"run", "folder", "status", "result"}` of the script's last run; empty on a rank that does not write one.

    Raises:
        RunFailed: a run diverged, or was cut short. Errors that the script raises before it has a run pass unchanged.
    """
    steps = steps or OptimiserSteps()
    script = Path(errors.certain(command.script)).absolute()
    if not script.is_file():
        raise UserError(f"{command.script}: there is no such script: give a Python file.")
    bound = command.budget
    command = replace(
        command,
        script=command.module or os.path.abspath(script),  # noqa: PTH100  links are not resolved
        runs_dir=str(Path(command.runs_dir).absolute()),
        resume=command.resume and str(Path(command.resume).absolute()),
        budget=bound or (command.device and whole_device(command.device)),
    )
    harness = Harness(stop, command, on_event, **more)
    if bound is not None:  # a whole device (the other case) has no limits
        for note in bound.cap_memory(CLOSE_RECORD, harness.outlet):
            harness.tell(Notice(note))
    if script.parent == OWN_SCRIPTS:
        runs.spare_pandas()
    hardware.keep_memory()
    if command.budget is not None:
        command.budget.bind_torch()
    if command.seed is not None:
        seed_all(command.seed)
    launched = next((each for each in command.arguments if command.module and each.endswith(".py")), None)
    name = Path(launched).stem if launched else command.module or script.stem  # of torchrun, what it launches
    spawned = SpawnedRuns(harness)
    implicit = _ImplicitRun(name, harness, spawned)
    with harness.wrapped(), as_main(script, command), spawned, _heard(spawned, harness):
        try:
            with steps.watched(implicit.begin, implicit.step):
                try:
                    if command.module is None:
                        runpy.run_path(str(script), run_name="__main__")
                    else:
                        runpy.run_module(command.module, run_name="__main__", alter_sys=True)
                except BaseException as error:
                    if harness.seen_enough and not isinstance(error, KeyboardInterrupt):
                        raise Enough from error  # a `finally` of the script may have made an exit of it
                    raise
            implicit.end(None)
        except (Enough, Stopped) as error:
            implicit.end(error)
        except SystemExit as error:
            if not harness.answer and open_run() is None:
                raise
            implicit.end(error)
            if not (answer := harness.answer):
                raise
            if error.code not in (None, 0) and answer["status"] == "done":
                said = f"{script}: the run is done, but then the script ended by sys.exit({error.code!r})"
                raise RunFailed(said, answer) from error
        except UserError as error:
            if open_run() is not None:
                implicit.end(error)
            if answer := harness.answer:
                raise RunFailed(str(error), answer) from error
            raise
        except BaseException as error:
            implicit.begin(None)
            implicit.end(error)
            answer = harness.answer
            if not answer and int(os.environ.get("RANK") or "0"):
                raise  # rank 0 writes the record
            if (refused := script_refusal(error)) is not None:
                raise RunFailed(answer["result"]["reason"] if answer else str(refused), answer) from error
            if not answer and harness.had_run:
                raise
            if isinstance(error, KeyboardInterrupt) and harness.stop:
                if not answer:
                    raise SystemExit(EXIT_STOPPED) from None  # before it had a run
                return answer
            if hardware.is_out_of_memory(error):
                raise RunFailed(answer["result"]["reason"], answer) from error
            raise
    return harness.answer


def exit_status(answer: Mapping[str, Any]) -> int:
    """Exit status for a run's answer: 130 if it was stopped, else 0, 1, or the status of the script."""
    if not answer:
        return 0
    status = {"done": 0, "stopped": EXIT_STOPPED}.get(answer["status"], 1)
    return answer["result"].get("exit_code", status) if answer["status"] == "failed" else status


@contextlib.contextmanager
def as_main(script: Path, command: ScriptCommand) -> Generator[None]:
    """Set sys.argv, sys.path and the folder as for `python script arguments`, during the block.

    A script may replace the streams by a file, and close it.
    """
    argv, path, streams = sys.argv, sys.path, (sys.stdout, sys.stderr)
    sys.argv = [str(script), *command.arguments]
    sys.path = [os.path.dirname(os.path.abspath(script)), *path]  # noqa: PTH100, PTH120  as Python itself does
    try:
        with contextlib.chdir(command.folder or "."):
            yield
    finally:
        sys.argv, sys.path, (sys.stdout, sys.stderr) = argv, path, streams


class _ImplicitRun:
    """The run of a script without a `Run`."""

    def __init__(self, name: str, harness: Harness, spawned: SpawnedRuns):
        self._name, self._harness, self._spawned = name, harness, spawned
        self._run: Run | None = None
        self._children_s = _children_s()

    def begin(self, optimizer: Any) -> None:
        """Start the run before the first step, if the script has not had a run of its own."""
        if not (self._harness.had_run or self._harness.answer) and self._run is None:
            self._run = Run(self._name)
            self._run.is_implicit = True
            self._run.__enter__()
            if optimizer is not None:
                self._harness.computes_on(each for group in optimizer.param_groups for each in group["params"])
                self._run.start_clock()

    def step(self) -> None:
        if self._run is not None and open_run() is self._run:
            self._run.step(samples=0)

    def end(self, error: BaseException | None) -> None:
        self._spawned.listen()
        if error is None:
            self.begin(None)  # even a script without a step leaves a record
        if self._run is not None and open_run() is self._run:
            took_s = _children_s() - self._children_s
            if self._spawned.have_steps or (not self._run.position.step and took_s > LEAST_CHILDREN_S):
                used = f" (those that have ended used {took_s:.1f} s of CPU time)" if took_s >= LEAST_CHILDREN_S else ""
                self._run.remark = f"; {NOT_COUNTED}{used}: {OPEN_A_RUN}"
            self._run.__exit__(type(error) if error else None, error, None)


def _children_s() -> float:
    """CPU time of the processes that this one started and waited for; 0 where the system does not say (Windows)."""
    times = os.times()
    return times.children_user + times.children_system


@contextlib.contextmanager
def _heard(spawned: SpawnedRuns, harness: Harness) -> Generator[None]:
    """Listen to runs in processes that the script starts, and interrupt a script without a `Run`, as Ctrl-C would."""
    ended = threading.Event()

    def watch() -> None:
        interrupted = False
        while not ended.wait(runs.STOP_POLL_S):
            spawned.listen()
            run = open_run()
            if run is not None and run.is_implicit and run.over == "stopped":
                harness.stop.request("request")  # the request came through its folder, which only this checks
            # a script whose run has ended may go on to its own end
            goes_on = not harness.answer if run is None else run.is_implicit and not run.is_leaving
            if harness.stop and goes_on and not (interrupted or spawned.is_ending):
                interrupted = True
                os.kill(os.getpid(), signal.SIGINT)  # the script may take its time to save what it has

    watcher = threading.Thread(target=watch, daemon=True)
    with errors.refusals():
        watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def print_error(error: BaseException) -> None:
    """Print an error of a script as Python would, without labkit's own frames."""
    traceback.print_exception(type(error), error, script_frames(error))
