"""The command of a process: a training script, its settings or arguments, and the harness around it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from labkit import hardware, json_data

SEED = "{seed}"
"""Stands for the seed among a script's arguments"""


@dataclass(frozen=True)
class ScriptCommand:
    """A script and its harness, as data that crosses to another process."""

    script: str | None = None
    """Path of a Python file, or as its record names it; None for code that no command started"""
    arguments: tuple[str, ...] = ()
    """Arguments of the script, one per item; where it has settings, the equivalent command line, for people to read"""
    settings: dict[str, Any] | None = field(default=None, hash=False)
    """Settings of a script that takes them as JSON, as `labkit.jobs.Job.to_json` gives them"""
    module: str | None = None
    """Name of the module, if it runs as `python -m` does"""
    runs_dir: str = "runs"
    """Folder for the run's folder"""
    budget: hardware.Budget | None = None
    """Budget that binds the process; None: the whole device"""
    waits_for_cores: bool = True
    """Whether it waits, or is refused, while other runs hold the cores of its budget"""
    device: str | None = None
    """Device as torch names it, where there is no budget; None: the script's choice"""
    cores: tuple[int, ...] | None = None
    """CPU cores of the process and its children, where the budget does not choose them"""
    folder: str | None = None
    """Working folder; None: that of the process"""
    seed: int | None = None
    """Seed of Python, NumPy and torch before the script begins"""
    resume: str | None = None
    """Folder of a run to continue"""
    sample_hz: float | None = None
    """Telemetry samples per second"""
    waits: bool = False
    """Whether it waits for a signal before its first step"""
    collocation: dict[str, Any] | None = None
    """Record of the jobs that share the device: group, mode, job, mix"""
    power_limit_w: float | None = None
    """Power limit of the GPU during the run, recorded with the settings of the training"""
    trial: dict[str, Any] | None = None
    """Record of the energy trial: number, device, idle power, cool-down"""
    sweep: dict[str, Any] | None = None
    """Record of the sweep's cell: name, cell (its key), settings (those that vary), repeat"""

    def seeded(self, seed: int) -> ScriptCommand:
        """The same command, run with a seed."""
        return replace(self, arguments=tuple(each.replace(SEED, str(seed)) for each in self.arguments), seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return json_data.to_json(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ScriptCommand:
        """A command that crossed from another process."""
        return json_data.build(values, cls)
