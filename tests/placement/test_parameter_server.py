"""A parameter server that is killed, comes back, stays gone, or is another one; and what staleness does."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from placed import Training, batches

from labkit.errors import UserError
from labkit.placement import remote
from labkit.placement.server import TableServer
from labkit.placement.wire import read_message, write_message
from labkit.process import Child

STEPS = batches(20)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Served:
    """A server in a process of its own, which can be killed and started again at the same port."""

    def __init__(self, folder, every=6):
        self.port, self._folder, self._every = free_port(), folder, every
        self.address = f"127.0.0.1:{self.port}"
        self.start()

    def start(self, folder=None):
        content = {"host": "127.0.0.1", "port": self.port, "every": self._every}
        self.child = Child("labkit.placement.server", content | {"folder": str(folder or self._folder)}).start()
        assert self.child.next_message(60) == {"kind": "Listening", "address": self.address}

    def kill(self):
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.end()


@pytest.fixture
def served(tmp_path):
    served = Served(tmp_path / "tables")
    yield served
    served.child.end()


@pytest.fixture
def serve(request):
    """Starts servers in this process; gives their addresses."""

    def serve(folder=None):
        server = TableServer("127.0.0.1", 0, folder, every=6)
        thread = threading.Thread(target=server.serve)
        thread.start()
        request.addfinalizer(thread.join)
        request.addfinalizer(server.stop)
        return server.address

    return serve


def test_a_killed_server_goes_on_from_its_checkpoint_with_the_same_losses(served, tmp_path, monkeypatch):
    host, training, losses = Training(tmp_path, "host"), Training(tmp_path, "remote", server=served.address), []
    for number, batch in enumerate(STEPS):
        if number in (3, 17):
            if number == 3:
                training.model.tables.store.flush()  # before its first checkpoint of its own accord
            served.kill()
            served.start()
        losses.append(training.step(batch))
    assert losses == host.train(STEPS)

    served.kill()  # for good
    monkeypatch.setattr(remote, "RECONNECT_S", 0.3)
    with pytest.raises(UserError, match=rf"{served.address}: no parameter server answers.*labkit serve-tables"):
        training.train(STEPS)
    training.close()


def test_a_server_that_comes_back_without_its_tables_is_refused(served, tmp_path):
    training = Training(tmp_path, "remote", server=served.address)
    training.train(STEPS[:8])
    served.kill()
    served.start(tmp_path / "another")
    with pytest.raises(UserError, match=r"came back after 0 pushes, and this training needs one after 6.*--folder"):
        training.train(STEPS)
    training.close()


def test_a_server_has_the_tables_of_one_training(serve, tmp_path):
    address = serve(tmp_path / "tables")
    first = Training(tmp_path, "remote", server=address)
    first.train(STEPS[:7])
    for flags, what in (({"optimiser": "adam"}, "another optimiser"), ({}, "another training")):
        other = Training(tmp_path, "remote", server=address, **flags)
        with pytest.raises(UserError, match=f"{what}.*a folder of its own"):
            other.train(STEPS)
        other.close()
    first.train(STEPS)  # it is still served
    first.close()


def test_nobody_at_an_address_is_said_before_training(tmp_path):
    with pytest.raises(UserError, match=r"no parameter server answers there.*leave --server out"):
        Training(tmp_path, "remote", server=f"127.0.0.1:{free_port()}")


def test_stale_pulls_give_other_losses_and_the_same_ones_each_time(serve, tmp_path):
    losses = []
    for staleness in (0, 1, 1, 3):
        training = Training(tmp_path, "remote", server=serve(), staleness=staleness)
        losses.append(training.train([STEPS[0]] * 20))
        training.close()
    fresh, one, again, three = losses
    assert one == again and len({*map(tuple, losses)}) == 3
    assert fresh[0] == one[0] == three[0]  # nothing was pushed before
    assert fresh[-1] < fresh[0] and three[-1] < three[0]  # it learns what it sees again and again


def test_a_pull_misses_no_more_pushes_than_staleness_allows(serve, tmp_path, monkeypatch):
    training, order = Training(tmp_path, "remote", server=serve(), staleness=2), []
    ask = training.model.tables.store._ask

    def noted(header, *arrays):
        order.append((header["op"], arrays[0].tobytes() if header["op"] == "pull" else header.get("step")))
        return ask(header, *arrays)

    monkeypatch.setattr(training.model.tables.store, "_ask", noted)
    training.train(STEPS)
    pulls = [place for place, (op, _) in enumerate(order) if op == "pull"]
    for number, place in enumerate(pulls):
        pushed = sum(op == "push" for op, _ in order[:place])
        assert pushed == max(0, number - 2)
    training.close()


def test_a_server_refuses_what_is_no_message_and_lives_on(serve, tmp_path):
    training = Training(tmp_path, "remote", server=serve())
    address = training.model.tables.store._host, training.model.tables.store._port
    training.train(STEPS[:2])
    for wrong in (b"GET / HTTP/1.1\r\n\r\n", b"LKT1\xff\xff\xff\xff", b"LKT1\x02\x00\x00\x00[]"):
        with socket.create_connection(address) as other:
            other.sendall(wrong)
            answer, _ = read_message(other.recv_into)
            assert "the message" in answer["error"]
    with socket.create_connection(address) as other:
        for header in ({"op": "nothing"}, {"op": "pull"}, {}):
            write_message(other.sendall, header)
            assert "error" in read_message(other.recv_into)[0]
    training.train(STEPS[:2])
    training.close()


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
    assert "labkit.placement.server" in server.cmdline()
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    until = time.monotonic() + 20
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.02)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE


def test_a_server_started_by_hand_says_where_it_is_and_saves_at_its_end(tmp_path):
    command = [sys.executable, "-m", "labkit", "serve-tables", "--folder", str(tmp_path / "tables")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, restore_signals=True)
    said = server.stdout.readline()
    training = Training(tmp_path, "remote", server=re.search(r"127\.0\.0\.1:\d+", said)[0])
    training.train(STEPS[:5])
    training.model.tables.store.peek(np.arange(3))  # after all pushes
    server.send_signal(signal.SIGINT)
    assert server.wait(30) == 130
    assert "a training connects: 2,003 rows of 6 numbers, adagrad" in server.stdout.read()
    server.stdout.close()
    training.close()
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["auto-000000000005.tables"]

    restarted = TableServer("127.0.0.1", 0, tmp_path / "tables")
    assert "2,003 rows of 6 numbers, adagrad, after 5 pushes" in restarted.described
    with pytest.raises(UserError, match="no server can listen there"):
        TableServer("127.0.0.1", int(restarted.address.partition(":")[2]))
    restarted.stop()

    os.truncate(tmp_path / "tables" / "auto-000000000005.tables", 500)
    with pytest.raises(UserError, match=r"auto-000000000005.tables: this checkpoint of tables cannot be read"):
        TableServer("127.0.0.1", 0, tmp_path / "tables")
