"""What a run had spent by each moment of its clock: joules of its device, and dollars at the price of its tier."""

import time
from typing import NamedTuple

import numpy as np

from labkit import UserError, telemetry, tta
from labkit.live.feed import RunFeed

SPENT = ("energy_j", "cost_usd")
"""Axes that follow from a run's wall time"""
MOMENTS = 257
RENEWED_S = 10.0
"""Seconds after which the counters of a run that goes on are read again: all of them, from its beginning"""


class Spending(NamedTuple):
    """What was spent by some moments of the wall time."""

    wall_s: np.ndarray
    spent: np.ndarray
    how: str
    """Whether it was measured, and by what"""

    def on(self, rows: np.ndarray) -> np.ndarray:
        """Rows of a curve with what was spent in place of the wall time."""
        placed = np.array(rows)
        placed[..., 1] = np.interp(placed[..., 1], self.wall_s, self.spent)
        return placed


def spending(feed: RunFeed, axis: str) -> Spending | None:
    """What a run spent; None if no price, counter or power is known of it."""
    if axis == "cost_usd":
        price, wall_s = tta.price_usd_per_h(feed.record.tier), np.array([0.0, feed.latest[1]])
        if price.value_usd is None:
            return None
        how = f"predicted from {feed.record.provenance.kind} time: {price.note}"
        return Spending(wall_s, wall_s * price.value_usd / 3600, how)
    status, read_at, known = feed.energy
    if status != feed.record.status or (status == "running" and time.monotonic() - read_at > RENEWED_S):
        known = _energy(feed)
        feed.energy = feed.record.status, time.monotonic(), known
    return known


def _energy(feed: RunFeed) -> Spending | None:
    clocks = feed.clocks()
    try:
        energy, kind = tta.energy_of(telemetry.Samples(feed.folder, telemetry.OF_ENERGY), True, None)
    except (UserError, OSError):
        return None
    if not clocks or not energy.steps:
        return None
    times, walls = (np.array([each[place] for each in clocks], float) for place in (0, 1))
    wall_s = np.linspace(0, feed.latest[1], MOMENTS)
    before = np.clip(np.searchsorted(walls, wall_s, side="right") - 1, 0, None)  # a resume leaves a gap
    when_ns = times[before] + 1e9 * (wall_s - walls[before])
    return Spending(wall_s, tta.energy_until(when_ns, energy.steps), f"{kind}: {energy.source}")
