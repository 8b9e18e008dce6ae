"""Every row once an epoch, in an order that needs little memory."""

import tracemalloc

import numpy as np
import pytest

from labkit.data.clicks.batches import WINDOW_ROWS, EpochOrder


def visited(num_rows: int, batch: int, seed: int = 0, epoch: int = 0, **options) -> np.ndarray:
    order = EpochOrder(num_rows, seed, epoch, **options)
    return np.concatenate([order.rows(start, start + batch) for start in range(0, num_rows, batch)])


@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 256, 1000, 1025])
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_every_row_is_visited_once(num_rows, batch):
    rows = visited(num_rows, batch, block_rows=16, window_rows=64)
    assert sorted(rows.tolist()) == list(range(num_rows))


def test_the_order_does_not_depend_on_the_batches_nor_on_where_it_begins():
    order = EpochOrder(1000, 0, 0, block_rows=16, window_rows=64)
    late = order.rows(700, 1000)
    assert np.array_equal(visited(1000, 7, block_rows=16, window_rows=64)[700:], late)


def test_seed_and_epoch_give_other_orders():
    orders = [visited(500, 50, seed, epoch, block_rows=16, window_rows=64) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize("window_rows", [64, 4096])
def test_neighbours_on_disk_are_not_neighbours_in_a_batch(window_rows):
    """Also where several windows are needed: rows that follow each other in a file are much alike."""
    rows = visited(4096, 64, block_rows=16, window_rows=window_rows)
    assert np.mean(np.abs(np.diff(rows)) == 1) < 0.1
    # each quarter of the epoch draws on the whole file
    quarters = np.array_split(rows, 4)
    assert all(abs(quarter.mean() / 2048 - 1) < 0.2 for quarter in quarters)


def test_one_window_is_held_at_a_time():
    tracemalloc.start()
    try:
        order = EpochOrder(10**9, 0, 0)  # 8 GB of numbers, if they were all drawn
        for start in (0, 5 * 10**8):
            assert len(order.rows(start, start + 10)) == 10
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * 8 * WINDOW_ROWS + 2**24  # the window, once more while it is put together, and its blocks
