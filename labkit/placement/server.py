"""A parameter server: it has the rows of a training's tables, gives them out, and applies the updates that come back.

One training at a time, and one connection of it. Pushes are numbered: one that came before is not applied again, and
none is left out. With a folder, the server writes checkpoints there, whole or not at all, and begins with the latest
that it finds. Run as a program it is its trainer's child and ends with it; `labkit serve-tables` starts one by hand.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labkit.errors import DataError, UserError
from labkit.placement.flags import row_width
from labkit.placement.row_store import HostStore
from labkit.placement.updates import Update, update_rows
from labkit.placement.wire import BadMessage, read_message, write_message
from labkit.process import Parent
from labkit.runs import disk_full_as_user_error, temporary_of

CHECKPOINT_EVERY = 1000
"""Pushes between two checkpoints of the server's own accord"""
DESCRIBED = ("rows", "dim", "optimiser", "seed", "training")
"""What a client and the server's tables have to agree in"""
OF_RUNS, OWN = "run", "auto"
"""Beginnings of checkpoints' names: asked for by a run, of which two are kept, and the server's own, of which one is"""


class TableServer:
    """Listens; `serve` answers until `stop`."""

    def __init__(
        self,
        host: str,
        port: int,
        folder: Path | None = None,
        every: int = CHECKPOINT_EVERY,
        say: Callable[[str], None] = lambda words: None,
    ):
        """Bind to a host and port (0: any that is free), and read the folder's latest checkpoint, if there is one.

        `say` is told when a training comes and goes.

        Raises:
            UserError: the address is not to be had, or a checkpoint is damaged.
        """
        self.folder, self._every, self._say = folder, every, say
        self._store: HostStore | None = None
        self._tables: dict[str, Any] = {}
        self._step = self._saved = 0
        self._is_ready = False  # all rows were filled
        self._lock = threading.RLock()
        self._connection: socket.socket | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for left_over in folder.glob(".*.tables.*"):  # of a server that was killed while it wrote
                left_over.unlink()
            if found := max(folder.glob("*-*.tables"), key=lambda path: path.stem.partition("-")[2], default=None):
                self._restore(found)
        try:
            self._listener = socket.create_server((host, port))
        except (OSError, OverflowError) as error:
            raise UserError(
                f"{host}:{port}: no server can listen there ({error}): name another --port, or --port 0 for one that "
                "is free, and a --host of this machine."
            ) from error
        self.address = "{}:{}".format(*self._listener.getsockname()[:2])

    def serve(self) -> None:
        """Answer clients until `stop` is called."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        """End `serve` once what is under way is done; a server with a folder saves what it has."""
        with self._lock:
            if self.folder is not None and self._is_ready and self._step > self._saved:
                self._save(OWN)
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    @property
    def described(self) -> str:
        """What it has, in words."""
        if self._store is None:
            return "no tables yet"
        return "{rows:,} rows of {dim} numbers, {optimiser}, after {step:,} pushes".format(
            step=self._step, **self._tables
        )

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.ExitStack() as ends:
            ends.enter_context(connection)
            ends.callback(self._say_gone, connection)
            ends.enter_context(contextlib.suppress(OSError, EOFError))
            while True:
                try:
                    header, arrays = read_message(connection.recv_into)
                except BadMessage as error:
                    write_message(connection.sendall, {"error": f"the message {error}"})
                    return
                with self._lock:
                    try:
                        answer, *more = self._answer(connection, header, arrays)
                    except (UserError, OSError, RuntimeError, MemoryError) as error:  # torch's own are RuntimeErrors
                        answer, more = {"error": str(error) or repr(error)}, []
                    except (KeyError, ValueError, TypeError, IndexError) as error:
                        answer, more = {"error": f"the message {str(header)[:200]} is none of labkit's: {error!r}"}, []
                write_message(connection.sendall, answer, *more)

    def _answer(self, connection: socket.socket, header: dict[str, Any], arrays: list[np.ndarray]) -> tuple:
        op = header["op"]
        if op == "hello":
            return (self._hello(connection, header),)
        if connection is not self._connection:
            raise UserError("another client has taken over these tables.")
        if op == "create":
            self._create(header)
            return ({},)
        if op == "restore":
            self._restore(self._folder() / Path(header["name"]).name)
            self._agree(header["tables"])
            return (self._state(),)
        store = self._store
        if store is None:
            raise UserError("the server has no tables yet.")
        if op == "fill":
            store.write_weights(int(header["first"]), arrays[0])
        elif op == "ready":
            self._is_ready = True
        elif op == "pull":
            return self._state(), store.read(self._checked(arrays[0]))[:, : store.dim]
        elif op == "push":
            self._push(header, *arrays)
        elif op == "checkpoint":
            return ({"name": self._save(header["kind"])} | self._state(),)
        else:
            raise ValueError(f"no such operation: {op!r}")
        return (self._state(),)

    def _hello(self, connection: socket.socket, header: dict[str, Any]) -> dict[str, Any]:
        if self._store is not None:
            self._agree(header["tables"])
        elif self._connection is not None and self._connection.fileno() >= 0:
            raise UserError("another client is about to make its tables here.")
        if self._connection is not None and self._connection is not connection:
            with contextlib.suppress(OSError):  # that of the same training before it lost it
                self._connection.shutdown(socket.SHUT_RDWR)
        self._connection = connection
        self._say("a training connects: {rows:,} rows of {dim} numbers, {optimiser}".format(**header["tables"]))
        return self._state()

    def _say_gone(self, connection: socket.socket) -> None:
        with self._lock:
            if connection is self._connection:
                self._say(f"its connection has ended; here are {self.described}")

    def _state(self) -> dict[str, Any]:
        return {
            "ready": self._is_ready,
            "step": self._step,
            "saved": self._saved if self.folder is not None else None,
        }

    def _agree(self, asked: dict[str, Any]) -> None:
        for name in DESCRIBED:
            if asked[name] != self._tables[name]:
                raise UserError(
                    f"the server has tables of another {name} ({self._tables[name]}) than this training's "
                    f"({asked[name]}), {self.described}: start one with a folder of its own for each training."
                )

    def _create(self, header: dict[str, Any]) -> None:
        tables = {name: header["tables"][name] for name in DESCRIBED}
        rows, dim = int(tables["rows"]), int(tables["dim"])
        if rows < 1 or dim < 1:
            raise ValueError("tables have at least one row and one number")
        self._store = HostStore(rows, dim, row_width(tables["optimiser"], dim))
        self._tables, self._step, self._saved, self._is_ready = tables, 0, 0, False

    def _checked(self, rows: np.ndarray) -> np.ndarray:
        if (
            rows.dtype != np.int64
            or rows.ndim != 1
            or (len(rows) and not 0 <= rows.min() <= rows.max() < self._store.num_rows)
        ):
            raise ValueError("rows are int64 and below the number that there are")
        return rows

    def _push(self, header: dict[str, Any], rows: np.ndarray, gradient: np.ndarray) -> None:
        number, lr = int(header["step"]), float(header["lr"])
        if number <= self._step:
            return  # it came before its sender lost the connection
        if number > self._step + 1:
            raise UserError(
                f"push {number} came after push {self._step}: those between are lost. Go on with the run's own "
                "checkpoint (--resume)."
            )
        if gradient.shape != (len(self._checked(rows)), self._store.dim):
            raise ValueError("a gradient has a row for each row")
        values = update_rows(
            torch.from_numpy(self._store.read(rows)),
            torch.from_numpy(gradient),
            Update(self._tables["optimiser"], lr, number),
        )
        self._store.write(rows, values.numpy())
        self._step = number
        if self.folder is not None and self._step - self._saved >= self._every:
            self._save(OWN)

    # checkpoints

    def _folder(self) -> Path:
        if self.folder is None:
            raise UserError(
                "this server has no folder for checkpoints: start it with `labkit serve-tables --folder DIR`."
            )
        return self.folder

    def _save(self, kind: str) -> str:
        """Write a checkpoint, and remove those before it that nobody needs; its name."""
        if kind not in (OF_RUNS, OWN):
            raise ValueError(f"no such checkpoint: {kind!r}")
        path = self._folder() / f"{kind}-{self._step:012d}.tables"
        temporary = temporary_of(path)
        try:
            with disk_full_as_user_error(path.parent), temporary.open("wb") as file:
                write_message(file.write, {"tables": self._tables, "step": self._step}, self._store.array)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        for old in sorted(path.parent.glob(f"{kind}-*.tables"))[: -2 if kind == OF_RUNS else -1]:
            old.unlink()
        self._saved = self._step
        return path.name

    def _restore(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                header, (rows,) = read_message(file.readinto, path.stat().st_size)
            tables = {name: header["tables"][name] for name in DESCRIBED}
            store = HostStore(tables["rows"], tables["dim"], row_width(tables["optimiser"], tables["dim"]))
            if rows.shape != store.array.shape:
                raise ValueError(f"its rows are {rows.shape} and not {store.array.shape}")
        except (OSError, EOFError, KeyError, ValueError, TypeError) as error:
            raise DataError(
                f"this checkpoint of tables cannot be read ({error!r}).",
                fix="Remove it, so that the server begins with the one before, or bring the file back.",
                file=path,
            ) from error
        store.array = rows
        self._store, self._tables, self._is_ready = store, tables, True
        self._step = self._saved = int(header["step"])
        for later in path.parent.glob("*-*.tables"):  # of steps that are taken again
            if int(re.search(r"-(\d+)\.tables$", later.name)[1]) > self._step:
                later.unlink()


def main() -> None:
    """Serve the process that started this one."""
    torch.set_num_threads(1)  # the cores are the trainer's
    parent = Parent()
    content = parent.content
    try:
        folder = content.get("folder")
        server = TableServer(content["host"], content["port"], folder and Path(folder), content["every"])
    except UserError as error:
        parent.tell("Refused", reason=str(error))
        return

    def hear(order: dict[str, Any]) -> None:
        """Its checkpoints are the run's, whose folder is known once the run has begun."""
        server.folder = Path(order["folder"])
        server.folder.mkdir(parents=True, exist_ok=True)
        parent.tell("Told")

    parent.listen(hear, lambda: os._exit(0))
    parent.tell("Listening", address=server.address)
    server.serve()


if __name__ == "__main__":
    main()
