"""One fault, really run: a client that fails on a device where others do not.

Only the windows in which rates are measured last for a set time: each act begins when the one before it is over.
"""

import contextlib
import math
import os
import signal
import tempfile
import time
import tomllib
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from labkit.errors import UserError, did_you_mean
from labkit.hardware import Nvml, find_device, get_devices
from labkit.jobs import ScriptJob
from labkit.launch import MODES, PlannedJob
from labkit.process import SupervisedJobs, how_ended, marked
from labkit.sharing import Place, Share, leased_cpu, mode_shares
from labkit_course.apparatus.faulty_client import FAULTS, Fault

FAULTY = "faulty"
PROGRAM = "labkit_course.apparatus.faulty_client"
CLIENT_GRACE_S, DEAF_S = 1.0, 0.5
"""Seconds for clients without a fault to end when all is over, and from SIGTERM to SIGKILL for a hung one."""
SHORTEST_S, LISTEN_S = 0.2, 0.02
"""Seconds: a shorter time has too few reports of a client for a rate; an event is noticed so late at most."""
DEADLINE_S = 120.0
"""What is waited for has happened by then, also on a slow machine: else the experiment is given up."""


@dataclass(frozen=True)
class FaultReport:
    """One faulty client and its neighbours, measured."""

    jobs: pd.DataFrame
    """A row a client: job, faulty, status (alive, or how it ended), reason, provenance, and its steps per second before
    the fault, during it (until the client is gone; NaN where that is too short) and after it."""
    steps: pd.DataFrame
    """job, at_s (since the fault), steps_per_s, provenance: how fast each client was over time"""
    gone_s: float
    """From the fault until the client was gone"""
    left: int = 0
    """Processes that were left behind when all was over"""

    @property
    def neighbours(self) -> pd.DataFrame:
        """The rows of `jobs` without a fault."""
        return self.jobs[~self.jobs["faulty"]]

    @property
    def died(self) -> int:
        """Neighbours that ended with the faulty client."""
        return int((self.neighbours["status"] != "alive").sum())

    def rate_ratio(self, when: str) -> float:
        """The neighbours' steps per second, all together, "during" or "after", of those before the fault.

        A neighbour that has ended takes no steps; NaN where the time was too short.
        """
        own = self.neighbours
        return float(own[when].sum(min_count=1) / own["before"].sum())


def run_fault(fault: str, mode: str, *, neighbours: int = 1, seconds: float = 1.0) -> FaultReport:
    """Let a client fail next to its neighbours, and measure what becomes of them.

    Args:
        fault: one of `labkit_course.apparatus.FAULTS`.
        mode: how they share the CPU or the first GPU; any of `labkit.launch.MODES` but alone.
        neighbours: clients that train the same model and do not fail.
        seconds: for which rates are measured before the fault, during a hang, and after it.

    Raises:
        UserError: the mode or the fault is not possible here, or a client does not start.
    """
    if fault not in FAULTS:
        raise UserError(f"fault {fault!r} is unknown: {did_you_mean(fault, FAULTS)}")
    if mode not in MODES:
        raise UserError(f"mode {mode!r} is unknown: {did_you_mean(mode, MODES)}")
    if mode == "alone":
        raise UserError("In mode alone no job shares the device, so a fault has no neighbours: choose another mode.")
    if neighbours < 1:
        raise UserError(f"neighbours is {neighbours}: give a whole number from 1.")
    devices = get_devices()
    chosen = find_device("cpu" if mode.startswith("cpu") else None, devices)
    if FAULTS[fault].gpu_only and chosen.kind == "cpu":
        raise UserError(f"fault {fault} happens in a kernel of a GPU, and the device is the CPU: choose segfault.")
    # only their names and device matter to the mode; what they train is in their program
    clients = [
        PlannedJob(name, ScriptJob("")) for name in (FAULTY, *(f"neighbour-{n}" for n in range(1, neighbours + 1)))
    ]
    # if this process is killed, the temporary folder stays
    with leased_cpu(chosen), tempfile.TemporaryDirectory(prefix="labkit-", ignore_cleanup_errors=True) as folder:
        with Nvml() as nvml:
            shares = mode_shares(mode, clients, Place(chosen, devices, nvml))
        with SupervisedJobs(CLIENT_GRACE_S) as supervised:
            report = FaultRun(FAULTS[fault], mode, shares, supervised, Path(folder)).run(seconds)
        return replace(report, left=len(marked(supervised.mark)))


def documented_behaviour() -> pd.DataFrame:
    """What is documented to become of the neighbours, in our words.

    Columns mode; fault, as `FAULTS` names it; gpus, for which it holds; neighbours, what becomes of them in few words;
    documented, in a sentence; source, section and url; provenance, "documented, not run here".
    """
    content = tomllib.loads(files("labkit_course.apparatus").joinpath("documented.toml").read_text(encoding="utf-8"))
    rows = [row | content["sources"][row["source"]] for row in content["rows"]]
    return pd.DataFrame(rows).assign(provenance="documented, not run here")


@dataclass
class Client:
    """One client, as far as it is known; moments are those of `time.monotonic`."""

    pid: int = 0
    heard: set[str] = field(default_factory=set)
    """Kinds of messages about it, such as Ready, Steps, Fails, ended."""
    steps: list[tuple[float, int]] = field(default_factory=list)
    """When it had taken how many; the last is when it began to fail, if that was its own doing"""
    status: str = "alive"
    """alive, done, failed, out_of_memory, or killed: as it said, or as its process ended"""
    reason: str = ""

    def rate(self, begin: float, end: float) -> float:
        """Steps per second between two moments; NaN where they are too close together."""
        if end - begin < 0.99 * SHORTEST_S:
            return math.nan
        moments, counts = zip(*self.steps, strict=True)
        at_begin, at_end = np.interp([begin, end], moments, counts)  # none is before the first, or after the last
        return float(at_end - at_begin) / (end - begin)


class FaultRun:
    """One experiment; `run` it once."""

    def __init__(self, fault: Fault, mode: str, shares: dict[str, Share], supervised: SupervisedJobs, folder: Path):
        self.fault, self.mode, self.shares, self.supervised, self.folder = fault, mode, shares, supervised, folder
        self.clients: dict[str, Client] = {}
        self.mps_environment: dict[str, str] = {}

    def run(self, seconds: float) -> FaultReport:
        """Let it happen, and report what was measured; the supervisor ends the clients that are left.

        Raises:
            UserError: a client ends before its time, or nothing happens any more.
        """
        names = list(self.shares)
        if self.mode == "mps":
            gpus = sorted({share.environment["CUDA_VISIBLE_DEVICES"] for share in self.shares.values()})
            self.mps_environment = self.supervised.start_mps(gpus)
        for name in names:
            self._start(name)
        self._until("it was ready", "Ready", *names)
        for together in (names[1:], [FAULTY]):
            self.supervised.go(*together)
            self._until("its first step", "Steps", *together)
        windows = {"before": self._watch(seconds)}
        struck_at = self._strike()
        if self.fault.hangs:
            windows["during"] = self._watch(seconds)
        self._end_faulty()
        gone_at = self._until("its end", "ended", FAULTY)
        windows.setdefault("during", (struck_at, gone_at))
        windows["after"] = self._watch(seconds)
        jobs, steps = [], []
        for name, client in ((name, self.clients[name]) for name in names):
            row = {"job": name, "faulty": name == FAULTY, "status": client.status, "reason": client.reason}
            jobs.append(row | {when: client.rate(*window) for when, window in windows.items()})
            for begin, end in pairwise(np.arange(windows["before"][0], windows["after"][1], SHORTEST_S)):
                at_s = (begin + end) / 2 - struck_at
                steps.append({"job": name, "at_s": at_s, "steps_per_s": client.rate(begin, end)})
        return FaultReport(
            jobs=pd.DataFrame(jobs).assign(provenance="measured"),
            steps=pd.DataFrame(steps).assign(provenance="measured"),
            gone_s=gone_at - struck_at,
        )

    def _strike(self) -> float:
        """Let the faulty client fail; the moment."""
        if self.fault.name == "kill":
            return time.monotonic()
        self.supervised.go(FAULTY)
        self._until("its fault", "Fails", FAULTY)
        return self.clients[FAULTY].steps[-1][0]

    def _end_faulty(self) -> None:
        """End a client that does not end by itself."""
        if self.fault.hangs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.clients[FAULTY].pid, signal.SIGTERM)
            self._watch(DEAF_S)
        if self.fault.name == "kill" or (self.fault.hangs and "ended" not in self.clients[FAULTY].heard):
            self.supervised.kill(FAULTY)

    def _start(self, name: str) -> None:
        """Start a client, which waits for its cue."""
        self.clients[name], share = Client(), self.shares[name]
        fault = self.fault.name if name == FAULTY else None
        content = {"fault": fault, "device": share.torch_name, "cores": share.cores}
        log, environment = str(self.folder / f"{name}.log"), self.mps_environment | share.environment
        self.supervised.start(name, PROGRAM, content, log, environment)

    def _until(self, what: str, kind: str, *names: str) -> float:
        """Listen until that was heard of each client; the moment."""
        give_up = time.monotonic() + DEADLINE_S
        while waiting := [name for name in names if kind not in self.clients[name].heard]:
            if ended := [name for name in waiting if "ended" in self.clients[name].heard]:
                said = (self.folder / f"{ended[0]}.log").read_text(errors="replace").strip()[-300:]
                raise UserError(f"The client {ended[0]} ended before {what}: {self.clients[ended[0]].reason}. {said}")
            if time.monotonic() > give_up:
                raise UserError(f"The client {waiting[0]} was given up: {what} did not happen in {DEADLINE_S:g} s.")
            self._listen()
        return time.monotonic()

    def _watch(self, seconds: float) -> tuple[float, float]:
        """Listen for some seconds; the moments that it began and ended."""
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            self._listen()
        return begin, time.monotonic()

    def _listen(self) -> None:
        event = self.supervised.next_event(LISTEN_S)
        if event is None:
            return
        client, said = self.clients[event["job"]], event.get("event", event)
        client.heard.add(said["kind"])
        if said["kind"] == "started":
            client.pid = said["pid"]
        elif said["kind"] == "ended" and client.status == "alive":
            client.status, client.reason = "killed" if (said["status"] or 0) < 0 else "failed", how_ended(said)
        elif said["kind"] in ("Steps", "Fails"):
            client.steps.append((said["at_s"], said["steps"]))
        elif said["kind"] in ("Ended", "Failed"):
            client.status, client.reason = said["status"], said.get("reason", "")
