"""The catalogue of hardware tiers: what each is, what it costs, and where every figure comes from."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from labkit.errors import UserError
from labkit.hardware.device import Device

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
"""Every figure of a tier, with its heading in a table, and its meaning and unit."""


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
    """False where the figure was not read in the source named."""
    note: str | None = None
    """How the figure was derived, or why there is none."""


@dataclass(frozen=True)
class Tier:
    """One kind of hardware. Each of `FIGURES` is an attribute, None where no source was found."""

    name: str
    label: str
    kind: str
    """cpu, gpu or edge"""
    year: int | None
    cores: int | None
    """CPU cores (vCPUs on a cloud machine)"""
    note: str | None = None
    match: tuple[str, ...] = ()
    """Phrases of which one stands in the name of such a device."""
    figures: Mapping[str, Figure] = field(default_factory=dict, repr=False, compare=False, hash=False)

    def figure(self, name: str) -> Figure:
        """A figure with its source, for example `tier.figure("power_w")`."""
        return self.figures[name]

    def __getattr__(self, name: str) -> float | None:
        if name not in FIGURES:
            raise AttributeError(f"a tier has no {name}")
        return self.figures[name].value

    def to_dict(self) -> dict:
        plain = {key: getattr(self, key) for key in ("name", "label", "kind", "year", "cores", "note")}
        return plain | {key: vars(figure) for key, figure in self.figures.items()}


@cache
def load_tiers() -> Mapping[str, Tier]:
    """Return the catalogue by name, weakest first within each kind as the file has them."""
    text = files("labkit.hardware").joinpath("tiers.toml").read_text(encoding="utf-8")
    catalogue = tomllib.loads(text)
    sources = catalogue["sources"]
    tiers = {}
    for name, entry in catalogue["tiers"].items():
        figures = {key: _figure(entry.get(key, {"none": "no source found"}), sources) for key in FIGURES}
        plain = {key: entry.get(key) for key in ("label", "kind", "year", "cores", "note")}
        tiers[name] = Tier(name, figures=MappingProxyType(figures), match=tuple(entry.get("match", [])), **plain)
    return MappingProxyType(tiers)


def _figure(entry: dict, sources: dict) -> Figure:
    if "none" in entry:
        return Figure(None, note=entry["none"])
    source = sources[entry["source"]]
    return Figure(**entry | {"source": source["title"], "url": source["url"], "date": source["date"]})


def get_tier(name: str) -> Tier:
    """Return one tier.

    Raises:
        UserError: no tier has that name; the text lists the nearest names.

    >>> get_tier("t4").memory_gb
    16
    """
    tiers = load_tiers()
    if name not in tiers:
        near = difflib.get_close_matches(name.lower().replace("_", "-").replace(" ", "-"), tiers, n=3, cutoff=0.4)
        hint = f"Near it: {', '.join(near)}. " if near else ""
        raise UserError(f"There is no tier called {name!r}. {hint}`labkit tiers` lists all {len(tiers)}.")
    return tiers[name]


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
    return tier and tier.name


def cpu_tier(cores: int | None) -> Tier | None:
    """Return the smallest generic cloud CPU tier with at least that many cores.

    >>> cpu_tier(6).name
    'cloud-cpu-8'
    """
    if cores is None:
        return None
    generic = [tier for tier in load_tiers().values() if tier.name.startswith("cloud-cpu-")]
    return min((tier for tier in generic if tier.cores >= cores), key=lambda tier: tier.cores, default=None)


OTHER_PRODUCTS = {"super", "ti", "laptop", "max", "mobile", "with", "nvl", "pcie"}
"""Words which, after a product's name, make it another product (`with` as in "with Max-Q Design")."""


def _contains(name: str, phrase: str) -> bool:
    # Whole words, so that "nvidia l4" does not match an "NVIDIA L40S", nor "rtx 2070" an "RTX 2070 SUPER".
    _, found, after = f" {name} ".partition(f" {phrase} ")
    return bool(found) and not set(after.split()[:1]) & OTHER_PRODUCTS
