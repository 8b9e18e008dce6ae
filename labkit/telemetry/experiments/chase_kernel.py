"""Pointer chasing, compiled. Importing this needs numba."""

from __future__ import annotations

from numba import njit


@njit(cache=True)
def chase(places, at, steps):
    """Follow `places` (N,) from `at` for so many steps; return where that leads."""
    for _ in range(steps):
        at = places[at]
    return at
