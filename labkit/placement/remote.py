"""A parameter server: the rows are in a process of their own, which the training starts and which ends with it.

A thread pulls and pushes over a loopback connection, in the order in which it was asked to. With a staleness of S the
rows of a batch are pulled before the S pushes that precede it, so these rows miss exactly S pushes.

Run as a program this module is the server.

Shapes: U rows of a batch, D embedding dim, W numbers of a row.
"""

import contextlib
import os
import pickle
import secrets
import socket
import time
import weakref
from concurrent.futures import Future
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit import UserError, process
from labkit.placement.row_store import Fetch, HostStore, RowStore, Update, open_copy, update_rows, write_copy
from labkit.placement.settings import row_width

START_S = 120.0
"""Time for the server to start: it imports torch, perhaps from a slow disk."""


class RemoteStore(RowStore):
    """The training's side: starts a server and talks to it."""

    is_in_memory = False

    def __init__(self, num_rows: int, embedding_dim: int, optimiser: str, *, staleness: int = 0, device: str = "cpu"):
        """Start a server with room for all rows and the state that `optimiser` keeps of each.

        Raises:
            UserError: the server does not start, for example because its memory is not enough.
        """
        super().__init__(num_rows, embedding_dim, row_width(optimiser, embedding_dim), device)
        self.staleness = staleness
        self._failure: UserError | None = None
        key = secrets.token_bytes(32)
        tables = {"num_rows": num_rows, "embedding_dim": embedding_dim, "optimiser": optimiser}
        self._child = process.Child("labkit.placement.remote", tables | {"key": key.hex()}).start()
        weakref.finalize(self, self._child.end)
        message = None
        with contextlib.suppress(EOFError):
            message = self._child.next_message(START_S)
        if message is None:
            why = self._child.stderr_tail()
            self._child.end()
            raise UserError(f"the parameter server did not start: {why}")
        self._connection = Client(tuple(message["address"]), authkey=key)
        _send_at_once(self._connection)

    def write_weights(self, first: int, weights: np.ndarray) -> None:
        self._ask("write_weights", first, weights).result()

    def read(self, rows: np.ndarray) -> np.ndarray:
        return self._ask("read", rows).result()

    def write(self, rows: np.ndarray, values: np.ndarray) -> None:
        self._ask("write", rows, values).result()

    def prefetch(self, rows: np.ndarray) -> Fetch:
        # without staleness the rows are pulled when the push before them has been sent
        self._fetches.append(Fetch(rows, self._ask("pull", rows) if self.staleness else Future()))
        return self._fetches[-1]

    def pull(self, rows: np.ndarray, fetch: Fetch | None = None) -> Tensor:
        began = time.perf_counter()
        if fetch is not None:
            self.drop(fetch)
        values = self.peek(rows) if fetch is None or not self.staleness else self._values(fetch.future)
        self.counters.missed_rows += len(rows)
        self._count_pull(len(rows), 4 * values.numel(), began)
        return values

    def peek(self, rows: np.ndarray) -> Tensor:
        return self._values(self._ask("pull", rows))

    def update(self, rows: np.ndarray, values: Tensor, gradient: Tensor, update: Update) -> None:
        array = gradient.cpu().numpy()
        self._ask("push", rows, array, update.lr, update.step)
        self.counters.written_bytes += array.nbytes + rows.nbytes

    def close(self) -> None:
        self._child.end()  # first: a thread that waits for its answer comes back
        super().close()
        self._connection.close()

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        return self._ask("save", folder.absolute(), step).result()

    def load(self, folder: Path, saved: dict[str, Any]) -> None:
        self._ask("load", folder.absolute(), saved).result()

    def _values(self, future: Future) -> Tensor:
        return torch.from_numpy(future.result()).to(self.device)

    def _ask(self, *message: Any) -> Future:
        """Send a message after all before it; the answer, or the error that ended the connection."""
        return self._thread.submit(self._exchange, message)

    def _exchange(self, message: tuple) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            send(self._connection, message)
            answer = receive(self._connection)
        except (OSError, EOFError) as error:
            self._failure = UserError(
                "the parameter server of this run has ended: go on from the last checkpoint with --resume.\n"
                f"{self._child.stderr_tail()}"
            )
            raise self._failure from error
        if isinstance(answer, UserError):
            self._failure = answer
            raise answer
        return answer


def answer(store: HostStore, optimiser: str, op: str, *given: Any) -> Any:
    """The server's side: do what a message asks for, and return the answer."""
    if op == "pull":
        return store.read(*given)[:, : store.dim]
    if op in ("read", "write", "write_weights"):  # with the state, for a cache, whose trainer steps the rows
        return getattr(store, op)(*given)
    if op == "push":
        rows, gradient, lr, step = given
        values = torch.from_numpy(store.read(rows))
        return store.write(rows, update_rows(values, torch.from_numpy(gradient), Update(optimiser, lr, step)).numpy())
    if op == "save":
        return write_copy(*given, lambda file: file.write(store.array.data))
    with open_copy(*given, store.array.nbytes) as file:
        file.readinto(store.array.data)  # ty: ignore[missing-attribute]  # both are buffered


def send(connection: Connection, message: Any) -> None:
    """Send a message by pickle's protocol 5, which copies arrays less often than the default of `Connection.send`."""
    connection.send_bytes(pickle.dumps(message, 5))


def receive(connection: Connection) -> Any:
    """What `send` sent; an EOFError if the other side has ended."""
    return pickle.loads(connection.recv_bytes())


def _send_at_once(connection: Connection) -> None:
    """Do not let the system wait for more to send: a small message would take 40 ms."""
    with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def main() -> None:
    """Serve the process that started this one."""
    torch.set_num_threads(1)  # the cores are the trainer's
    parent = process.Parent()
    parent.listen(at_end=lambda: os._exit(0))
    key = bytes.fromhex(parent.content["key"])
    num_rows, dim, optimiser = (parent.content[name] for name in ("num_rows", "embedding_dim", "optimiser"))
    store = HostStore(num_rows, dim, row_width(optimiser, dim))
    with Listener(("127.0.0.1", 0), authkey=key) as listener:
        parent.tell("Listening", address=listener.address)
        connection = None
        while connection is None:  # a program without the key is turned away
            with contextlib.suppress(AuthenticationError, OSError, EOFError):
                connection = listener.accept()
    _send_at_once(connection)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            try:
                send(connection, answer(store, optimiser, *receive(connection)))
            except UserError as error:  # the disk is full, or a copy is gone
                send(connection, UserError(str(error)))
            except (LookupError, TypeError, ValueError, AttributeError, pickle.UnpicklingError) as error:
                what = f"the parameter server got a message that it does not understand ({error!r})"
                send(connection, UserError(f"{what}: resume the run from its last checkpoint."))


if __name__ == "__main__":
    main()
