"""Runs one after another: the tour (each job under each budget of this machine), and runs of one script."""

import math
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit import UserError, errors, hardware, tracking
from labkit.jobs import JOBS, job_command
from labkit.launch.engine import End, Engine, OnEvent, Start
from labkit.launch.launches import Launch, Launches, Part

RUN_SECONDS = 120.0
"""A run that has not reached its target by then is censored; on two cores it takes a sixth of that"""
LAST_START_S = 240.0
"""No run starts later in the tour, so that it takes about five minutes on a slow machine, too"""


def plan_tour(jobs: Sequence[str], seeds: Sequence[int], runs_dir: Path | str = "runs") -> list[Launch]:
    """One launch for each job, budget that this machine offers, and seed.

    Budgets take turns, so that drift affects all alike. All jobs have had a seed before any has the next, so that a
    slow machine has fewer seeds and not fewer jobs.
    """
    planned: list[Launch] = []
    for seed in seeds:
        for job in jobs:
            epochs = JOBS[job]().max_epochs if job in JOBS else None
            limits = {"max_seconds": RUN_SECONDS, "max_epochs": epochs}
            for budget in hardware.offered_budgets():
                command = job_command(job, budget=budget.name, runs_dir=runs_dir, seed=seed, **limits)
                name = f"{Path(job).stem}-{budget.name}-{seed}"
                about = {"job": job, "budget": budget.name, "seed": seed}
                planned.append(Launch(name, command, job, about=about))
    return planned


def run_tour(tour: Sequence[Launch], runs_dir: Path, on_event: OnEvent, stop: "tracking.StopRequest") -> Launches:
    """Run a tour; `stop` stops the run under way politely, and no other starts."""
    launches = Launches.new(runs_dir, "tour", "-".join(dict.fromkeys(each.label for each in tour)), tour)
    _Tour(launches, stop=stop, on_event=on_event).run()
    return launches


class _Tour(Engine):
    def __init__(self, *given, **how):
        super().__init__(*given, **how)
        self._began_s = time.monotonic()

    def due(self) -> list[list[Part]]:
        due = super().due()
        if time.monotonic() - self._began_s <= LAST_START_S:
            return due
        for part in self.launches.parts.values():
            if part.status == "waiting":
                part.status = "left_out"
                self.launches.save(part)
                self.on_event(part, {"kind": "State"})
        return []


class ScriptRuns(Engine):
    """Runs of one script, each after the one before: seeds, energy trials, or a probe, which is a single run."""

    shows_output = True
    end: End
    """How the last run ended"""
    prepare: "Callable[[tracking.ScriptCommand], tracking.ScriptCommand] | None" = None
    """Called with a command when its turn comes; returns what then runs"""
    train_s = math.inf
    """Seconds of training after which a run is stopped"""

    def __init__(
        self, kind: str, commands: "Sequence[tracking.ScriptCommand]", folder: Path | str | None = None, **how
    ):
        """Plan the runs; `folder` is where the list gets its folder, if not with the runs."""
        name = Path(errors.certain(commands[0].script)).stem
        planned = [Launch(f"{kind}-{number}", command, name) for number, command in enumerate(commands)]
        super().__init__(Launches.new(folder or commands[0].runs_dir, f"{kind}s", name, planned), **how)

    def begin(self, parts: Sequence[Part]) -> list[Start]:
        return [Start(self.prepare(part.launch.job) if self.prepare else part.launch.job) for part in parts]

    def heard(self, part: Part, event: dict[str, Any]) -> None:
        if event["kind"] == "Progress" and event["point"]["train_s"] >= self.train_s:
            self.ask_to_end(part, "done", f"stopped after {self.train_s:g} s of training")

    def settle(self, part: Part, end: End) -> None:
        # only its log shows why a process crashed, and the folder of a probe is removed
        last = "" if end.said else self.log_tail(part).rpartition("\n")[2]
        self.end = replace(end, reason=": ".join(filter(None, [end.reason, last])))
        super().settle(part, self.end)


def watch(job: str, runs_dir: Path | str = "runs", *, evaluations: bool = True, **settings: Any) -> dict[str, Any]:
    """Train to the end in a process of its own, and print a line at the start, for evaluations, and at the end.

    Interrupting the kernel stops the run politely; its folder keeps what it did until then.

    Args:
        job: "dlrm", "speech", or the path of a script.
        runs_dir: the folder for the run folder.
        evaluations: whether to print evaluations, at most one per second.
        settings: `budget`, and the job's settings by name.

    Returns:
        `{"run", "folder", "status", "result"}`, as `labkit train --json` prints it.

    Raises:
        RunFailed: the run diverged, or was cut short.
        UserError: the script could not start, for a reason that the user can fix.
        WorkerFailed: the script raised an error, or its process ended without an answer.
    """
    line = tracking.ProgressLine(sys.stdout, evaluations=evaluations)
    command = job_command(job, runs_dir=runs_dir, **settings)
    # a single run is not resumed as a list, so what the list keeps of it goes when it is over
    with tempfile.TemporaryDirectory() as folder, tracking.StopRequest() as stop:
        how = {"stop": stop, "on_event": lambda part, event: line(tracking.read_event(event))}
        runs = ScriptRuns("run", [command], folder, **how)
        runs.shows_output = False
        runs.run()
        printed = runs.log_tail(runs.launches.parts["run-0"])
    end, answer = runs.end, runs.end.answer
    if stop:
        if stop.reason == "SIGTERM":
            signal.raise_signal(signal.SIGTERM)  # now that the run has ended, it ends this process, as it would have
        raise KeyboardInterrupt
    if end.said.get("kind") == "Ended":
        return answer
    if answer:
        raise tracking.RunFailed(end.reason, answer)
    if end.said.get("refused"):
        raise UserError(end.reason)
    raise tracking.WorkerFailed(f"{command.script}: {end.reason}\n{printed}")
