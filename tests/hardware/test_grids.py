"""Grids: each figure with its source, cleanest first."""

import datetime

import pytest

from labkit.errors import UserError
from labkit.hardware.tiers import GRID_FIGURES, get_grid, load_grids


def test_every_figure_has_a_source_or_a_reason_to_be_null_and_the_cleanest_grid_comes_first():
    for grid in load_grids().values():
        for figure in map(grid.figure, GRID_FIGURES):
            if figure.value is None:
                assert figure.note
            else:
                assert figure.source and figure.url.startswith("https://")
                assert datetime.date.fromisoformat(figure.date) <= datetime.date(2026, 11, 23)
    carbon = [grid.carbon_g_per_kwh for grid in load_grids().values() if grid.carbon_g_per_kwh]
    assert carbon == sorted(carbon) and carbon[0] > 0
    # Retail electricity has cost between a cent and a dollar everywhere.
    assert all(0.01 < grid.price_usd_per_kwh < 1 for grid in load_grids().values() if grid.price_usd_per_kwh)


def test_an_unknown_grid_is_answered_with_the_nearest_names():
    assert get_grid("us").price_usd_per_kwh == 0.127
    with pytest.raises(UserError, match="germany"):
        get_grid("Germny")
    with pytest.raises(AttributeError, match="a grid has no power_w"):
        _ = get_grid("us").power_w
