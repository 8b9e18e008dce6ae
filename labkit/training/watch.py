"""Trains in a process of its own and prints how it goes: the notebooks' way to start a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from labkit.training.launch import LaunchedRun
from labkit.training.metrics import METRICS
from labkit.training.request import TrainRequest

SECONDS_A_LINE = 1.0
"""Evaluations that come faster than this are not all printed: a notebook keeps every line."""


def watch(request: TrainRequest, runs_dir: Path | str, *, evaluations: bool = True) -> dict[str, Any]:
    """Train to the request's end and print a line at the start, for evaluations, and at the end.

    Interrupting the kernel stops the run politely; what it did until then stays in its folder.

    Args:
        request: what to train, and under which budget.
        runs_dir: the folder that the run folder is made in.
        evaluations: whether to print evaluations, at most one a second.

    Returns:
        `{"run", "folder", "status", "result"}`, as `labkit train --json` prints it.

    Raises:
        UserError: the run was refused.
        RunFailed: it diverged.
        KeyboardInterrupt: after the run has stopped.
    """
    printer = _Printer(request, evaluations)
    with LaunchedRun(request, Path(runs_dir)) as launched:
        try:
            _follow(launched, printer)
        except KeyboardInterrupt:
            launched.stop()
            _follow(launched, printer)
            raise
    return launched.answer


def _follow(launched: LaunchedRun, printer: _Printer) -> None:
    for event in launched.events():
        printer.show(event)


class _Printer:
    def __init__(self, request: TrainRequest, evaluations: bool):
        self._request, self._evaluations = request, evaluations
        self._preparing = False
        self._printed_at_s = -SECONDS_A_LINE
        self._metric = ""

    def show(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "Preparing" and event["fraction"] < 1 and not self._preparing:
            self._preparing = True
            print("preparing the data, which is done once ...", flush=True)
        elif kind == "Notice":
            print(event["text"], flush=True)
        elif kind == "Started":
            self._started(event["config"])
        elif kind == "Progress" and event["evaluated"] and self._evaluations:
            self._evaluated(event)
        elif kind == "Ended":
            self._ended(event)

    def _started(self, config: dict[str, Any]) -> None:
        train, budget = config["train"], config["budget"]
        self._metric = train["target_metric"]
        goal = f"target {self._metric} {train['target']:g}" if train["target"] is not None else "no target"
        how = "emulated" if budget["emulated"] else "measured"
        print(
            f"{config['job']} on {config['data']['name']}, {budget['name']} ({how}), "
            f"batch_size {train['batch_size']}, seed {train['seed']}, {goal}",
            flush=True,
        )

    def _evaluated(self, progress: dict[str, Any]) -> None:
        now_s = time.monotonic()
        if now_s - self._printed_at_s < SECONDS_A_LINE:
            return
        self._printed_at_s = now_s
        point = progress["point"]
        print(
            f"{point['wall_s']:7.1f} s {point['samples']:>10,} samples {progress['samples_per_s']:>9,.0f}/s   "
            f"{self._metric} {progress['metrics'][self._metric]:.4f}",
            flush=True,
        )

    def _ended(self, answer: dict[str, Any]) -> None:
        result = answer["result"]
        parts = [f"{answer['status']} after {result['wall_s']:.1f} s ({result['reason']})"]
        if result["target_reached"]:
            parts.append(f"target first reached at {result['time_to_target_s']:.1f} s")
        elif result["target_reached"] is False:
            best = result["best_validation"]
            word = "highest" if METRICS[self._metric].higher_is_better else "lowest"
            parts.append("target not reached" + (f", {word} {self._metric} {best:.4f}" if best is not None else ""))
        print(f"   {'; '.join(parts)}", flush=True)
