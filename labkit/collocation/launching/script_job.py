"""Runs an unchanged training script as a job: its steps are counted, what it takes is sampled, its end is recorded."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget, is_out_of_memory, memory_error
from labkit.hardware.budgets.names import offered_budgets, parse_budget
from labkit.hardware.devices import get_devices
from labkit.hardware.software import package_versions
from labkit.runs import Provenance, RunWriter
from labkit.telemetry import Sampler, forget_peak_memory, peak_memory
from labkit.training.announcements import Notice, OnEvent, Ready, Started
from labkit.training.as_main import as_main
from labkit.training.crossings import Point
from labkit.training.stop import StopRequest

TELL_EVERY_S = 0.5
"""So often the number of steps is recorded and told."""


@dataclass(frozen=True)
class ScriptProgress:
    """How far a script is: its steps; samples are not known."""

    point: Point


class StepCount:
    """Steps of the optimiser that stepped first, by torch's hook; of other optimisers beside it none are counted."""

    def __init__(self) -> None:
        self.steps = 0
        self._first: torch.optim.Optimizer | None = None

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count during the block."""
        hook = optimizers.register_optimizer_step_post_hook(self._stepped)
        try:
            yield
        finally:
            hook.remove()

    def _stepped(self, optimizer: torch.optim.Optimizer, arguments: Any, keywords: Any) -> None:
        self._first = self._first or optimizer
        self.steps += optimizer is self._first


def run_script(
    script: Path,
    arguments: Sequence[str],
    *,
    folder: str | None,
    runs_dir: Path,
    device: str,
    memory_bytes: int | None,
    on_event: OnEvent,
    stop: StopRequest,
) -> dict[str, Any]:
    """Run a script to its end in this process, as `python script arguments` would.

    Args:
        script: a Python file.
        arguments: of the script.
        folder: that it runs in; None takes this process' own.
        runs_dir: the folder that the run's folder is made in.
        device: what torch calls the device that it may use, for the record: the script chooses itself among those
            that it sees.
        memory_bytes: cap on its memory, or None.
        on_event: called with what happens; the script begins when it returns from Ready.
        stop: interrupts the script as Ctrl-C would.

    Returns:
        `{"run", "folder", "status", "result"}`.

    Raises:
        UserError: there is no such script, or it needs more memory than it may have.
        Exception: what the script raised.
    """
    if not script.is_file():
        raise UserError(f"{script}: there is no such script: name a Python file.")
    budget = _budget(device, memory_bytes)
    for note in budget.enforce():
        on_event(Notice(note))
    devices = get_devices()
    config = {"job": "script", "script": str(script), "arguments": list(arguments), "budget": budget.to_dict()}
    run = RunWriter.create(
        runs_dir,
        f"script-{''.join(char if char.isalnum() or char in '-_' else '-' for char in script.stem)[:40]}",
        config=config,
        budget=budget.to_dict(),
        tier=budget.tier,
        devices=[each.to_dict() for each in devices],
        seed=0,
        provenance=Provenance.now("emulated" if budget.emulated else "measured"),
        software=package_versions(),
    )
    answer: dict[str, Any] = {"run": run.run_id, "folder": str(run.folder), "status": "failed", "result": {}}
    on_event(Started(run.run_id, str(run.folder), config))
    count = StepCount()
    try:
        forget_peak_memory()
        with Sampler(run.folder, on_fault=lambda kind, what: run.event("fault", kind=kind, what=what)):
            on_event(Ready())
            _run(script, arguments, folder, run, count, on_event, stop, answer)
    except BaseException as error:
        budget.forgive(error)
        answer["result"]["reason"] = f"{type(error).__name__}: {error}"
        run.event("fault", kind="error", what=answer["result"]["reason"])
        if is_out_of_memory(error) and budget.memory_bytes is not None:
            this = next((each for each in devices if each.torch_name == device), devices[0])
            raise memory_error(budget, this, 1, error) from error
        raise
    finally:
        answer["result"]["peak_memory_bytes"] = peak_memory(run.folder)
        run.event("ended", status=answer["status"], reason=answer["result"].get("reason", ""))
        run.finish(answer["status"], answer["result"])
    return answer


def _budget(device: str, memory_bytes: int | None) -> Budget:
    if memory_bytes is not None:
        return parse_budget(f"memory={memory_bytes // 2**20}MiB")
    whole = {budget.torch_name: budget for budget in offered_budgets()}
    return whole.get(device, whole["cpu"])


def _run(
    script: Path,
    arguments: Sequence[str],
    folder: str | None,
    run: RunWriter,
    count: StepCount,
    on_event: OnEvent,
    stop: StopRequest,
    answer: dict[str, Any],
) -> None:
    """Run the script, and note its status and result whatever happens."""
    import runpy

    began, ended = time.perf_counter(), threading.Event()

    def note() -> None:
        wall_s, steps = time.perf_counter() - began, count.steps
        run.metric(name="steps", value=steps, step=steps, wall_s=wall_s, train_s=wall_s, samples=0)
        on_event(ScriptProgress(Point(steps, 0, wall_s, wall_s)))

    def watch() -> None:
        interrupted = False
        while not ended.wait(TELL_EVERY_S):
            note()
            if stop and not interrupted:
                interrupted = True
                os.kill(os.getpid(), signal.SIGINT)  # the script may take its time to save what it has

    watcher = threading.Thread(target=watch, daemon=True)
    reason = "the script ended"
    answer["status"] = "failed"
    try:
        with as_main(script, arguments), contextlib.chdir(folder or "."), count.counting():
            watcher.start()
            runpy.run_path(str(script), run_name="__main__")
        answer["status"] = "done"
    except SystemExit as error:
        answer["status"] = "done" if error.code in (None, 0) else "failed"
        reason = f"the script ended by sys.exit({error.code!r})"
    except KeyboardInterrupt:
        answer["status"], reason = "stopped", f"stopped by {stop.reason or 'Ctrl-C'}"
    finally:
        ended.set()
        watcher.join()
        note()
        wall_s = time.perf_counter() - began
        answer["result"] |= {
            "reason": reason,
            "wall_s": wall_s,
            "train_s": wall_s,
            "steps": count.steps,
            "steps_per_s": count.steps / wall_s,
            "target_reached": None,
            "time_to_target_s": None,
        }
