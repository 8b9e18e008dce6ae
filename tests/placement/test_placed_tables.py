"""Every placement trains the same model: bit by bit among those of rows, and up to rounding as on the device."""

import pytest
import torch
from placed import Training, batches

from labkit.errors import UserError

PLACES = {
    "cached, lru": {"placement": "cached", "cache_rows": "10%"},
    "cached, lfu": {"placement": "cached", "cache_rows": "10%", "cache_policy": "lfu"},
    "cached, too few for a batch": {"placement": "cached", "cache_rows": "20"},
    "cached over disk": {"placement": "cached", "cache_rows": "150", "cache_over": "disk"},
    "disk": {"placement": "disk", "memory_cap": "1MiB"},
    "remote": {"placement": "remote"},
}
STEPS, SEEN = batches(30), batches(1, seed=9)[0]
_host: dict[str, list[float]] = {}


def trained(folder, optimiser, *, prefetches=True, **place):
    training = Training(folder, optimiser=optimiser, **place)
    try:
        return training.train(STEPS, prefetches=prefetches, evaluates_on=SEEN)
    finally:
        training.close()


@pytest.fixture
def host(tmp_path):
    """Losses with rows in main memory, by optimiser."""

    def host(optimiser):
        if optimiser not in _host:
            _host[optimiser] = trained(tmp_path, optimiser, placement="host", prefetches=False)
        return _host[optimiser]

    return host


@pytest.mark.parametrize("optimiser", ["sgd", "adagrad", "rowwise-adagrad", "adam"])
@pytest.mark.parametrize("place", [name for name in PLACES if name != "remote"])
def test_every_placement_gives_the_same_losses_bit_by_bit(place, optimiser, tmp_path, host):
    assert trained(tmp_path, optimiser, **PLACES[place]) == host(optimiser)


def test_rows_that_are_read_and_written_around_a_cache_count(tmp_path):
    training = Training(tmp_path, **PLACES["cached, too few for a batch"])
    training.train(STEPS)
    counted, row_bytes = training.model.tables.store.counters, 4 * training.model.tables.store.width
    training.close()
    missed_bytes = counted.missed_rows * row_bytes  # a few rows came into a slot for the next batch meanwhile
    assert 0.95 * missed_bytes < counted.read_bytes <= missed_bytes


def test_a_row_that_no_table_has_is_refused_in_training_and_evaluation(tmp_path):
    training = Training(tmp_path, placement="host")
    dense, categorical, _ = SEEN
    for is_training in (True, False):
        training.model.train(is_training)
        with pytest.raises(UserError, match=r"a batch has rows .* below the rows of their table"):
            training.model(dense, categorical + 10**6)
    training.close()


@pytest.mark.parametrize("optimiser", ["rowwise-adagrad", "adam"])
def test_a_server_without_staleness_gives_the_same_losses_bit_by_bit(optimiser, tmp_path, host):
    assert trained(tmp_path, optimiser, **PLACES["remote"]) == host(optimiser)


@pytest.mark.parametrize("place", [name for name in PLACES if name != "remote"])
def test_losses_do_not_depend_on_prefetching(place, tmp_path, host):
    assert trained(tmp_path, "adagrad", prefetches=False, **PLACES[place]) == host("adagrad")


@pytest.mark.parametrize("optimiser", ["sgd", "adagrad", "rowwise-adagrad", "adam"])
def test_host_equals_the_device_up_to_rounding(optimiser, tmp_path, host):
    # gradients of equal rows are summed in another order: 2**-24 relative a step, which 30 steps of a small model and
    # the root in an optimiser's first steps amplify
    device = trained(tmp_path, optimiser, placement="device")
    torch.testing.assert_close(torch.tensor(host(optimiser)), torch.tensor(device), rtol=1e-4, atol=1e-5)
