"""Whether a job can fit, asked before anything is allocated."""

from __future__ import annotations

from labkit.errors import UserError
from labkit.hardware.cpu import read_cpu
from labkit.hardware.devices import get_devices
from labkit.hardware.sizes import size_text
from labkit.models.dlrm import DlrmConfig
from labkit.tracking.harness import current_harness

OPTIMISER_STATES = {"sgd": 0, "adagrad": 1, "rowwise-adagrad": 0, "adam": 2}
"""Tensors as large as the embedding tables that an optimiser keeps."""


def refuse_tables_that_do_not_fit(config: DlrmConfig, optimiser: str, preset: str) -> None:
    """Stop before tables are made for which there is no memory.

    Raises:
        UserError: they and their optimiser's state need more than the budget has, or is free.
    """
    harness, devices = current_harness(), get_devices()
    torch_name = harness.torch_name if harness is not None else "cpu"
    device = next((each for each in devices if each.torch_name == torch_name), devices[0])
    budget = harness.command.budget if harness is not None else None
    needed = config.parameter_bytes * (1 + OPTIMISER_STATES[optimiser])
    there = read_cpu().memory_available_bytes if device.kind == "cpu" else device.memory_bytes
    limit = (budget and budget.memory_bytes) or there
    if limit is not None and needed > limit:
        raise UserError(
            f"preset {preset!r} on this data needs {size_text(needed)} for its embedding tables and their optimiser "
            f"state, and {device.name} has {size_text(limit)} free: choose a smaller preset (kaggle, "
            "tour), or data with smaller vocabularies."
        )
