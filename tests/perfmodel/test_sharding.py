"""Embedding tables on several processes."""

import numpy as np
import pytest

from labkit.perfmodel.sharding import (
    SIZES,
    Tables,
    fit_transfer,
    measure_placements,
    placements,
    sent_share,
    time_exchanges,
)

TABLES = Tables((1000, 10, 500, 400), (1, 40, 2, 3), 8, 64)


def test_tables_go_to_whoever_has_least():
    ways = placements(TABLES, 2, random=2)
    assert ways["in turn"] == (0, 1, 0, 1)
    assert ways["by rows"] == (0, 1, 1, 1)
    assert ways["by lookups"] == (1, 0, 1, 1)
    assert len(ways) == 5


def test_bytes_that_leave_a_process():
    assert sent_share(4) == 0.75


def test_a_start_and_the_cost_of_a_byte_are_found_again():
    times = [1e-4 + 0.5 * size * 2e-9 for size in SIZES]
    found = fit_transfer(SIZES, times, 0.5)
    assert found.start_s == pytest.approx(1e-4, rel=1e-3)
    assert found.byte_s == pytest.approx(2e-9, rel=1e-3)
    assert found.seconds(1e6) == pytest.approx(2.1e-3, rel=1e-3)


def test_processes_exchange_and_the_placements_are_timed():
    assert len(time_exchanges(2, (1024, 2**20))) == 2
    measured = measure_placements(TABLES, {"in turn": (0, 1, 0, 1), "on one": (0, 0, 0, 0)}, 2)
    assert np.all(np.array(list(measured.values())) > 0)
