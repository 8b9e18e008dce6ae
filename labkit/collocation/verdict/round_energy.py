"""The energy of a round: its device's counter belongs to all of its jobs, so it counts once and not once a job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd

from labkit.runs import read_run
from labkit.telemetry import Energy, run_energy
from labkit.telemetry.energy import gpu_of
from labkit.tta.energy import energy_until

LEAST_COVERED = 0.9
"""Share of a round that must have been sampled: the ends of a short one lie between two samples."""


def round_energies(jobs: pd.DataFrame) -> dict[int, Energy]:
    """By number, the energy of each round of which a job was through; `jobs` as from `job_table`."""
    ended = jobs[jobs["go_at"].notna() & jobs["wall_s"].notna()]
    return {
        int(number): _round_energy(own["folder"].dropna(), own["go_at"].iloc[0], own["wall_s"].max())
        for number, own in ended.groupby("round")
    }


def _round_energy(folders: Iterable[Path | str], go_at: str, makespan_s: float) -> Energy:
    """Joules that the devices of a round took from its barrier until the last of its jobs was through.

    Each run of a round samples the same counter of the device that they share, for as long as it trains. Their times
    are laid end to end, none counted twice.
    """
    begin_ns = int(datetime.fromisoformat(go_at).timestamp() * 1e9)
    end_ns = begin_ns + int(makespan_s * 1e9)
    by_device: dict[str, list[Energy]] = {}
    for folder in folders:
        energy = run_energy(folder, of_all=True)
        by_device.setdefault(_device_of(Path(folder), energy), []).append(energy)
    if not by_device:
        return Energy(None, None, "none of its jobs has a run")
    joules, sources, notes = 0.0, [], []
    for device, energies in by_device.items():
        known = [energy for energy in energies if energy.value_j is not None and energy.steps]
        if not known:
            return Energy(None, None, f"{device}: {energies[0].note}")
        taken, covered_ns = _laid_end_to_end(known, begin_ns, end_ns)
        share = covered_ns / (end_ns - begin_ns)
        of_all = f"sampled for {covered_ns / 1e9:.3g} s of the round's {(end_ns - begin_ns) / 1e9:.3g}"
        if share < LEAST_COVERED:
            return Energy(None, None, f"{device}: {of_all}, too little to stand for all of it")
        joules += taken
        sources.append(known[0].source)
        notes.append(f"{known[0].note}; {of_all}")
    return Energy(joules, " + ".join(dict.fromkeys(sources)), "; ".join(dict.fromkeys(notes)))


def _device_of(folder: Path, energy: Energy) -> str:
    """What the energy of a run is that of: a GPU's UUID, or the whole machine."""
    record = read_run(folder)
    torch_name = str(record.budget.get("torch_name", "cpu"))
    on_board = energy.source is not None and energy.source.startswith("Jetson")
    if not torch_name.startswith("cuda") or on_board:
        return "this machine"
    return gpu_of(record.devices, torch_name).uuid or torch_name


def _laid_end_to_end(energies: list[Energy], begin_ns: int, end_ns: int) -> tuple[float, int]:
    """(joules, nanoseconds covered) between two moments."""
    joules, covered_ns, reached = 0.0, 0, begin_ns
    spans = [(min(s.begin_ns for s in e.steps), max(s.end_ns for s in e.steps), e.steps) for e in energies]
    for first_ns, last_ns, steps in sorted(spans):
        low, high = max(first_ns, reached), min(last_ns, end_ns)
        if high > low:
            before, after = energy_until(np.array([low, high], float), steps)
            joules, covered_ns, reached = joules + float(after - before), covered_ns + high - low, high
    return joules, covered_ns
