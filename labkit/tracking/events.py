"""Events of a run, phases of a step, and the line of progress: what a run reports to those who watch it."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TextIO

from labkit import json_data, runs
from labkit.tracking.ending import in_notebook


@dataclass(frozen=True)
class Point:
    """A point in a run."""

    step: int
    samples: int
    wall_s: float
    """Seconds of training, evaluation and checkpoints since the first step."""
    train_s: float
    """Seconds of training alone."""


@dataclass(frozen=True)
class Notice:
    """A note for those who watch the run, in one line."""

    text: str


@dataclass(frozen=True)
class Preparing:
    """Progress of the preparation of data."""

    fraction: float
    text: str


@dataclass(frozen=True)
class Started:
    """The run folder exists."""

    run: str
    folder: str
    config: dict[str, Any]


@dataclass(frozen=True)
class Ready:
    """Everything is built. The first step starts when the listener returns, so it may wait for other runs."""


@dataclass(frozen=True)
class Progress:
    """Position of the run, and its latest evaluation."""

    point: Point
    samples_per_s: float
    """Training samples per second of training time."""
    loss: float
    """Latest loss; NaN if the script gives none."""
    metrics: dict[str, float]
    """Metrics of the latest evaluation; empty before the first."""
    evaluated: bool
    """Whether that evaluation has just been made."""


def read_event(content: dict[str, Any]) -> Any:
    """The event of another process, made from its fields; "kind" names its class. Other messages stay dictionaries."""
    kinds = {each.__name__: each for each in (Notice, Preparing, Started, Ready, Progress)}
    return json_data.build(content, kinds.get(content["kind"], dict))


OnEvent = Callable[[Any], None]
"""A listener, which takes any of these events."""


INPUT, TO_DEVICE, FORWARD = "input", "host-to-device", "forward"
BACKWARD, OPTIMISER, SYNC = "backward", "optimiser", "sync"
Watcher = Callable[[str], AbstractContextManager]
"""Makes a context from the name of a phase, which is entered and left with the phase."""

_NOBODY = contextlib.nullcontext()
_watcher: Watcher | None = None


def phase(name: str) -> AbstractContextManager:
    """Context of a phase of a step; without a watcher it costs one call."""
    return _NOBODY if _watcher is None else _watcher(name)


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Generator[None]:
    """Report the phases to this watcher during the block."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


QUIET = "LABKIT_QUIET"
"""Environment variable; 1 prints nothing."""
SECONDS_A_LINE = 1.0
"""Shortest time between two printed evaluations; others are skipped."""


def headline(run: str, config: dict[str, Any]) -> str:
    """A line on a run: its job, data, budget, settings and target."""
    train, budget = config["train"], config["budget"]
    data = f" on {config['data']['name']}" if "data" in config else ""
    how = "emulated" if budget["emulated"] else "measured"
    settings = [f"{name} {train[name]}" for name in ("batch_size", "precision", "kernels", "seed") if name in train]
    metric = train["target_metric"]
    goal = f"watching {metric}, no target" if metric else "no target"
    if train["target"] is not None:
        goal = f"target {metric} {train['target']:g}"
    return ", ".join([f"run {run}: {config['job']}{data}", f"{budget['name']} ({how})", *settings, goal])


def progress_text(progress: Progress, metric: str | None) -> str:
    """The progress of a run, as one line."""
    point = progress.point
    parts = [f"{point.wall_s:7.1f} s", f"step {point.step:,}"]
    if point.samples:
        parts += [f"{point.samples:,} samples", f"{progress.samples_per_s:,.0f}/s"]
    if not math.isnan(progress.loss):
        parts.append(f"loss {progress.loss:.4f}")
    shown = {metric: progress.metrics[metric]} if metric in progress.metrics else progress.metrics
    parts += [f"{name} {value:.4f}" for name, value in shown.items()]
    return "  ".join(parts)


def time_left_s(config: dict[str, Any], wall_s: float, samples: int) -> float | None:
    """Seconds until the nearest limit in the run's configuration; None without a limit, or before any sample."""
    train, guesses = config["train"], []
    train_samples, epochs = config.get("data", {}).get("train_samples"), train.get("max_epochs")
    if samples and train_samples and epochs is not None:
        guesses.append(wall_s * (epochs * train_samples / samples - 1))
    if train["max_seconds"] is not None:
        guesses.append(train["max_seconds"] - wall_s)
    return max(0.0, min(guesses)) if guesses else None


class ProgressLine:
    """Prints events as lines to standard error; in a notebook, to its output."""

    def __init__(self, file: TextIO | None = None, *, evaluations: bool = True) -> None:
        self._is_quiet, self._evaluations = os.environ.get(QUIET) == "1", evaluations
        self._file = file or (sys.stdout if in_notebook() else sys.stderr)
        self._metric: str | None = None
        self._is_preparing = False
        self._printed_at = -math.inf

    def __call__(self, event: Any) -> None:
        if isinstance(event, Notice):
            self._print(event.text)
        elif isinstance(event, Preparing) and event.fraction < 1 and not self._is_preparing:
            self._is_preparing = True
            self._print("preparing the data (only this once) ...")
        elif isinstance(event, Started):
            self._metric = event.config["train"].get("target_metric")
            self._print(headline(event.run, event.config))
        elif isinstance(event, Progress) and event.evaluated and self._evaluations:
            now = time.monotonic()
            if now - self._printed_at >= SECONDS_A_LINE:
                self._printed_at = now
                self._print(progress_text(event, self._metric))
        elif isinstance(event, dict) and "result" in event:
            self._print(_ended(event))

    def _print(self, text: str) -> None:
        if not self._is_quiet:
            print(text, file=self._file, flush=True)


def _ended(answer: dict[str, Any]) -> str:
    result = answer["result"]
    text = f"{answer['status']}: {result['reason']}"
    if result["target_reached"]:
        text += f"; target first reached after {result['time_to_target_s']:.1f} s"
    elif result["target_reached"] is False and result["best_validation"] is not None:
        text += f"; target not reached, best {result['best_validation']:.4f}"
    if disturbed := runs.disturbance_text(result.get("others")):
        text = f"{text.rstrip('.')}; disturbed: {disturbed}"
    if answer["folder"] not in text:
        text = f"{text.rstrip('.')}. {answer['folder']}"
    return text
