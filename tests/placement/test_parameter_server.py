"""A parameter server: killed, restored from a copy, left by its trainer, called by a stranger; what staleness does."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import numpy as np
import psutil
import pytest
from placed import Training, batches

from labkit.errors import UserError
from labkit.placement.remote import RemoteStore

STEPS = batches(20)


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
    training.train(STEPS[:3])
    os.kill(training.model.tables.store._child.pid, signal.SIGKILL)
    for _ in range(2):  # the second time without asking the server
        with pytest.raises(UserError, match=r"the parameter server of this run has ended.*--resume"):
            training.train(STEPS)


def test_a_server_without_memory_for_the_tables_is_an_error():
    with pytest.raises(UserError, match=r"(?s)the parameter server did not start.*allocate"):
        RemoteStore(2**45, 64, "adagrad")


def test_rows_come_back_from_a_copy_and_from_one_of_an_earlier_version(tmp_path):
    store, rows = RemoteStore(50, 4, "adagrad"), np.arange(50)
    store.write_weights(0, np.full((50, 4), 3, np.float32))
    saved = store.save(tmp_path, 7)
    store.write_weights(0, np.zeros((50, 4), np.float32))
    store.load(tmp_path, saved)
    assert (store.peek(rows) == 3).all()
    header = json.dumps({"tables": {}, "step": 7, "arrays": [["<f4", [50, 8]]]}).encode()
    old = b"LKT1" + len(header).to_bytes(4, "little") + header + np.full((50, 8), 5, "<f4").tobytes()
    (tmp_path / "run-000000000007.tables").write_bytes(old)
    store.load(tmp_path, {"training": "8f2a", "name": "run-000000000007.tables"})
    assert (store.peek(rows) == 5).all()
    with pytest.raises(UserError, match=r"tables-000000000008.rows: this copy of the tables is not there"):
        store.load(tmp_path, {"file": "tables-000000000008.rows"})
    store.close()


def test_stale_pulls_give_other_losses_and_the_same_ones_each_time(remote):
    fresh, one, again, three = (remote(staleness=each).train([STEPS[0]] * 20) for each in (0, 1, 1, 3))
    assert one == again and len({*map(tuple, (fresh, one, three))}) == 3
    assert fresh[0] == one[0] == three[0]  # nothing was pushed before
    assert fresh[-1] < fresh[0] and three[-1] < three[0]  # it learns what it sees again and again


def test_a_pull_misses_as_many_pushes_as_staleness_says(remote, monkeypatch):
    training, order = remote(staleness=2), []
    ask = training.model.tables.store._ask

    def noted(header, *arrays):
        order.append(header["op"])
        return ask(header, *arrays)

    monkeypatch.setattr(training.model.tables.store, "_ask", noted)
    training.train(STEPS)
    pulls = [place for place, op in enumerate(order) if op == "pull"]
    assert [order[:place].count("push") for place in pulls] == [max(0, number - 2) for number in range(len(STEPS))]


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
    script = tmp_path / "trainer.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from placed import Training, batches
        training = Training({str(tmp_path)!r}, "remote")
        training.train(batches(2))
        print(training.model.tables.store._child.pid, flush=True)
        time.sleep(60)
        """)
    )
    trainer = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    server = psutil.Process(int(trainer.stdout.readline()))
    assert "labkit.placement.remote" in server.cmdline()
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    until = time.monotonic() + 20
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.02)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
