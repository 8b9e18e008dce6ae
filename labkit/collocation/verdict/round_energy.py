"""The energy of a round: its device's counter belongs to all of its jobs, so it counts once and not once a job."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd

from labkit.runs import read_run
from labkit.telemetry.energy import Energy, gpu_of, run_energy
from labkit.tta.energy import energy_until

LEAST_COVERED = 0.9
"""Share of a round that must have been sampled: the ends of a short one lie between two samples."""


def round_energies(jobs: pd.DataFrame) -> dict[int, Energy]:
    """By number, the energy of each round of which a job was through; `jobs` as from `job_table`."""
    ended = jobs[jobs["go_at"].notna() & jobs["wall_s"].notna()]
    return {int(number): _round_energy(own) for number, own in ended.groupby("round")}


def _round_energy(jobs: pd.DataFrame) -> Energy:
    """Joules that the devices of a round took from its barrier until the last of its jobs was through.

    Each run samples the counter of the device that it shares for as long as it trains: the last to end counts for it.
    """
    begin_ns = int(datetime.fromisoformat(jobs["go_at"].iloc[0]).timestamp() * 1e9)
    round_ns = int(jobs["wall_s"].max() * 1e9)
    by_device: dict[str, Energy] = {}
    for folder in jobs.sort_values("wall_s")["folder"].dropna():
        energy = run_energy(folder, of_all=True)
        device = _device_of(Path(folder), energy)
        if (energy.value_j is not None and energy.steps) or device not in by_device:
            by_device[device] = energy
    joules, sources, notes = 0.0, [], []
    for device, energy in by_device.items():
        if energy.value_j is None or not energy.steps:
            return Energy(None, None, f"{device}: {energy.note}")
        until_ns = min(max(step.end_ns for step in energy.steps), begin_ns + round_ns)
        covered_ns = until_ns - max(min(step.begin_ns for step in energy.steps), begin_ns)
        of_all = f"sampled for {covered_ns / 1e9:.3g} s of the round's {round_ns / 1e9:.3g}"
        if covered_ns < LEAST_COVERED * round_ns:
            return Energy(None, None, f"{device}: {of_all}, too little to stand for all of it")
        before, after = energy_until(np.array([begin_ns, until_ns], float), energy.steps)
        joules += float(after - before)
        sources.append(energy.source)
        notes.append(f"{energy.note}; {of_all}")
    if not by_device:
        return Energy(None, None, "none of its jobs has a run")
    return Energy(joules, " + ".join(dict.fromkeys(sources)), "; ".join(dict.fromkeys(notes)))


def _device_of(folder: Path, energy: Energy) -> str:
    """What the energy of a run is that of: a GPU's UUID, or the whole machine."""
    record = read_run(folder)
    torch_name = str(record.budget.get("torch_name", "cpu"))
    on_board = energy.source is not None and energy.source.startswith("Jetson")
    if not torch_name.startswith("cuda") or on_board:
        return "this machine"
    return gpu_of(record.devices, torch_name).uuid or torch_name
