"""An open loop of requests: they are planned before, and each latency counts from its planned time.

A closed loop, which sends the next request when the last is answered, waits with a slow server and so hides how slow it
is. The client of tornado leaves out what waits in its own queue. Here a request that finds the server busy waits, and
is counted; the generator's own lateness stands next to the latencies, because it is in them.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from labkit import UserError
from labkit.pipelines.serving import HERE, MicroBatches, OneByOne, Predict, serving

CONNECTIONS = 64
LATE_S = 0.25
"""Lateness of the generator (99th percentile) up to which its latencies are said to be the server's"""
TIMEOUT_S = 60.0
"""Seconds after the last planned time in which all must be answered"""


@dataclass(frozen=True)
class Load:
    """What a server did under a load."""

    planned_per_s: float
    latencies_s: np.ndarray
    """Of each request, from its planned time to its answer"""
    late_s: np.ndarray
    """Of each request, how late the generator itself was"""
    took_s: float
    """From the first planned time to the last answer"""

    @property
    def answered_per_s(self) -> float:
        return len(self.latencies_s) / self.took_s

    def row(self) -> dict[str, float]:
        """The load in numbers: per second, and milliseconds."""
        p50, p99 = 1e3 * np.percentile(self.latencies_s, (50, 99))
        late = 1e3 * np.percentile(self.late_s, 99)
        times = {"p50_ms": float(p50), "p99_ms": float(p99), "late_p99_ms": float(late)}
        return {"planned_per_s": self.planned_per_s, "answered_per_s": self.answered_per_s} | times


def poisson_times(per_s: float, seconds: float, seed: int = 0) -> np.ndarray:
    """Planned times of requests that come independently of each other, in seconds; at least one."""
    times = np.random.default_rng(seed).exponential(1 / per_s, max(1, round(per_s * seconds))).cumsum()
    return times - times[0]


async def send_open_loop(
    send: Callable[[int], Awaitable[None]], planned_s: Iterable[float]
) -> list[tuple[float, float]]:
    """Send each request at its planned time; of each its latency from then on, and how late it was sent, in seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one(number: int, planned: float) -> tuple[float, float]:
        await asyncio.sleep(began + planned - loop.time())
        late = loop.time() - began - planned
        await send(number)
        return loop.time() - began - planned, late

    return await asyncio.gather(*(one(number, planned) for number, planned in enumerate(planned_s)))


async def _load(port: int, way: str, rows: np.ndarray, planned_s: np.ndarray) -> list[tuple[float, float]]:
    bodies = [row.tobytes() for row in np.ascontiguousarray(rows, np.float32)]
    free: asyncio.Queue = asyncio.Queue()

    async def send(number: int) -> None:
        body = bodies[number % len(bodies)]
        reader, writer = connection = await free.get()
        head = f"POST /{way} HTTP/1.1\r\nHost: {HERE}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        text = await reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise UserError(f"the server answered {answer.splitlines()[0].decode()!r}: {text[:200].decode()}")
        free.put_nowait(connection)

    with contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS):  # before the first request: a burst of new ones waits for packets sent again
            reader, writer = await asyncio.open_connection(HERE, port)
            opened.callback(writer.close)
            free.put_nowait((reader, writer))
        async with asyncio.timeout(planned_s[-1] + TIMEOUT_S):
            return await send_open_loop(send, planned_s)


def open_loop(
    port: int, rows: np.ndarray, per_s: float, seconds: float, *, way: str = "alone", late_s: float = LATE_S
) -> Load:
    """Send rows (n, F) to a way of a server of `serving` at a rate, at Poisson times that are planned before.

    Raises:
        UserError: the server is gone or does not answer, or the generator was later than `late_s`.
    """
    if not per_s > 0 or not seconds > 0:
        raise UserError(
            f"a load of {per_s:g} requests per second for {seconds:g} s: give numbers above 0.", field="per_s"
        )
    planned = poisson_times(per_s, seconds)
    try:
        with ThreadPoolExecutor(1) as thread:  # a notebook has an event loop of its own in this one
            found = np.array(thread.submit(asyncio.run, _load(port, way, rows, planned)).result())
    except TimeoutError:
        most = f"the server on port {port} did not answer all requests within {TIMEOUT_S:g} s of the last planned time"
        raise UserError(f"{most}: plan fewer than {per_s:g} requests per second.", field="per_s") from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise UserError(f"the server on port {port} is gone ({error}): start it again.", field="port") from error
    load = Load(per_s, found[:, 0], found[:, 1], float((planned + found[:, 0]).max()))
    if (late := float(np.percentile(load.late_s, 99))) > late_s:
        raise UserError(
            f"the load generator itself was up to {late:.2f} s late (99th percentile) at {per_s:g} requests per "
            f"second, more than its limit of {late_s:g} s, so these latencies are not the server's: plan fewer per "
            "second, close other programs, or leave it a core that the server does not use.",
            field="late_s",
        )
    return load


def serve_at(
    predict: Predict, rows: np.ndarray, rates: Sequence[float], waits_ms: Sequence[float], seconds: float, port: int = 0
) -> pd.DataFrame:
    """Serve a model alone and in micro-batches, at each of these rates.

    Args:
        predict: the model's function.
        rows: features (n, F) to send.
        rates: requests per second.
        waits_ms: milliseconds for which a micro-batch collects; 0 predicts each request alone.
        seconds: how long each rate lasts.
        port: where to listen; 0 takes a free one.

    Returns:
        A row per wait and rate: wait_ms and the columns of `Load.row`. A row whose generator was too late says so in
        its late_p99_ms.
    """
    ways = {f"{ms:g}": partial(MicroBatches, wait_s=ms / 1e3) if ms else OneByOne for ms in waits_ms}
    with serving(predict, ways, port=port) as port:
        found = [
            {"wait_ms": float(way)} | open_loop(port, rows, rate, seconds, way=way, late_s=np.inf).row()
            for way in ways
            for rate in rates
        ]
    return pd.DataFrame(found)
