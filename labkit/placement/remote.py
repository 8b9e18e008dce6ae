"""Rows in another process: pulled and pushed over TCP by a thread, in the order in which they were asked for.

With a staleness of S the rows of a batch are pulled before the S pushes before it: they may miss these, and never more.
Pushes carry numbers. Those that are in none of the server's checkpoints are kept here, so that a server that was killed
and started again from its folder gets them once more.

Shapes: U rows of a batch, D embedding dim.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit.errors import UserError
from labkit.placement.flags import row_width
from labkit.placement.row_store import Fetch, RowStore, draws
from labkit.placement.updates import Update
from labkit.placement.wire import read_message, write_message
from labkit.process import Child

RECONNECT_S = 60.0
"""A server that is gone is waited for so long"""
RETRY_S = 0.2
ANSWER_S = 600.0
"""For one answer; a checkpoint of large tables on a slow disk fits in"""
START_S = 120.0
RESEND_BYTES = 2**29
"""Of pushes that are kept for a server which was started again; beyond, the server is asked for a checkpoint"""


class RemoteStore(RowStore):
    """The client of a parameter server; started as a child where no address is given."""

    is_in_memory = False

    def __init__(
        self,
        num_rows: int,
        embedding_dim: int,
        optimiser: str,
        *,
        address: str | None = None,
        staleness: int = 0,
        seed: int | None = None,
        device: str = "cpu",
    ):
        """Start a server, or connect to that at `address`, "HOST:PORT".

        Raises:
            UserError: nobody answers there.
        """
        super().__init__(num_rows, embedding_dim, row_width(optimiser, embedding_dim), device)
        self.staleness = staleness
        self._tables = {"training": secrets.token_hex(8), "rows": num_rows, "dim": embedding_dim}
        self._tables |= {"optimiser": optimiser, "seed": seed}
        self._child = None if address else _started()
        host, _, port = (address or self._child_address()).rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._fills: list[tuple[tuple, Tensor]] = []  # arguments, and torch's random state before
        self._is_ready = False
        self._unsaved: deque[tuple[int, dict[str, Any], tuple]] = deque()  # pushes by their number
        self._unsaved_bytes, self._pushed = 0, 0  # the number of the last push that was answered
        self._socket = self._connected(until=0.0)
        self._failure: UserError | None = None
        self._orders: queue.SimpleQueue[tuple | None] = queue.SimpleQueue()
        self._talker = threading.Thread(target=self._talk, daemon=True)
        self._talker.start()
        if self._child is not None:
            weakref.finalize(self, self._child.end)

    def fill(self, first: int, count: int, low: float, high: float) -> None:
        # drawn here, so that the generator goes on; drawn once more for a server that has no rows yet
        self._fills.append(((first, count, self.dim, low, high), torch.get_rng_state()))
        for _ in draws(*self._fills[-1][0]):
            pass

    def prefetch(self, rows: np.ndarray) -> Fetch:
        self._make_ready()
        # without staleness the rows are pulled when the push before them is sent
        self._fetches.append(Fetch(rows, self._ask({"op": "pull"}, rows) if self.staleness else Future()))
        return self._fetches[-1]

    def pull(self, rows: np.ndarray, fetch: Fetch | None = None) -> Tensor:
        began = time.perf_counter()
        if fetch is not None:
            self.drop(fetch)
        values = self._pulled(rows) if fetch is None or not self.staleness else self._values(fetch.future)
        self.counters.missed_rows += len(rows)
        self._count_pull(len(rows), 4 * values.numel(), began)
        return values

    def peek(self, rows: np.ndarray) -> Tensor:
        return self._pulled(rows)

    def update(self, rows: np.ndarray, values: Tensor, gradient: Tensor, update: Update) -> None:
        array = gradient.cpu().numpy()
        self._ask({"op": "push", "step": update.step, "lr": update.lr}, rows, array)
        self.counters.written_bytes += array.nbytes + rows.nbytes

    def flush(self) -> None:
        if self._is_ready:
            self._ask({"op": "checkpoint", "kind": "auto"}).result()

    def close(self) -> None:
        self._orders.put(None)
        self._talker.join(ANSWER_S)
        self._socket.close()
        if self._child is not None:
            self._child.end()
        super().close()

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        self._make_ready()
        self._tell_folder(folder)
        answer, _ = self._ask({"op": "checkpoint", "kind": "run"}).result()
        return {"training": self._tables["training"], "name": answer["name"]}

    def load(self, folder: Path, saved: dict[str, Any]) -> None:
        self._tell_folder(folder)
        self._tables["training"] = saved["training"]
        self._is_ready = True
        self._fills.clear()
        self._ask({"op": "hello", "tables": self._tables}).result()
        answer, _ = self._ask({"op": "restore", "name": saved["name"], "tables": self._tables}).result()
        self._pushed = answer["step"]

    # parts of the above

    def _pulled(self, rows: np.ndarray) -> Tensor:
        self._make_ready()
        return self._values(self._ask({"op": "pull"}, rows))

    def _values(self, future: Future) -> Tensor:
        _, (values,) = future.result()
        return torch.from_numpy(values).to(self.device)

    def _make_ready(self) -> None:
        """Give the server its tables, at the first use: a resumed run has them in a checkpoint."""
        if self._is_ready:
            return
        self._is_ready = True
        answer, _ = self._ask({"op": "hello", "tables": self._tables}).result()
        assert not answer["ready"], "a new training has a number of its own"
        self._ask({"op": "create", "tables": self._tables}).result()
        state = torch.get_rng_state()
        for arguments, before in self._fills:
            torch.set_rng_state(before)
            for first, weights in draws(*arguments):
                self._ask({"op": "fill", "first": first}, weights.numpy()).result()
        torch.set_rng_state(state)
        self._ask({"op": "ready"}).result()
        self._fills.clear()

    def _ask(self, header: dict[str, Any], *arrays: np.ndarray) -> Future:
        """Send a message after all before it; its answer, or the error that ended the connection."""
        if self._failure is not None:
            raise self._failure
        future: Future = Future()
        self._orders.put((header, arrays, future))
        return future

    def _talk(self) -> None:
        while (order := self._orders.get()) is not None:
            header, arrays, future = order
            try:
                if self._failure is not None:
                    raise self._failure
                future.set_result(self._exchange(header, arrays))
            except BaseException as error:
                self._failure = error if isinstance(error, UserError) else UserError(f"{self._where}: {error!r}")
                future.set_exception(self._failure)

    def _exchange(self, header: dict[str, Any], arrays: tuple) -> tuple[dict[str, Any], list[np.ndarray]]:
        is_push = header["op"] == "push"
        if is_push:
            self._unsaved.append((header["step"], header, arrays))
            self._unsaved_bytes += sum(array.nbytes for array in arrays)
        until = 0.0
        while True:
            try:
                if until:
                    self._reconnect(until)
                answer = self._say(header, *arrays)
                break
            except (OSError, EOFError) as error:  # while it starts anew this may happen more than once
                self._socket.close()
                until = until or time.monotonic() + RECONNECT_S
                if time.monotonic() > until:  # it is there, and breaks off each time
                    raise UserError(
                        f"{self._where}: for {RECONNECT_S:g} s no answer came whole ({error!r}): start it again."
                    ) from error
                if self._child is not None:
                    raise UserError(
                        "the parameter server that this script started has ended:\n"
                        f"{self._child.stderr_tail()}\nGo on from the last checkpoint with --resume."
                    ) from error
        if is_push:
            self._pushed = header["step"]
        saved = answer[0].get("saved")
        # a server of our own, or one without a folder, is not started again
        while self._unsaved and (self._child is not None or saved is None or self._unsaved[0][0] <= saved):
            _, _, before = self._unsaved.popleft()
            self._unsaved_bytes -= sum(array.nbytes for array in before)
        if is_push and self._unsaved_bytes > RESEND_BYTES:
            self._exchange({"op": "checkpoint", "kind": "auto"}, ())
        return answer

    def _say(self, header: dict[str, Any], *arrays: np.ndarray) -> tuple[dict[str, Any], list[np.ndarray]]:
        write_message(self._socket.sendall, header, *arrays)
        answer, more = read_message(self._socket.recv_into)
        if "error" in answer:
            raise UserError(f"{self._where}: {answer['error']}")
        return answer, more

    def _reconnect(self, until: float) -> None:
        """Find the server again, and send it what it forgot.

        Raises:
            UserError: it stays gone, or comes back without the tables of this training.
        """
        self._socket = self._connected(until)
        state, _ = self._say({"op": "hello", "tables": self._tables})
        first = self._unsaved[0][0] if self._unsaved else self._pushed + 1
        if not state["ready"] or state["step"] < first - 1:
            raise UserError(
                f"{self._where}: the server came back after {state['step']:,} pushes, and this training needs one "
                f"after {first - 1:,}: start it with the --folder that it had before, or go on with --resume."
            )
        for number, header, arrays in list(self._unsaved):
            if number > state["step"]:
                self._say(header, *arrays)

    def _connected(self, until: float) -> socket.socket:
        while True:
            try:
                connection = socket.create_connection((self._host, self._port), timeout=ANSWER_S)
                if connection.getsockname() == connection.getpeername():  # a port of this process' own, by chance
                    connection.close()
                    raise ConnectionRefusedError("nobody listens")
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
            except OSError as error:
                if time.monotonic() < until:
                    time.sleep(RETRY_S)
                    continue
                raise UserError(
                    f"{self._where}: no parameter server answers there ({error}): start one with `labkit serve-tables "
                    f"--port {self._port} --folder DIR`, or leave --server out and one is started for this run.",
                    field="server",
                ) from error

    @property
    def _where(self) -> str:
        return f"{self._host}:{self._port}"

    def _child_address(self) -> str:
        message = None
        with contextlib.suppress(EOFError):
            message = self._child.next_message(START_S)
        if message is None or message["kind"] != "Listening":
            why = message["reason"] if message else self._child.stderr_tail()
            self._child.end()
            raise UserError(f"the parameter server did not start: {why}")
        return message["address"]

    def _tell_folder(self, folder: Path) -> None:
        """Let a server of our own keep its checkpoints beside the run's."""
        if self._child is not None:
            self._child.send({"folder": str(folder.absolute())})
            with contextlib.suppress(EOFError):
                self._child.next_message(START_S)


def _started() -> Child:
    return Child("labkit.placement.server", {"host": "127.0.0.1", "port": 0, "folder": None, "every": 2**62}).start()
