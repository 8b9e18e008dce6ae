"""Tables placed on devices, in a cache, and behind a parameter server."""

import os
import signal
import subprocess
import sys
from collections import OrderedDict
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from placed import Training, batches
from processes import gone, wait_for

from labkit.errors import UserError
from labkit.placement.cached import CacheIndex
from labkit.placement.remote import RemoteStore

PLACES = {
    "cached, lru": {"placement": "cached", "cache_rows": "10%"},
    "cached, lfu": {"placement": "cached", "cache_rows": "10%", "cache_policy": "lfu"},
    "cached, too few for a batch": {"placement": "cached", "cache_rows": "20"},
    "cached over disk": {"placement": "cached", "cache_rows": "150", "cache_over": "disk"},
    "cached over remote": {"placement": "cached", "cache_rows": "150", "cache_over": "remote"},
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


PUSHED = batches(20)


@pytest.fixture
def remote(tmp_path, request):
    """Starts trainings whose tables are in another process, and ends them."""

    def start(**flags):
        training = Training(tmp_path, "remote", **flags)
        request.addfinalizer(training.close)
        return training

    return start


def test_a_server_that_was_killed_ends_the_training_with_an_error_and_not_a_wait(remote):
    training = remote()
    training.train(PUSHED[:3])
    os.kill(training.model.tables.store._child.pid, signal.SIGKILL)
    for _ in range(2):  # the second time without asking the server
        with pytest.raises(UserError, match=r"the parameter server of this run has ended.*--resume"):
            training.train(PUSHED)


def test_a_server_without_memory_for_the_tables_is_an_error():
    with pytest.raises(UserError, match=r"(?s)the parameter server did not start.*allocate"):
        RemoteStore(2**45, 64, "adagrad")


def test_rows_come_back_from_a_copy(tmp_path):
    store, rows = RemoteStore(50, 4, "adagrad"), np.arange(50)
    store.write_weights(0, np.full((50, 4), 3, np.float32))
    saved = store.save(tmp_path, 7)
    store.write_weights(0, np.zeros((50, 4), np.float32))
    store.load(tmp_path, saved)
    assert (store.peek(rows) == 3).all()
    with pytest.raises(UserError, match=r"tables-000000000008.rows: this copy of the tables is not there"):
        store.load(tmp_path, {"file": "tables-000000000008.rows"})
    store.close()


def test_each_message_that_the_server_does_not_understand_is_answered():
    store = RemoteStore(5, 4, "sgd")
    for message in ((), ("dance",), ("pull",), ("push", 1), (["pull"], [0]), None, b"pull"):
        with pytest.raises(UserError, match="a message that it does not understand"):
            store._thread.submit(store._exchange, message).result()
        store._failure = None  # after one the trainer asks for nothing more
    store.close()


def test_stale_pulls_give_other_losses_and_the_same_ones_each_time(remote):
    fresh, one, again, three = (remote(staleness=each).train([PUSHED[0]] * 20) for each in (0, 1, 1, 3))
    assert one == again and len({*map(tuple, (fresh, one, three))}) == 3
    assert fresh[0] == one[0] == three[0]  # nothing was pushed before
    assert fresh[-1] < fresh[0] and three[-1] < three[0]  # it learns what it sees again and again


def test_a_pull_misses_as_many_pushes_as_staleness_says(remote, monkeypatch):
    training, order = remote(staleness=2), []
    ask = training.model.tables.store._ask

    def noted(op, *given):
        order.append(op)
        return ask(op, *given)

    monkeypatch.setattr(training.model.tables.store, "_ask", noted)
    training.train(PUSHED)
    pulls = [place for place, op in enumerate(order) if op == "pull"]
    assert [order[:place].count("push") for place in pulls] == [max(0, number - 2) for number in range(len(PUSHED))]


def test_a_stranger_is_turned_away_before_the_trainer_connects(monkeypatch):
    met = []

    def connect(address, authkey):
        with pytest.raises(AuthenticationError):
            Client(address, authkey=b"guessed")
        met.append(address)
        return Client(address, authkey=authkey)

    monkeypatch.setattr("labkit.placement.remote.Client", connect)
    store = RemoteStore(50, 4, "sgd")
    assert met and store.peek(np.arange(3)).shape == (3, 4)
    with pytest.raises(ConnectionError):  # it listens no longer
        Client(met[0], authkey=b"guessed")
    store.close()


def test_nothing_is_left_when_the_trainer_is_killed(tmp_path):
    program = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from placed import Training, batches
training = Training({str(tmp_path)!r}, "remote")
training.train(batches(2))
print(training.model.tables.store._child.pid, flush=True)
time.sleep(60)
"""
    trainer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    server = psutil.Process(int(trainer.stdout.readline()))
    assert "labkit.placement.remote" in server.cmdline()
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    wait_for(lambda: gone(server))


def textbook_lru(batches, slots):
    """Misses of each batch, and what is held at the end: those that are there first, then the others."""
    held, missed = OrderedDict(), []
    for rows in batches:
        hits, misses = [row for row in rows if row in held], [row for row in rows if row not in held]
        for row in hits:
            held.move_to_end(row)
        for row in misses:
            if len(held) == slots:
                held.popitem(last=False)
            held[row] = None
        missed.append(len(misses))
    return missed, set(held)


def textbook_lfu(batches, slots):
    held, missed, now = {}, [], 0
    for number, rows in enumerate(batches):
        hits, misses = [row for row in rows if row in held], [row for row in rows if row not in held]
        for row in hits:
            held[row], now = (held[row][0] + 1, now, number), now + 1
        for row in misses:
            if len(held) == slots:
                del held[min((row for row in held if held[row][2] < number), key=lambda row: held[row][:2])]
            held[row], now = (1, now, number), now + 1
        missed.append(len(misses))
    return missed, set(held)


@pytest.mark.parametrize("policy, textbook", [("lru", textbook_lru), ("lfu", textbook_lfu)])
@pytest.mark.parametrize("rows, slots, size", [(60, 12, 1), (300, 40, 25), (300, 299, 30), (2000, 500, 120)])
def test_a_cache_evicts_as_the_textbook_does(policy, textbook, rows, slots, size):
    rng = np.random.default_rng(rows + size)
    batches = [np.unique(rng.zipf(1.2, size) % rows) for _ in range(400)]
    index = CacheIndex(rows, slots, policy)
    missed = [index.look(batch).missed for batch in batches]
    assert (missed, set(np.flatnonzero(index.slot_of >= 0))) == textbook(batches, slots)


def test_what_comes_in_and_goes_is_told_so_that_the_values_can_follow():
    rng, index, behind, fast = np.random.default_rng(3), CacheIndex(200, 30, "lru"), np.arange(200) * 10, np.zeros(30)
    for _ in range(200):
        batch = np.unique(rng.integers(0, 200, 12))
        look = index.look(batch)
        behind[look.evicted] = fast[look.evicted_from]
        fast[look.fetched_into] = behind[look.fetched]
        assert np.array_equal(index.row_in[index.slot_of[batch]], batch)
        assert np.array_equal(fast[index.slot_of[batch]], behind[batch])  # of no other row, ever
        fast[index.slot_of[batch]] += 1
        behind[batch] += 1  # as if written through, so that both can be compared


def test_rows_of_batches_under_way_stay_and_the_rest_finds_no_slot():
    index = CacheIndex(100, 10, "lru")
    first = index.look(np.arange(8))
    second = index.look(np.arange(50, 60), protected=first.number)
    assert second.missed == 10 and len(second.fetched) == 2 and not len(second.evicted)
    assert (index.slot_of[:8] >= 0).all() and (index.slot_of[52:60] < 0).all()
