"""What settings cost at prices of one's own, and which of them are on the front of money and carbon."""

from collections.abc import Sequence

import pandas as pd

J_PER_KWH = 3.6e6


def priced(points: pd.DataFrame, *, usd_per_h: float, usd_per_kwh: float, g_per_kwh: float) -> pd.DataFrame:
    """Cost of settings whose time_s and energy_j to a target are known: columns cost_usd, carbon_g and front.

    An hour and a kilowatt-hour are paid for separately; `front` says whether no other setting is as good in both.
    """
    kwh = points["energy_j"] / J_PER_KWH
    cost_usd, carbon_g = points["time_s"] / 3600 * usd_per_h + kwh * usd_per_kwh, kwh * g_per_kwh
    return points.assign(cost_usd=cost_usd, carbon_g=carbon_g, front=on_front(cost_usd, carbon_g))


def on_front(x: Sequence[float], y: Sequence[float]) -> list[bool]:
    """Whether each point of two costs is on Pareto's front: no other is as good or better in both."""
    points = list(zip(x, y, strict=True))
    return [
        not any(a <= own_x and b <= own_y and (a, b) != (own_x, own_y) for a, b in points) for own_x, own_y in points
    ]
