"""What changes to a training, or to its machine, would gain: predicted, and for flags of the script also measured.

Both take a few steps of the unchanged training script: to capture their operators, or to time them.
"""

from __future__ import annotations

import contextlib
import difflib
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from labkit import UserError, hardware, profiling, telemetry, tracking
from labkit.perfmodel.card import Card, read_card
from labkit.perfmodel.operators import Calls, Operator
from labkit.perfmodel.predict import NO_CHANGE, Change, card_notes, predict_steps, tier_change, uncertainties

FACTORS = ("overheads", "arithmetic", "bandwidth")
MACHINE = (*FACTORS, "tier", "card")
"""Names of changes to the machine; any other is a flag of the script"""
ROUNDS = 5
"""Number of times that each command is measured, in turns"""
MEASURED_S, MOST_STEPS = 2.0, 400
"""Time and number of steps for which a script is timed"""
MOST_CAPTURED = 16
"""Number of captured steps if they differ: a recogniser's batches have few seconds of speech, or many"""
FAR_OFF = 3.0
"""Multiple of the median above which a step does not count, because something else held it up"""
WARM = 6
"""Steps before timing"""


class CapturedSteps(profiling.StepWatcher):
    """Skips the first steps, which differ, and captures the operators of the next two; of more if these differ."""

    def __init__(self):
        super().__init__(profiling.ProfileSettings(skip=2, warmup=1, steps=MOST_CAPTURED), "operators")
        self.steps: list[list[Operator]] = []
        self.memory_bytes = 0
        """Peak memory of the process until then"""
        self._calls: Calls | None = None
        self._capturing = contextlib.ExitStack()
        self.of_script: list[str] = []
        """Notes on the script as it ran"""

    def of_compiled(self, graphs: int) -> str:
        return (
            f"This script has {graphs} graph{'s' * (graphs > 1)} compiled by torch.compile, but its captured steps ran "
            "operators one by one: the prediction is of the uncompiled step; a compiled one usually takes less time."
        )

    def step(self) -> bool:
        self.taken += 1
        self.clock.restart()
        self._capturing.close()
        if self._calls is not None:
            self.steps.append(self._calls.operators)
        self.is_done = len(self.steps) == self.settings.steps or (len(self.steps) == 2 and not self._differ)
        if not self.is_done and self.taken >= self.settings.skip + self.settings.warmup - 1:
            if not self.memory_bytes:  # captured storages are kept alive, and would count
                self.memory_bytes = telemetry.own_peak_bytes()
            self._capturing.enter_context(torch.compiler.set_stance("force_eager"))  # compiled code calls no operators
            self._calls = self._capturing.enter_context(Calls())
        return self.is_done

    @property
    def notes(self) -> list[str]:
        """Notes for the user: on the script, and on first two steps that called operators of different sizes."""
        differ = (
            "Two consecutive steps called operators of different sizes. This script's steps depend on its data, so the "
            f"prediction is the mean of {len(self.steps)} steps."
        )
        return [*self.of_script, *([differ] if self._differ else [])]

    @property
    def _differ(self) -> bool:
        first, second = ([each.tensors for each in step] for step in self.steps[:2])
        return first != second

    def finish(self) -> None:
        super().finish()
        self._capturing.close()  # an unfinished step


class StepTimes(profiling.StepWatcher):
    """Skips the first steps, and times those that follow, without the wait for their data."""

    def __init__(self):
        super().__init__(profiling.ProfileSettings(skip=WARM - 1, warmup=1, steps=MOST_STEPS), "step times")
        self.times_s: list[float] = []
        self._at = 0.0

    def step(self) -> bool:
        self.taken += 1
        now = time.perf_counter()
        phases, _ = self.clock.read()
        if self.taken > WARM:
            waited_us = phases.get(tracking.INPUT, [0.0])[0]
            self.times_s.append(now - self._at - waited_us / 1e6)
        self._at = time.perf_counter()
        self.is_done = len(self.times_s) == MOST_STEPS or sum(self.times_s) > MEASURED_S
        return self.is_done


def captured_steps(command: tracking.ScriptCommand, stop: tracking.StopRequest) -> CapturedSteps:
    """Run a script for a few steps, and capture their operators.

    Raises:
        UserError: there is no such script; it failed, or ended before its fourth step; it computes on a GPU.
    """
    captured = CapturedSteps()
    captured.of_script = _run(command, captured, stop)
    return captured


def measured_step_s(command: tracking.ScriptCommand, stop: tracking.StopRequest) -> float:
    """Run a script for some steps, and return their mean time, without the wait for their data.

    Raises:
        UserError: as `captured_steps`, or the script ended before its seventh step.
    """
    times = StepTimes()
    _run(command, times, stop)
    usual_s = statistics.median(times.times_s)
    return statistics.fmean(each for each in times.times_s if each <= FAR_OFF * usual_s)


def _run(command: tracking.ScriptCommand, watcher: profiling.StepWatcher, stop: tracking.StopRequest) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:  # the run is not kept
        _, notes = profiling.profile_script(replace(command, runs_dir=folder), watcher, stop, lambda event: None)
    if watcher.is_on_gpu:
        raise UserError(
            f"{command.script}: it computes on {watcher.device}, and cards describe CPUs: give --device cpu if the "
            "script has such a flag, or --budget all-cores."
        )
    return notes


@dataclass(frozen=True)
class WhatIf:
    """One change."""

    text: str
    arguments: tuple[str, ...]
    """Arguments of the script, after its own"""
    machine: Mapping[str, str]
    """Values by name of `MACHINE`"""

    def on(self, card: Card) -> tuple[Card, Change]:
        """The card to predict from, and what is changed of its machine; a UserError for an unknown tier or card."""
        start = tier_change(card, hardware.get_tier(self.machine["tier"])) if "tier" in self.machine else NO_CHANGE
        factors = {name: getattr(start, name) * float(self.machine.get(name, 1)) for name in FACTORS}
        on = read_card(Path(self.machine["card"])) if "card" in self.machine else card
        return on, replace(start, **factors)


def read_change(text: str) -> WhatIf:
    """Read a change, such as batch-size=4096 or arithmetic=2,bandwidth=2; a UserError if it is malformed."""
    arguments, machine, shown = [], {}, f"--change {text!r}"
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not (equals and name and value):
            raise UserError(f"{shown}: {part!r} is not NAME=VALUE, such as batch-size=4096.", field="change")
        near = difflib.get_close_matches(name, MACHINE, n=1, cutoff=0.8)
        if near and name not in MACHINE:
            raise UserError(f"{shown}: {name} is unknown; did you mean {near[0]}, of the machine?", field="change")
        if name in MACHINE:
            machine[name] = value
        else:
            arguments += [f"--{name.lstrip('-')}", value]
    for name in FACTORS:
        try:
            number = float(machine.get(name, 1))
        except ValueError:
            number = -1.0
        if not (0 if name == "overheads" else 1e-6) <= number < 1e6:
            raise UserError(f"{shown}: {name} takes a number, such as {name}=2.", field="change")
    if {"tier", "card"} <= machine.keys():
        raise UserError(f"{shown}: it names two machines: give either a tier or a card.", field="change")
    return WhatIf(text, tuple(arguments), machine)


def what_if(
    commands: Sequence[tracking.ScriptCommand],
    sizes: Sequence[int | None],
    changes: Sequence[WhatIf],
    machines: Sequence[tuple[Card, Change]],
    card: Card,
    stop: tracking.StopRequest,
    *,
    job: str,
    measure: bool,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Predict, and optionally measure, a training as it is and with each change.

    `commands` are the training as it is, then one per change; `sizes` are their batch sizes, if known. `machines` are
    `WhatIf.on` of each change, and `card` is of the machine as it is. `job` is the name of the kit's job, or `ALL`;
    `measure` says whether to measure changes of flags, too.

    Returns:
        Rows change, samples, step_ms, low_ms, high_ms, measured_ms, gain, measured_gain (samples per second relative to
        the first row; steps per second if a size is unknown), provenance; and notes for the user.
    """
    base = commands[0].arguments
    captured = {each.arguments: captured_steps(each, stop) for each in dict.fromkeys(commands)}
    measured_s: dict[tuple[str, ...], list[float]] = {each: [] for each in captured}
    for _ in range(ROUNDS * measure):
        for each in dict.fromkeys(commands):
            measured_s[each.arguments].append(measured_step_s(each, stop))
    found = [*card_notes(card, commands[0].budget), *(note for each in captured.values() for note in each.notes)]
    rows, notes = [], list(dict.fromkeys(found))
    texts, machines = ["as it is", *(change.text for change in changes)], [(card, NO_CHANGE), *machines]
    for text, command, samples, (on, change) in zip(texts, commands, sizes, machines, strict=True):
        own = command.arguments
        prediction = predict_steps(captured[own].steps, on, job, change)
        if not rows or own != base:
            notes += [f"{text}: {note}" for note in uncertainties(prediction)]
        more = samples / sizes[0] if samples and sizes[0] else 1.0
        is_measured = measure and on is card and change == NO_CHANGE
        rows.append(
            {
                "change": text,
                "samples": samples,
                "step_ms": prediction.step_ms,
                "low_ms": prediction.low_ms,
                "high_ms": prediction.high_ms,
                "measured_ms": 1e3 * statistics.median(measured_s[own]) if is_measured else None,
                "gain": rows[0]["step_ms"] / prediction.step_ms * more if rows else 1.0,
                "measured_gain": _gain(measured_s[base], measured_s[own]) * more if is_measured else None,
                "provenance": "predicted",
            }
        )
    return rows, notes


def _gain(before_s: Sequence[float], after_s: Sequence[float]) -> float:
    """Median over the rounds: within a round both were timed shortly after each other."""
    return statistics.median(before / after for before, after in zip(before_s, after_s, strict=True))
