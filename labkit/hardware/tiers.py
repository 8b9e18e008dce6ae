"""The catalogue of hardware tiers and electricity grids: what each is and costs, and the source of every figure."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

from labkit import UserError, errors
from labkit.hardware.devices import Device

FIGURES = {
    "memory_gb": ("GB", "memory, GB"),
    "bandwidth_gb_s": ("GB/s", "memory bandwidth, GB/s"),
    "fp32_tflops": ("FP32", "FP32 peak, dense, TFLOP/s"),
    "tf32_tflops": ("TF32", "TF32 tensor peak, dense, TFLOP/s"),
    "bf16_tflops": ("BF16", "BF16 tensor peak, dense, TFLOP/s"),
    "l2_mb": ("L2 MB", "L2 cache, MB"),
    "sms": ("SMs", "streaming multiprocessors"),
    "power_w": ("W", "power limit, W"),
    "list_price_usd": ("$", "list price, $"),
    "rental_price_usd_per_h": ("$/h", "rental price, $/h"),
}
"""Figures of a tier: heading in a table, then meaning and unit. Those of a server are of one of its devices."""
SERVER_FIGURES = {
    "devices": ("devices", "devices in the server"),
    "host_memory_gb": ("host GB", "memory of its CPUs, GB"),
}
"""Further figures of a server."""

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Figure:
    """One number of the catalogue and where it comes from; `value` is None where no source was found."""

    value: float | None
    source: str | None = None
    """Title of the source."""
    url: str | None = None
    date: str | None = None
    """ISO date of the source, or the day it was read where the source has none."""
    checked: bool = True
    """False where the figure was not verified in the named source."""
    note: str | None = None
    """How the figure was derived, or why there is none."""


class Sourced:
    """An entry of a catalogue; each of its figures is an attribute, None where no source was found."""

    def figure(self, name: str) -> Figure:
        """A figure with its source, for example `tier.figure("power_w")`."""
        return vars(self)["figures"][name]

    def __getattr__(self, name: str) -> float | None:
        figure = vars(self).get("figures", {}).get(name)
        if figure is None:
            raise AttributeError(f"a {type(self).__name__.lower()} has no {name}")
        return figure.value


@dataclass(frozen=True)
class Tier(Sourced):
    """One kind of hardware. Each of `FIGURES` (for a server, `SERVER_FIGURES` too) is an attribute, or None."""

    name: str
    label: str
    kind: str
    """cpu, gpu, edge, or server (several devices, larger than what runs here, so it is only predicted)."""
    year: int | None
    cores: int | None
    """CPU cores (vCPUs on a cloud machine)"""
    note: str | None = None
    match: tuple[str, ...] = ()
    """Phrases; a device whose name contains one of them is of this tier."""
    figures: Mapping[str, Figure] = field(default_factory=dict, repr=False, compare=False, hash=False)

    def to_dict(self) -> dict:
        plain: dict[str, Any] = {key: getattr(self, key) for key in ("name", "label", "kind", "year", "cores", "note")}
        return plain | {key: vars(figure) for key, figure in self.figures.items()}


@cache
def load_tiers() -> Mapping[str, Tier]:
    """Return the catalogue by name, in the file's order: weakest first within each kind."""
    tiers = {}
    for name, entry, figures in read_entries("tiers", FIGURES | SERVER_FIGURES):
        figures = {key: each for key, each in figures.items() if key in FIGURES or entry["kind"] == "server"}
        plain: dict[str, Any] = {key: entry.get(key) for key in ("label", "kind", "year", "cores", "note")}
        tiers[name] = Tier(name, figures=MappingProxyType(figures), match=tuple(entry.get("match", [])), **plain)
    return MappingProxyType(tiers)


def read_entries(catalogue: str, keys: Mapping) -> Iterator[tuple[str, dict, Mapping[str, Figure]]]:
    """Yield each entry of labkit/hardware/<catalogue>.toml: its name, its fields, its figures with their sources."""
    content = tomllib.loads(files("labkit.hardware").joinpath(f"{catalogue}.toml").read_text(encoding="utf-8"))
    for name, entry in content[catalogue].items():
        figures = {key: _figure(entry.get(key, {"none": "no source found"}), content["sources"]) for key in keys}
        yield name, entry, MappingProxyType(figures)


def _figure(entry: dict, sources: dict) -> Figure:
    if "none" in entry:
        return Figure(None, note=entry["none"])
    source = sources[entry["source"]]
    return Figure(**entry | {"source": source["title"], "url": source["url"], "date": source["date"]})


def get_tier(name: str) -> Tier:
    """Return one tier.

    Raises:
        UserError: no tier has that name; the text lists similar names.

    >>> get_tier("t4").memory_gb
    16
    """
    return pick(load_tiers(), "tier", name, f"`labkit tiers` lists all {len(load_tiers())}.")


def pick(entries: Mapping[str, Entry], kind: str, name: str, all_of_them: str) -> Entry:
    """Return the entry of that name, or raise a UserError with similar names and `all_of_them`."""
    if name in entries:
        return entries[name]
    near = errors.nearest(name.lower().replace("_", "-").replace(" ", "-"), entries)
    raise UserError(f"There is no {kind} called {name!r}. {near}{all_of_them}")


def match_tier(device: Device) -> Tier | None:
    """Return the catalogue entry for a device, or None where the catalogue has nothing like it.

    GPUs and boards are recognised by their names. Any other CPU is priced as the smallest generic cloud
    machine with at least as many cores. A MIG slice is a part of a GPU and has no entry.
    """
    if device.kind == "mig":
        return None
    name = device.name.lower().replace("-", " ")
    named = (tier for tier in load_tiers().values() if any(_contains(name, phrase) for phrase in tier.match))
    return next(named, cpu_tier(device.cores) if device.kind == "cpu" else None)


def tier_name(device: Device) -> str | None:
    tier = match_tier(device)
    return tier.name if tier is not None else None


def cpu_tier(cores: int | None) -> Tier | None:
    """Return the smallest generic cloud CPU tier with at least that many cores.

    >>> cpu_tier(6).name
    'cloud-cpu-8'
    """
    generic = (tier for tier in load_tiers().values() if tier.name.startswith("cloud-cpu-"))  # the smallest first
    return next((tier for tier in generic if cores is not None and errors.certain(tier.cores) >= cores), None)


OTHER_PRODUCTS = {"super", "ti", "laptop", "max", "mobile", "with", "nvl", "pcie"}
"""Words that make a product's name another product's when they follow it (`with` as in "with Max-Q Design")."""


def _contains(name: str, phrase: str) -> bool:
    # Whole words, so that "nvidia l4" does not match an "NVIDIA L40S", nor "rtx 2070" an "RTX 2070 SUPER".
    _, found, after = f" {name} ".partition(f" {phrase} ")
    return bool(found) and not set(after.split()[:1]) & OTHER_PRODUCTS


GRID_FIGURES = {
    "carbon_g_per_kwh": ("g CO2e/kWh", "life-cycle carbon intensity of the electricity generated, g CO2e per kWh"),
    "price_usd_per_kwh": ("$/kWh", "average retail price, $ per kWh"),
}
"""Figures of a grid: heading in a table, then meaning and unit."""


@dataclass(frozen=True)
class Grid(Sourced):
    """One grid. Each of `GRID_FIGURES` is an attribute, None where no source was found."""

    name: str
    label: str
    figures: Mapping[str, Figure] = field(repr=False, compare=False, hash=False)


@cache
def load_grids() -> Mapping[str, Grid]:
    """Return the grids by name, cleanest first."""
    entries = read_entries("grids", GRID_FIGURES)
    return MappingProxyType({name: Grid(name, entry["label"], figures) for name, entry, figures in entries})


def get_grid(name: str) -> Grid:
    """Return one grid.

    Raises:
        UserError: no grid has that name; the text lists similar names.

    >>> get_grid("germany").carbon_g_per_kwh
    380.95
    """
    return pick(load_grids(), "grid", name, f"There are {', '.join(load_grids())}.")
