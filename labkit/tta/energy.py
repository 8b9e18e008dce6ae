"""What runs took in energy: at each evaluation, in watts, in joules a sample and to the target, in carbon."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labkit.errors import UserError
from labkit.hardware.tiers import get_tier
from labkit.runs import read_events, read_run
from labkit.runs.record import RunRecord
from labkit.telemetry import Energy, run_energy
from labkit.telemetry.energy import Step

J_PER_KWH = 3.6e6


@dataclass(frozen=True)
class EnergyAccount:
    """The energy of one run. A number is None where it is not known; `note` says why, or what it covers."""

    run: str
    kind: str
    """"measured", "recorded" or "emulated" as the run is; "predicted" where a power was assumed"""
    energy_j: float | None
    source: str | None
    note: str
    average_power_w: float | None = None
    energy_per_sample_j: float | None = None
    energy_to_target_j: float | None = None
    """Until the target was first reached"""
    carbon_g: float | None = None
    """CO2 equivalent of `energy_j`, at the grid intensity that was given"""


def energy_account(
    folder: Path | str,
    *,
    grid_g_per_kwh: float | None = None,
    estimate: bool = False,
    assumed_power_w: float | None = None,
) -> EnergyAccount:
    """Account for the energy of a run.

    Args:
        folder: the run's folder.
        grid_g_per_kwh: carbon intensity of the grid, in grams of CO2 equivalent a kilowatt-hour.
        estimate: where nothing was measured, predict it as the tier's power for the run's whole time.
        assumed_power_w: the power to predict with, instead of the tier's.

    Raises:
        UserError: there is no such run, a profiler looked at it, or a number given is not above zero.
    """
    for name, value in (("grid_g_per_kwh", grid_g_per_kwh), ("assumed_power_w", assumed_power_w)):
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{name} is {value:g}: give a number above zero.")
    folder = Path(folder)
    record, energy, events = read_run(folder), run_energy(folder), read_events(folder)
    if record.profiled:
        raise UserError(f"{folder}: a profiler looked at this run, so its energy is not that of training alone.")
    kind = record.provenance.kind
    if energy.value_j is None and (estimate or assumed_power_w is not None):
        energy, kind = _predicted(record, events, assumed_power_w, energy.note), "predicted"
    if energy.value_j is None:
        return EnergyAccount(record.id, kind, None, None, energy.note)
    seconds = sum(end - begin for begin, end in {(step.begin_ns, step.end_ns) for step in energy.steps}) / 1e9
    samples = (record.result or {}).get("samples")
    return EnergyAccount(
        record.id,
        kind,
        energy.value_j,
        energy.source,
        energy.note,
        average_power_w=energy.value_j / seconds if seconds else None,
        energy_per_sample_j=energy.value_j / samples if samples else None,
        energy_to_target_j=_to_target(events, energy.steps),
        carbon_g=None if grid_g_per_kwh is None else energy.value_j / J_PER_KWH * grid_g_per_kwh,
    )


def with_energy(curves: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The curves with a column energy_j: joules of each run since its first sample; NaN where they were not measurable.

    Between two samples the power is taken as constant; an evaluation after the last sample has the energy of that.
    `runs` is `run_table` of the same runs.
    """
    energy = pd.Series(np.nan, curves.index, dtype=float)
    measured = runs[runs["energy_j"].notna()]
    for run, folder in zip(measured["run"], measured["folder"], strict=True):
        own = curves.index[curves["run"] == run]
        evaluated = [event for event in read_events(folder) if event["event"] == "evaluated" and "wall_s" in event]
        if len(own) and evaluated:
            # sorted: after a resume the clock goes on from the checkpoint, before the last evaluations until then
            pairs = sorted((event["wall_s"], _epoch_ns(event)) for event in evaluated)
            when_ns = np.interp(curves.loc[own, "wall_s"], *zip(*pairs, strict=True))
            energy[own] = energy_until(when_ns, run_energy(folder).steps)
    return curves.assign(energy_j=energy)


def energy_until(when_ns: np.ndarray, steps: tuple[Step, ...]) -> np.ndarray:
    """Joules of all steps until each moment, in the moments' shape.

    >>> energy_until(np.array([0, 5, 10, 15]), (Step(0, 10, 4.0), Step(12, 14, 1.0)))
    array([0., 2., 4., 5.])
    """
    begin_ns, end_ns, joules = (np.array(column, dtype=float) for column in zip(*steps, strict=True))
    shares = (np.clip((moment - begin_ns) / (end_ns - begin_ns), 0.0, 1.0) for moment in when_ns)
    return np.array([share @ joules for share in shares])


def _epoch_ns(event: dict[str, Any]) -> float:
    """Nanoseconds since 1970."""
    return datetime.fromisoformat(event["time"]).timestamp() * 1e9


def _predicted(record: RunRecord, events: list[dict[str, Any]], power_w: float | None, why_not: str) -> Energy:
    """A constant power for the whole time of the run: of each process that trained it, by its events."""
    source = "as given"
    if power_w is None:
        if record.tier is None:
            why = "this hardware is in no tier of the catalogue"
            return Energy(None, None, f"{why_not}; no estimate: {why} (--power W)")
        figure = get_tier(record.tier).figure("power_w")
        power_w, source = figure.value, f"the power limit of tier {record.tier} ({figure.source})"
        if power_w is None:
            return Energy(
                None, None, f"{why_not}; no estimate: the power of tier {record.tier} is not known (--power W)"
            )
    spans: list[tuple[int, int]] = []
    for event in events:
        now = round(_epoch_ns(event))
        if event["event"] in ("started", "resumed") or not spans:
            spans.append((now, now))
        spans[-1] = (spans[-1][0], now)
    steps = tuple(Step(begin, end, power_w * (end - begin) / 1e9) for begin, end in spans if end > begin)
    note = f"not measured: a constant power for the run's whole time ({why_not})"
    return Energy(sum(step.joules for step in steps), f"{power_w:g} W, {source}", note, steps)


def _to_target(events: list[dict[str, Any]], steps: tuple[Step, ...]) -> float | None:
    samples = next((event.get("samples") for event in events if event["event"] == "target_reached"), None)
    # a target that a resume brought was reached by an evaluation before it
    at = (event for event in events if event["event"] == "evaluated" and event.get("samples") == samples)
    when = None if samples is None else next(at, None)
    return None if when is None else float(energy_until(np.array([_epoch_ns(when)]), steps)[0])
