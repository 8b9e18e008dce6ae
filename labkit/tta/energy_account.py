"""What a run took in energy, in units that can be compared: watts, joules a sample and to the target, carbon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.errors import UserError
from labkit.hardware.tiers import get_tier
from labkit.runs import read_events, read_run
from labkit.runs.record import RunRecord
from labkit.telemetry import Energy, run_energy
from labkit.telemetry.energy import Step
from labkit.tta.energy import energy_until, epoch_ns

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
        UserError: there is no such run, or a number given is not above zero.
    """
    for name, value in (("grid_g_per_kwh", grid_g_per_kwh), ("assumed_power_w", assumed_power_w)):
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{name} is {value:g}: give a number above zero.")
    folder = Path(folder)
    record, energy = read_run(folder), run_energy(folder)
    if record.profiled:
        raise UserError(f"{folder}: a profiler looked at this run, so its energy is not that of training alone.")
    kind = record.provenance.kind
    if energy.value_j is None and (estimate or assumed_power_w is not None):
        energy, kind = _predicted(record, _spans(folder), assumed_power_w, energy.note), "predicted"
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
        energy_to_target_j=_to_target(folder, energy.steps),
        carbon_g=None if grid_g_per_kwh is None else energy.value_j / J_PER_KWH * grid_g_per_kwh,
    )


def _predicted(record: RunRecord, spans: list[tuple[int, int]], power_w: float | None, why_not: str) -> Energy:
    """A constant power for the whole time of the run."""
    if power_w is not None:
        source = f"{power_w:g} W, as given"
    elif record.tier is None:
        return Energy(None, None, f"{why_not}; no estimate: this hardware is in no tier of the catalogue (--power W)")
    else:
        figure = get_tier(record.tier).figure("power_w")
        power_w = figure.value
        if power_w is None:
            return Energy(
                None, None, f"{why_not}; no estimate: the power of tier {record.tier} is not known (--power W)"
            )
        source = f"{power_w:g} W, the power limit of tier {record.tier} ({figure.source})"
    steps = tuple(Step(begin, end, power_w * (end - begin) / 1e9) for begin, end in spans)
    note = f"not measured: a constant power for the run's whole time ({why_not})"
    return Energy(sum(step.joules for step in steps), source, note, steps)


def _spans(folder: Path) -> list[tuple[int, int]]:
    """(begin, end) in ns of each process that trained the run, from its events."""
    spans: list[tuple[int, int]] = []
    for event in read_events(folder):
        now = round(epoch_ns(event["time"]))
        if event["event"] in ("started", "resumed") or not spans:
            spans.append((now, now))
        spans[-1] = (spans[-1][0], now)
    return [(begin, end) for begin, end in spans if end > begin]


def _to_target(folder: Path, steps: tuple[Step, ...]) -> float | None:
    events = read_events(folder)
    samples = next((event.get("samples") for event in events if event["event"] == "target_reached"), None)
    if samples is None:
        return None
    # a target that a resume brought was reached by an evaluation before it
    when = next((e["time"] for e in events if e["event"] == "evaluated" and e.get("samples") == samples), None)
    if when is None:
        return None
    return float(energy_until(np.array([epoch_ns(when)]), steps)[0])
