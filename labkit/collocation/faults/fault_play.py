"""The acts of a fault experiment.

Nothing waits for a clock but the windows in which rates are measured: each act begins when the one before it has been
heard to be over.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from labkit.collocation.faults.fault import Fault
from labkit.collocation.faults.fault_report import FaultReport
from labkit.collocation.faults.scene import PATIENCE_S, Client, Scene
from labkit.collocation.modes.place import Share
from labkit.errors import UserError
from labkit.process.supervised import JobProcess

FAULTY = "faulty"
POLITE_S = 1.0
"""For clients without a fault to end when all is over."""
DEAF_S = 0.5
"""A hung client is sent SIGTERM, and so long later SIGKILL."""
SHORTEST_S = 0.2
"""A shorter time has too few of what a client tells for a rate."""
PROGRAM = (sys.executable, "-m", "labkit.collocation.faults.faulty_client")


class FaultPlay:
    """One experiment: `run` and then `report`, once."""

    def __init__(self, fault: Fault, mode: str, shares: dict[str, Share], scene: Scene, seconds: float):
        self.fault, self.mode, self.shares, self.scene, self.seconds = fault, mode, shares, scene, seconds
        self.clients_of_mps: dict[str, str] = {}
        self.fresh_before_s: float | None = None
        self.fresh_after_s: float | None = None
        self.attempts, self.ended_by = 0, "itself"
        self.windows: dict[str, tuple[float, float]] = {}
        self.struck_at, self.gone_at = 0.0, 0.0
        self.names = list(shares)
        self.clients: dict[str, Client] = {}
        self.fates: dict[str, tuple[str, str]] = {}
        """Status and reason of each client, before all that live are ended"""

    def run(self, recovery: bool) -> None:
        """Let it happen, and end all clients.

        Args:
            recovery: whether fresh clients are started.

        Raises:
            UserError: a client ends before its time, or nothing happens any more.
        """
        scene, supervised = self.scene, self.scene.supervised
        self._start()
        supervised.go(*self.names[1:])
        self._until_each(self.names[1:], lambda client: len(client.steps) > 0, "its first step")
        if recovery:
            self.fresh_before_s = self._fresh("before")
        supervised.go(FAULTY)
        self._until_each([FAULTY], lambda client: len(client.steps) > 0, "its first step")
        self.windows["before"] = scene.watch(self.seconds)
        self._fail(recovery)
        self.windows.setdefault("during", (self.struck_at, self.gone_at))
        self.windows["after"] = scene.watch(self.seconds)
        self.fates = {name: (client.status, client.reason) for name, client in self.clients.items()}
        self._end_all()

    def _start(self) -> None:
        if self.mode == "mps":
            gpus = sorted({share.environment["CUDA_VISIBLE_DEVICES"] for share in self.shares.values()})
            self.clients_of_mps = self.scene.supervised.start_mps(gpus)
        for name in self.names:
            self.scene.start(self._process(name, of=name, fault=self.fault.name if name == FAULTY else None))
        self.clients = {name: self.scene.clients[name] for name in self.names}
        self._until_each(self.names, lambda client: client.ready, "it was ready")

    def _until_each(self, names: Sequence[str], came: Callable[[Client], bool], what: str) -> None:
        clients = {name: self.clients[name] for name in names}
        self.scene.until(lambda: all(came(each) or each.ended_at is not None for each in clients.values()), what)
        for name, client in clients.items():
            if not came(client):
                raise UserError(f"The client {name} ended before {what}: {client.reason}. {self.scene.last_words()}")

    def _process(self, name: str, *, of: str, fault: str | None = None, steps: int | None = None) -> JobProcess:
        """A client that has the share of one of the clients."""
        share = self.shares[of]
        content = {"fault": fault, "steps": steps, "device": share.torch_name, "cores": share.cores}
        log = str(self.scene.folder / f"{name}.log")
        return JobProcess(name, PROGRAM, content, log, self.clients_of_mps | share.environment)

    def _fresh(self, when: str) -> float:
        """Seconds until a fresh client takes its first step in the faulty one's place, at the first try or a later."""
        began = time.monotonic()
        self.attempts = 0
        while True:
            self.attempts += 1
            stepped_at = self._first_step_of(f"fresh-{when}-{self.attempts}")
            if stepped_at is not None:
                return stepped_at - began
            if time.monotonic() > began + PATIENCE_S:
                raise UserError(f"No fresh client could use the device for {PATIENCE_S:g} s after the fault.")

    def _first_step_of(self, name: str) -> float | None:
        """When a client that is started now has taken its only step; None where it cannot."""
        scene = self.scene
        scene.start(self._process(name, of=FAULTY, steps=1))
        scene.supervised.go(name)
        scene.until(lambda: not scene.lives(name), "the only step of a fresh client")
        steps = scene.clients[name].steps
        return steps[0][0] if steps else None

    def _fail(self, recovery: bool) -> None:
        scene = self.scene
        if self.fault.name == "kill":
            self.struck_at, self.ended_by = time.monotonic(), "SIGKILL"
            scene.supervised.kill(FAULTY)
        else:
            scene.supervised.go(FAULTY)
            scene.until(lambda: self.clients[FAULTY].fails_at is not None, "the fault")
            self.struck_at = self.clients[FAULTY].fails_at
        if self.fault.hangs:
            self.fresh_after_s = self._fresh("after") if recovery else None
            self.windows["during"] = scene.watch(self.seconds)
            self._end_the_hung()
        self.gone_at = scene.until(lambda: not scene.lives(FAULTY), "the end of the faulty client")
        if recovery and not self.fault.hangs:
            began = time.monotonic()
            self.fresh_after_s = began - self.struck_at + self._fresh("after")

    def _end_the_hung(self) -> None:
        self.ended_by = "SIGTERM"
        self.scene.terminate(FAULTY)
        self.scene.watch(DEAF_S)
        if self.scene.lives(FAULTY):
            self.ended_by = "SIGKILL"
            self.scene.supervised.kill(FAULTY)

    def _end_all(self) -> None:
        for name in self.scene.living():
            self.scene.supervised.end(name)
        self.scene.until(lambda: not self.scene.living(), "the end of all clients")
        self.scene.left += self.scene.supervised.sweep()

    def report(self, left: int) -> FaultReport:
        """What was measured.

        Args:
            left: processes that still lived when all was over.
        """
        jobs = [
            {
                "job": name,
                "faulty": name == FAULTY,
                "status": self.fates[name][0],
                "reason": self.fates[name][1],
                **{when: _rate(client, *window) for when, window in self.windows.items()},
                "provenance": "measured",
            }
            for name, client in self.clients.items()
        ]
        return FaultReport(
            self.fault.name,
            self.mode,
            self.shares[FAULTY].device,
            pd.DataFrame(jobs),
            pd.concat([self._timeline(name) for name in self.names], ignore_index=True),
            self.gone_at - self.struck_at,
            self.ended_by,
            self.fresh_before_s,
            self.fresh_after_s,
            self.attempts,
            left,
        )

    def _timeline(self, job: str) -> pd.DataFrame:
        edges = np.arange(self.windows["before"][0], self.windows["after"][1], SHORTEST_S)
        rates = [_rate(self.clients[job], begin, end) for begin, end in pairwise(edges)]
        at_s = edges[:-1] + SHORTEST_S / 2 - self.struck_at
        return pd.DataFrame({"job": job, "at_s": at_s, "steps_per_s": rates, "provenance": "measured"})


def _rate(client: Client, begin: float, end: float) -> float:
    """Steps per second between two moments; NaN where they are too close together."""
    if end - begin < 0.99 * SHORTEST_S:
        return math.nan
    moments, counts = zip(*client.steps, strict=True)
    at_begin, at_end = np.interp([begin, end], moments, counts)  # nothing is taken before the first, or after the last
    return float(at_end - at_begin) / (end - begin)
