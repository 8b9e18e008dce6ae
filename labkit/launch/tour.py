"""The tour: every job under every budget of this machine, one run after another, whatever happens to one of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware import offered_budgets
from labkit.jobs import JOBS, MAX_EPOCHS, get_preset, job_command
from labkit.tracking import LaunchedRun, WorkerFailed

RUN_SECONDS = 240.0
"""A run that has not reached its target by then is censored; on two cores it takes not a sixth of it."""
LAST_START_S = 720.0
"""Later in the tour no run begins, so that it is over within about a quarter of an hour, whatever its runs do."""


@dataclass
class TourRun:
    """One run of the tour, planned, under way or over."""

    job: str
    """"dlrm" or "speech", or the path of a script"""
    budget: str
    seed: int = 0
    state: str = "waiting"
    """"waiting", "running", "done", "stopped", "failed" or "left out"."""
    folder: Path | None = None
    answer: dict[str, Any] | None = None
    error: UserError | WorkerFailed | None = None

    @property
    def reached_target(self) -> bool:
        return self.answer is not None and self.answer["result"]["target_reached"] is True


def plan_tour(jobs: Sequence[str], seeds: Sequence[int]) -> list[TourRun]:
    """One run for each job, budget this machine offers, and seed; budgets take turns, so drift hits all alike."""
    return [TourRun(job, budget.name, seed) for job in jobs for seed in seeds for budget in offered_budgets()]


OnTourEvent = Callable[[TourRun, dict[str, Any]], None]
"""Called with a run and what happened to it: an event of `LaunchedRun.events`, or "State" when its state changed."""


def run_tour(tour: list[TourRun], runs_dir: Path, on_event: OnTourEvent) -> None:
    """Launch the runs one after another; Ctrl-C stops the one under way politely and skips the rest."""
    began = time.monotonic()
    for run in tour:
        if time.monotonic() - began > LAST_START_S:
            _change(run, "left out", on_event)
            continue
        try:
            _change(run, "running", on_event)
            limits = {"max_seconds": RUN_SECONDS, "max_epochs": usual_epochs(run.job)}
            command = job_command(run.job, budget=run.budget, runs_dir=runs_dir, seed=run.seed, **limits)
            with LaunchedRun(command) as launched:
                try:
                    _follow(run, launched, on_event)
                except KeyboardInterrupt:
                    launched.stop()
                    with contextlib.suppress(UserError, WorkerFailed):  # as where it had not begun
                        _follow(run, launched, on_event)
                    raise
        except (UserError, WorkerFailed) as error:
            run.error = error
            _change(run, "failed", on_event)
        except KeyboardInterrupt:
            _change(run, "stopped", on_event)
            return
        else:
            _change(run, "done", on_event)


def usual_epochs(job: str) -> int | None:
    """Of one of the kit's jobs; a script of the reader's has flags of its own."""
    return get_preset(job, "tour").train.get("max_epochs", MAX_EPOCHS) if job in JOBS else None


def _follow(run: TourRun, launched: LaunchedRun, on_event: OnTourEvent) -> None:
    for event in launched.events():
        if event["kind"] == "Started":
            run.folder = Path(event["folder"])
        on_event(run, event)
    run.answer = launched.answer


def _change(run: TourRun, state: str, on_event: OnTourEvent) -> None:
    run.state = state
    on_event(run, {"kind": "State"})
