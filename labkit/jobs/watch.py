"""Trains in a process of its own and prints how it goes: the notebooks' way to start a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from labkit.jobs.command import job_command
from labkit.tracking.command import ScriptCommand
from labkit.tracking.goal import metric_named
from labkit.tracking.launch import LaunchedRun

SECONDS_A_LINE = 1.0
"""Evaluations that come faster than this are not all printed: a notebook keeps every line."""


def watch(
    job: str | ScriptCommand, runs_dir: Path | str = "runs", *, evaluations: bool = True, **settings: Any
) -> dict[str, Any]:
    """Train to the end and print a line at the start, for evaluations, and at the end.

    Interrupting the kernel stops the run politely; what it did until then stays in its folder.

    Args:
        job: "dlrm", "speech", the path of a script, or a whole command.
        runs_dir: the folder that the run folder is made in.
        evaluations: whether to print evaluations, at most one a second.
        settings: `budget`, and the script's flags by name.

    Returns:
        `{"run", "folder", "status", "result"}`, as `labkit train --json` prints it.

    Raises:
        UserError: the run was refused.
        RunFailed: it diverged.
        KeyboardInterrupt: after the run has stopped.
    """
    command = job if isinstance(job, ScriptCommand) else job_command(job, runs_dir=runs_dir, **settings)
    printer = _Printer(evaluations)
    with LaunchedRun(command) as launched:
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
    def __init__(self, evaluations: bool):
        self._evaluations = evaluations
        self._preparing = False
        self._printed_at_s = -SECONDS_A_LINE
        self._metric, self._higher = "", True

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
        self._metric, self._higher = train["target_metric"], train["higher_is_better"]
        goal = f"target {self._metric} {train['target']:g}" if train["target"] is not None else "no target"
        how = "emulated" if budget["emulated"] else "measured"
        data = f" on {config['data']['name']}" if "data" in config else ""
        settings = [f"{name} {train[name]}" for name in ("batch_size", "seed") if name in train]
        print(", ".join([f"{config['job']}{data}", f"{budget['name']} ({how})", *settings, goal]), flush=True)

    def _evaluated(self, progress: dict[str, Any]) -> None:
        now_s = time.monotonic()
        if now_s - self._printed_at_s < SECONDS_A_LINE:
            return
        self._printed_at_s = now_s
        point = progress["point"]
        shown = [self._metric] if self._metric in progress["metrics"] else progress["metrics"]
        values = "  ".join(f"{name} {progress['metrics'][name]:.4f}" for name in shown)
        print(
            f"{point['wall_s']:7.1f} s {point['samples']:>10,} samples {progress['samples_per_s']:>9,.0f}/s   {values}",
            flush=True,
        )

    def _ended(self, answer: dict[str, Any]) -> None:
        result = answer["result"]
        parts = [f"{answer['status']} after {result['wall_s']:.1f} s ({result['reason']})"]
        if result["target_reached"]:
            parts.append(f"target first reached at {result['time_to_target_s']:.1f} s")
        elif result["target_reached"] is False:
            best = result["best_validation"]
            word = "highest" if metric_named(self._metric, self._higher).higher_is_better else "lowest"
            parts.append("target not reached" + (f", {word} {self._metric} {best:.4f}" if best is not None else ""))
        print(f"   {'; '.join(parts)}", flush=True)
