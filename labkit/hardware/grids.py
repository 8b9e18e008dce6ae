"""Electricity grids: what a kilowatt-hour emits and costs, and where each figure comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from labkit.hardware.tiers import Figure, Sourced, pick, read_entries

FIGURES = {
    "carbon_g_per_kwh": ("g CO2e/kWh", "carbon intensity of the electricity generated, life cycle, g CO2e a kWh"),
    "price_usd_per_kwh": ("$/kWh", "average retail price, $ a kWh"),
}
"""Every figure of a grid, with its heading in a table, and its meaning and unit."""


@dataclass(frozen=True)
class Grid(Sourced):
    """One grid. Each of `FIGURES` is an attribute, None where no source was found."""

    name: str
    label: str
    figures: Mapping[str, Figure] = field(repr=False, compare=False, hash=False)


@cache
def load_grids() -> Mapping[str, Grid]:
    """Return the grids by name, cleanest first."""
    entries = read_entries("grids", FIGURES)
    return MappingProxyType({name: Grid(name, entry["label"], figures) for name, entry, figures in entries})


def get_grid(name: str) -> Grid:
    """Return one grid.

    Raises:
        UserError: no grid has that name; the text lists the nearest names.

    >>> get_grid("germany").carbon_g_per_kwh
    380.95
    """
    return pick(load_grids(), "grid", name, f"There are {', '.join(load_grids())}.")
