"""The tour: every job under every budget of this machine, one run after another, whatever happens to one of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware.budgets.names import offered_budgets
from labkit.jobs.command import job_command
from labkit.tracking.launch import LaunchedRun, WorkerFailed

SECONDS_A_RUN = 75.0
"""A tour of n runs ends after about n times this on the slowest machine; on two cores a run takes not half of it."""

RUN_SECONDS = 240.0
"""A run that has not reached its target by then is censored."""


@dataclass
class TourRun:
    """One run of the tour, planned, under way or over."""

    job: str
    """"dlrm" or "speech", or the path of a script"""
    budget: str
    seed: int = 0
    state: str = "waiting"
    """"waiting", "running", "done", "stopped" or "failed"."""
    folder: Path | None = None
    began_at: float | None = None
    """When its folder was there, on the monotonic clock: not while it waited for cores"""
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
    """Launch the runs one after another; Ctrl-C stops the one under way politely and skips the rest.

    Args:
        tour: the plan; its runs get what they came to.
        runs_dir: the folder that run folders are made in.
        on_event: called with what happens.
    """
    spent_s = 0.0
    for number, run in enumerate(tour):
        left_s = SECONDS_A_RUN * len(tour) - spent_s
        max_seconds = seconds_for_next(left_s, len(tour) - number)
        try:
            _change(run, "running", on_event)
            command = job_command(run.job, budget=run.budget, runs_dir=runs_dir, seed=run.seed, max_seconds=max_seconds)
            with LaunchedRun(command) as launched:
                _follow_to_its_end(run, launched, on_event)
        except (UserError, WorkerFailed) as error:
            run.error = error
            _change(run, "failed", on_event)
        except KeyboardInterrupt:
            _change(run, "stopped", on_event)
            return
        else:
            _change(run, "done", on_event)
        if run.began_at is not None:
            spent_s += time.monotonic() - run.began_at


def seconds_for_next(left_s: float, runs_left: int) -> float:
    """How long the next run may train, so that all that are left have their share.

    >>> seconds_for_next(600, 2), seconds_for_next(400, 4), seconds_for_next(-5, 3)
    (240.0, 100.0, 1.0)
    """
    return max(1.0, min(RUN_SECONDS, left_s / runs_left))


def _follow_to_its_end(run: TourRun, launched: LaunchedRun, on_event: OnTourEvent) -> None:
    """Pass on a run's events; at Ctrl-C, stop it and see it end."""
    try:
        _follow(run, launched, on_event)
    except KeyboardInterrupt:
        launched.stop()
        with contextlib.suppress(UserError, WorkerFailed):  # as where it had not begun
            _follow(run, launched, on_event)
        raise


def _follow(run: TourRun, launched: LaunchedRun, on_event: OnTourEvent) -> None:
    for event in launched.events():
        if event["kind"] == "Started":
            run.folder, run.began_at = Path(event["folder"]), time.monotonic()
        on_event(run, event)
    run.answer = launched.answer


def _change(run: TourRun, state: str, on_event: OnTourEvent) -> None:
    run.state = state
    on_event(run, {"kind": "State"})
