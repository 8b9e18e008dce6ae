"""A model behind HTTP on this machine, one request at a time or in micro-batches, in a process of its own."""

import asyncio
import contextlib
import errno
import multiprocessing
import os
import pickle
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from multiprocessing.connection import Connection
from types import MappingProxyType, ModuleType
from typing import Protocol

import numpy as np
import threadpoolctl

from labkit import UserError

HERE = "127.0.0.1"
STARTS_S = 60.0
"""Seconds in which a server has to start"""
MOST = 512
"""Most requests of a micro-batch"""
Predict = Callable[[np.ndarray], np.ndarray]
"""Predictions (n,) of features float32 (n, F)"""


class Batches(Protocol):
    """What collects requests: `MicroBatches`, or one of yours."""

    async def predict(self, row: np.ndarray) -> int | float:
        """The prediction for one row (F,)."""


class MicroBatches:
    """Collects rows for `wait_s`, and predicts them at once."""

    def __init__(self, predict: Predict, wait_s: float = 0.004):
        self._predict, self._wait_s = predict, wait_s
        self._waiting: list[tuple[np.ndarray, asyncio.Future]] = []

    async def predict(self, row: np.ndarray) -> int | float:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append((row, future))
        if len(self._waiting) == 1:
            loop.call_later(self._wait_s, self._flush)
        elif len(self._waiting) == MOST:
            self._flush()
        return await future

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:  # the batch was full before its time
            return
        try:
            answers = self._predict(np.stack([row for row, _ in waiting]))
        except Exception as error:
            for _, future in waiting:
                future.set_exception(error)
            return
        for (_, future), answer in zip(waiting, answers, strict=True):
            if not future.cancelled():
                future.set_result(answer)


class OneByOne:
    """Predicts each row alone."""

    def __init__(self, predict: Predict):
        self._predict = predict

    async def predict(self, row: np.ndarray) -> int | float:
        return self._predict(row[None])[0]


@contextlib.contextmanager
def serving(
    predict: Predict,
    ways: Mapping[str, Callable[[Predict], Batches]] = MappingProxyType({"alone": OneByOne}),
    *,
    port: int = 0,
) -> Generator[int]:
    """Serve a model on 127.0.0.1 during the block: POST /WAY takes a row as float32 bytes, and answers as text.

    Args:
        predict: the model's function.
        ways: what collects the rows of each path, made from `predict`, such as `OneByOne`; also one of yours.
        port: where to listen; 0 takes a free one.

    Returns:
        The port.

    Raises:
        UserError: the port is taken, or a library is not there.
    """
    with _listening(port) as taken:
        what = _pickler().dumps((predict, dict(ways)))
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        child = context.Process(target=_serve, args=(theirs, taken, what), daemon=True)
        child.start()
        theirs.close()
        try:
            if not ours.poll(STARTS_S):
                raise UserError(f"the server did not start within {STARTS_S:g} s: close other programs, and try again.")
            try:
                ours.recv()
            except EOFError:
                raise UserError("the server ended while it started; its error is printed above.") from None
            yield taken.getsockname()[1]
        finally:
            ours.close()
            child.terminate()
            child.join()


def _pickler() -> ModuleType:
    """What pickles also a class that was written in a notebook, of which the server's process has no file."""
    try:
        import cloudpickle
        import tornado  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"serving needs {error.name}: install it with `pip install 'labkit[pipelines]'`.") from error
    return cloudpickle


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HERE, port), backlog=1024)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise UserError(
            f"port {port} of this machine is taken by another program: give another one, or 0 for a free one.",
            field="port",
        ) from None


def _serve(pipe: Connection, taken: socket.socket, what: bytes) -> None:
    """The server's process."""
    import tornado.httpserver
    import tornado.web

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()  # ends when the process that started this one is gone, even killed
        os._exit(0)

    predict, ways = pickle.loads(what)
    # threads of one request would wait busily for each other, and for other requests
    threadpoolctl.threadpool_limits(1)

    class Answer(tornado.web.RequestHandler):
        def initialize(self, batches: Batches) -> None:
            self.batches = batches

        async def post(self) -> None:
            self.finish(str(await self.batches.predict(np.frombuffer(self.request.body, np.float32))))

    async def run() -> None:
        paths = [(f"/{name}", Answer, {"batches": make(predict)}) for name, make in ways.items()]
        application = tornado.web.Application(paths, log_function=lambda handler: None)
        taken.setblocking(False)
        tornado.httpserver.HTTPServer(application).add_sockets([taken])
        pipe.send(None)
        threading.Thread(target=watch, daemon=True).start()
        await asyncio.Event().wait()

    asyncio.run(run())
