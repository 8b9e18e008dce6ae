"""Runs one after another: the tour (each job under each budget of this machine), and the seeds of a script."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from labkit import hardware, tracking
from labkit.jobs import JOBS, MAX_EPOCHS, get_preset, job_command
from labkit.launch.engine import End, Engine, OnEvent
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
            epochs = get_preset(job, "tour").train.get("max_epochs", MAX_EPOCHS) if job in JOBS else None
            limits = {"max_seconds": RUN_SECONDS, "max_epochs": epochs}
            for budget in hardware.offered_budgets():
                command = job_command(job, budget=budget.name, runs_dir=runs_dir, seed=seed, **limits)
                name = f"{Path(job).stem}-{budget.name}-{seed}"
                about = {"job": job, "budget": budget.name, "seed": seed}
                planned.append(Launch(name, command, job, after=_last(planned), about=about))
    return planned


def run_tour(tour: Sequence[Launch], runs_dir: Path, on_event: OnEvent, stop: tracking.StopRequest) -> Launches:
    """Run a tour; `stop` stops the run under way politely, and no other starts."""
    launches = Launches.new(runs_dir, "tour", "-".join(dict.fromkeys(each.label for each in tour)), tour)
    _Tour(launches, stop=stop, on_event=on_event).run()
    return launches


def run_seeds(command: tracking.ScriptCommand, seeds: int, on_event: OnEvent, stop: tracking.StopRequest) -> Launches:
    """Run a script once for each seed from 0; what it prints goes to standard error."""
    planned: list[Launch] = []
    name = Path(command.script).stem
    for seed in range(seeds):
        planned.append(Launch(f"seed-{seed}", command.seeded(seed), name, after=_last(planned), about={"seed": seed}))
    launches = Launches.new(command.runs_dir, "seeds", name, planned)
    _Seeds(launches, stop=stop, on_event=on_event).run()
    return launches


def _last(planned: Sequence[Launch]) -> tuple[str, ...]:
    return tuple(each.name for each in planned[-1:])


class _InTurn(Engine):
    def settle(self, part: Part, end: End) -> None:
        super().settle(part, end)
        part.more = {"refused": bool(end.said.get("refused"))}


class _Tour(_InTurn):
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


class _Seeds(_InTurn):
    shows_output = True
