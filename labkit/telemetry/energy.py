"""The energy a run took: from a counter where there is one, else integrated power, else the reason why not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from labkit.runs.record import read_run
from labkit.telemetry.samples import Sample, read_samples


@dataclass(frozen=True)
class Energy:
    """Joules with their source, or None with the reason."""

    value_j: float | None
    source: str | None
    note: str


def run_energy(folder: Path | str) -> Energy:
    """The energy of the device a run computed on, between its first and last sample.

    A GPU run counts its GPU, a CPU run the CPU packages; the latter belong to the whole machine, other programs
    included. Counters and integrated power are never added up.
    """
    budget = read_run(folder).budget
    if str(budget.get("torch_name", "cpu")).startswith("cuda"):
        devices = [d for d in read_run(folder).devices if d.get("torch_name") == budget["torch_name"]]
        uuid = devices[0].get("mig_parent_uuid") or devices[0].get("uuid") if devices else None
        return gpu_energy(read_samples(folder, scope="device", device=uuid))
    return cpu_energy(read_samples(folder, scope="host"))


def gpu_energy(samples: dict[str, list[Sample]]) -> Energy:
    """Energy of one GPU from its NVML samples by counter."""
    counter, power = (_valid(samples.get(name, [])) for name in ("energy", "power"))
    if len(counter) >= 2:
        return Energy(counter[-1][1] - counter[0][1], "NVML energy counter", "the GPU alone, without its host")
    if len(power) >= 2:
        joules = sum((b[0] - a[0]) / 1e9 * (a[1] + b[1]) / 2 for a, b in pairwise(power))
        return Energy(joules, "NVML power, integrated", "the GPU alone, without its host")
    return Energy(None, None, _why(samples, "energy", "the GPU was sampled less than twice"))


def cpu_energy(samples: dict[str, list[Sample]]) -> Energy:
    """Energy of all CPU packages from their RAPL samples by counter."""
    packages = {name: _valid(rows) for name, rows in samples.items() if name.startswith("cpu_energy_")}
    if packages and all(len(rows) >= 2 for rows in packages.values()):
        joules = sum(_unwrapped(rows) for rows in packages.values())
        return Energy(joules, "RAPL", "all CPU packages of this machine, other programs included; no memory, no disks")
    why = _why(samples, "cpu_energy", "the run was sampled less than twice")
    return Energy(None, None, f"not measurable: {why}")


def _unwrapped(rows: list[Sample]) -> float:
    """Joules between first and last sample of a counter that starts again at zero when it is full."""
    full = float(re.search(r"wraps at ([\d.]+) J", rows[0][2])[1])
    return sum((b[1] - a[1]) % full for a, b in pairwise(rows))


def _valid(rows: list[Sample]) -> list[Sample]:
    return [row for row in rows if row[1] is not None]


def _why(samples: dict[str, list[Sample]], counter: str, otherwise: str) -> str:
    return next((note for _, value, note in samples.get(counter, []) if value is None and note), otherwise)
