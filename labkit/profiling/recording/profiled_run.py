"""The run folder of steps that are not those of one of labkit's jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.hardware.budgets.budget import Budget
from labkit.hardware.budgets.names import offered_budgets, parse_budget
from labkit.hardware.devices import get_devices
from labkit.hardware.software import package_versions
from labkit.runs import Provenance, RunWriter


def chosen_budget(name: str | None, *, on_gpu: bool) -> Budget:
    """The budget of that name, or the whole machine."""
    devices = get_devices()
    if name is not None:
        return parse_budget(name, devices)
    return {budget.torch_name: budget for budget in offered_budgets(devices)}["cuda:0" if on_gpu else "cpu"]


def open_profiled_run(
    runs_dir: Path, name: str, *, config: dict[str, Any], profile: dict[str, Any], budget: Budget
) -> RunWriter:
    """Make a run folder whose record says that it was profiled, and by what."""
    return RunWriter.create(
        runs_dir,
        "".join(char if char.isalnum() or char in "-_" else "-" for char in name)[:50],
        config={**config, "profile": profile, "budget": budget.to_dict()},
        budget=budget.to_dict(),
        tier=budget.tier,
        devices=[device.to_dict() for device in get_devices()],
        seed=0,
        provenance=Provenance.now("emulated" if budget.emulated else "measured"),
        software=package_versions(),
    )
