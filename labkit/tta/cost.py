"""What reaching the target costs: wall time on a tier, at the tier's rental price; time and energy at other prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit.errors import UserError
from labkit.hardware import get_tier
from labkit.tta.energy import J_PER_KWH


@dataclass(frozen=True)
class Cost:
    """A price, or why there is none."""

    value_usd: float | None
    note: str
    """The price an hour and its source, or the reason for its absence."""


def price_usd_per_h(tier: str | None) -> Cost:
    """The rental price of a tier, by the catalogue."""
    if not isinstance(tier, str):  # None, or NaN after a frame has been joined
        return Cost(None, "this hardware is in no tier of the catalogue, so it has no price")
    try:
        price = get_tier(tier).rental_price_usd_per_h
    except UserError:
        return Cost(None, f"tier {tier} is not in this catalogue")
    if price is None:
        return Cost(None, f"no rental price with a source is known for tier {tier}")
    return Cost(price, f"${price:.3g} an hour for tier {tier}, by the catalogue")


def usd_per_s(tiers: pd.Series) -> pd.Series:
    """The rental price of each tier a second; NaN without one."""
    return tiers.map({tier: price_usd_per_h(tier).value_usd for tier in tiers.unique()}).astype(float) / 3600


def cost_usd(time_s: float, tier: str | None) -> Cost:
    """Cost of holding one machine of `tier` for `time_s` wall seconds; none where that is inf or NaN: not reached."""
    price = price_usd_per_h(tier)
    if price.value_usd is None:
        return price
    if not np.isfinite(time_s):
        return Cost(None, "the target was not reached")
    return Cost(price.value_usd * time_s / 3600, price.note)


def with_cost(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves with a column cost_usd: what each run had cost at each evaluation (NaN without a price)."""
    return curves.assign(cost_usd=curves["wall_s"] * usd_per_s(curves["tier"]))


def priced(points: pd.DataFrame, *, usd_per_h: float, usd_per_kwh: float, g_per_kwh: float) -> pd.DataFrame:
    """What settings cost whose time_s and energy_j to a target are known: columns cost_usd, carbon_g and front.

    An hour and a kilowatt-hour are paid for separately; `front` says whether no other setting is as good in both.
    """
    kwh = points["energy_j"] / J_PER_KWH
    cost_usd, carbon_g = points["time_s"] / 3600 * usd_per_h + kwh * usd_per_kwh, kwh * g_per_kwh
    return points.assign(cost_usd=cost_usd, carbon_g=carbon_g, front=on_front(cost_usd, carbon_g))


def on_front(x: Sequence[float], y: Sequence[float]) -> list[bool]:
    """Of points of two costs, whether each is one to which no other is equal or better in both (Pareto's front)."""
    points = list(zip(x, y, strict=True))
    return [
        not any(a <= own_x and b <= own_y and (a, b) != (own_x, own_y) for a, b in points) for own_x, own_y in points
    ]
