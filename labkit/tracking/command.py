"""What a process is to run: a training script, its arguments, and what the harness around it is to be."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from labkit.hardware import Budget

SEED = "{seed}"
"""Stands for the seed among a script's arguments"""


@dataclass(frozen=True)
class ScriptCommand:
    """A script and its harness, as data that crosses to another process."""

    script: str | None = None
    """Path of a Python file, or as its record names it; None for code that nobody started as a script"""
    arguments: tuple[str, ...] = ()
    """Of the script, one an item"""
    module: str | None = None
    """Its name, where it is to run as `python -m` does"""
    runs_dir: str = "runs"
    """The folder that the run's folder is made in"""
    budget: Budget | None = None
    """None takes the whole device"""
    waits_for_cores: bool = True
    """Whether it waits where other runs hold the cores of its budget, or is refused"""
    device: str | None = None
    """What torch calls the device, where there is no budget; None lets the script choose"""
    cores: tuple[int, ...] | None = None
    """CPU cores that the process and all it starts are bound to, where the budget does not choose them"""
    folder: str | None = None
    """That it runs in; None takes the process' own"""
    seed: int | None = None
    """To seed Python, NumPy and torch with before the script begins"""
    resume: str | None = None
    """The folder of a run to go on with"""
    sample_hz: float | None = None
    """Telemetry samples a second"""
    waits: bool = False
    """Whether it waits before its first step until it is told to go"""
    collocation: dict[str, Any] | None = None
    """What its record says of those it shares a device with: group, mode, job, mix"""
    power_limit_w: float | None = None
    """That the GPU was set to for it, which its record has among the settings of the training"""
    trial: dict[str, Any] | None = None
    """What its record says of the energy trial that it is: number, device, idle power, cool-down"""
    sweep: dict[str, Any] | None = None
    """What its record says of the sweep whose cell it is: name, cell (its key), settings (those that vary), repeat"""

    def seeded(self, seed: int) -> ScriptCommand:
        """The same, run with a seed."""
        return replace(self, arguments=tuple(each.replace(SEED, str(seed)) for each in self.arguments), seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ScriptCommand:
        """A command that crossed from another process."""
        cores, budget = values["cores"], values["budget"]
        back = {"cores": cores and tuple(cores), "budget": budget and Budget.from_dict(budget)}
        return cls(**values | {"arguments": tuple(values["arguments"])} | back)
