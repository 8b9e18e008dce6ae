"""Runs the tour's plan one run after another, and keeps what was finished whatever happens to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.training.launch import LaunchedRun, WorkerFailed
from labkit.training.request import TrainRequest


@dataclass
class TourRun:
    """One run of the tour, planned, under way or over."""

    request: TrainRequest
    state: str = "waiting"
    """"waiting", "running", "done", "stopped" or "failed"."""
    folder: Path | None = None
    answer: dict[str, Any] | None = None
    error: str | None = None


def run_tour(
    requests: list[TrainRequest], runs_dir: Path, on_event: Callable[[TourRun, dict[str, Any]], None]
) -> list[TourRun]:
    """Launch the runs one after another; Ctrl-C stops the one under way politely and skips the rest.

    Args:
        requests: the plan.
        runs_dir: the folder that run folders are made in.
        on_event: called with a run and what happened to it (`LaunchedRun.events`, and "State" when its state changed).
    """
    tour = [TourRun(request) for request in requests]
    for run in tour:
        _change(run, "running", on_event)
        try:
            with LaunchedRun(run.request, runs_dir) as launched:
                try:
                    _follow(run, launched, on_event)
                except KeyboardInterrupt:
                    launched.stop()
                    _follow(run, launched, on_event)
                    _change(run, "stopped", on_event)
                    return tour
        except (UserError, WorkerFailed) as error:
            run.error = str(error)
            _change(run, "failed", on_event)
            continue
        _change(run, "done", on_event)
    return tour


def _follow(run: TourRun, launched: LaunchedRun, on_event: Callable[[TourRun, dict[str, Any]], None]) -> None:
    for event in launched.events():
        if event["kind"] == "Started":
            run.folder = Path(event["folder"])
        on_event(run, event)
    run.answer = launched.answer


def _change(run: TourRun, state: str, on_event: Callable[[TourRun, dict[str, Any]], None]) -> None:
    run.state = state
    on_event(run, {"kind": "State"})
