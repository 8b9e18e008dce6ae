"""One fault, really run: a client that fails beside clients that do not.

Nothing waits for a clock but the windows in which rates are measured: each act begins when the one before it has been
heard to be over.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from labkit.collocation.faults.fault import FAULTS, Fault
from labkit.collocation.modes.choice import mode_shares
from labkit.collocation.modes.cpu import leased_cpu
from labkit.collocation.modes.place import Place, Share
from labkit.collocation.plan.plan import MODES
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan.rows import did_you_mean
from labkit.errors import UserError
from labkit.hardware.device_choice import find_device
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.process.containment import marked
from labkit.process.supervisor import JobProcess, SupervisedJobs, how_ended

FAULTY = "faulty"
PROGRAM = "labkit.collocation.faults.faulty_client"
POLITE_S = 1.0
"""For clients without a fault to end when all is over."""
DEAF_S = 0.5
"""A hung client is sent SIGTERM, and so long later SIGKILL."""
SHORTEST_S = 0.2
"""A shorter time has too few of what a client tells for a rate."""
LISTEN_S = 0.02
"""So late at most a moment is noticed."""
PATIENCE_S = 120.0
"""What is waited for has happened by then, also on a slow machine: else the experiment is given up."""
SUMMARY_COLUMNS = [
    "mode", "fault", "neighbours", "died", "rate_during", "rate_after", "gone_s", "ended_by", "fresh_before_s",
    "fresh_after_s", "attempts", "left", "device", "provenance",
]  # fmt: skip


@dataclass(frozen=True)
class FaultReport:
    """One faulty client and its neighbours, measured."""

    fault: str
    mode: str
    device: str
    """What the faulty client had of it, in words"""
    jobs: pd.DataFrame
    """A row a client: job, faulty, status (alive, or how it ended), reason, provenance, and its steps per second before
    the fault, during it (until the client is gone; NaN where that is too short to tell) and after it"""
    steps: pd.DataFrame
    """job, at_s (since the fault), steps_per_s, provenance: how fast each client was over time"""
    gone_s: float
    """From the fault until the client was gone"""
    ended_by: str
    """What it took: itself, SIGTERM or SIGKILL"""
    fresh_before_s: float | None
    """From its start to the first step of a fresh client, beside the neighbours, before the fault"""
    fresh_after_s: float | None
    """From the fault to the first step of a fresh client"""
    attempts: int
    """Fresh clients that it took"""
    left: int = 0
    """Processes that were left behind when all was over"""
    provenance: str = "measured"

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

        A neighbour that has ended takes no steps; NaN where the time was too short to tell.
        """
        own = self.neighbours
        return float(own[when].sum(min_count=1) / own["before"].sum())


def run_fault(
    fault: str,
    mode: str,
    *,
    neighbours: int = 1,
    device: str | None = None,
    seconds: float = 1.0,
    recovery: bool = True,
) -> FaultReport:
    """Let a client fail beside its neighbours, and measure what becomes of them and of the device.

    Args:
        fault: one of `labkit.collocation.faults.fault.FAULTS`.
        mode: how they share the device; any of `labkit.collocation.plan.plan.MODES` but alone.
        neighbours: clients that train the same model and do not fail.
        device: as `find_device` takes it; None takes the CPU in modes of the CPU, else the first GPU.
        seconds: for which rates are measured before the fault, during a hang, and after it.
        recovery: whether fresh clients are started to see when the device is usable; it takes two more starts.

    Raises:
        UserError: the mode or the fault is not possible here, or a client does not start.
    """
    if fault not in FAULTS:
        raise UserError(f"fault {fault!r} is unknown: choose one of {', '.join(FAULTS)}.")
    if mode not in MODES:
        raise UserError(f"mode {mode!r} is unknown: {did_you_mean(mode, MODES)}")
    if mode == "alone":
        raise UserError("In mode alone nobody shares the device, so a fault has no neighbours: choose another mode.")
    if neighbours < 1:
        raise UserError(f"neighbours is {neighbours}: give a whole number from 1.")
    devices = get_devices()
    chosen = find_device("cpu" if device is None and mode.startswith("cpu") else device, devices)
    if FAULTS[fault].gpu_only and chosen.kind == "cpu":
        raise UserError(f"fault {fault} happens in a kernel of a GPU, and the device is the CPU: choose segfault.")
    names = [FAULTY, *(f"neighbour-{number}" for number in range(1, neighbours + 1))]
    with (
        leased_cpu(chosen),
        tempfile.TemporaryDirectory(prefix="labkit-fault-", ignore_cleanup_errors=True) as folder,
    ):
        # only their names and device matter to the mode; what they train is in their program
        with Nvml() as nvml:
            shares = mode_shares(mode, [PlannedJob(name, "") for name in names], Place(chosen, devices, nvml))
        with SupervisedJobs(POLITE_S) as supervised:
            supervised.remove_at_end(Path(folder))
            report, left = FaultRun(FAULTS[fault], mode, shares, supervised, Path(folder)).run(seconds, recovery)
        return replace(report, left=len({*left, *(each.pid for each in marked(supervised.mark))}))


def fault_table(reports: Iterable[FaultReport]) -> pd.DataFrame:
    """One row a report: SUMMARY_COLUMNS; rates are those of all neighbours, of what they were before the fault."""
    rows = []
    for each in reports:
        rates = {"rate_during": each.rate_ratio("during"), "rate_after": each.rate_ratio("after")}
        rows.append(vars(each) | {"neighbours": len(each.neighbours), "died": each.died} | rates)
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


@dataclass
class Client:
    """One client, as far as it is known; moments are those of `time.monotonic`."""

    pid: int = 0
    ready: bool = False
    over: bool = False
    """Whether its process has ended"""
    steps: list[tuple[float, int]] = field(default_factory=list)
    """When it had taken how many"""
    fails_at: float | None = None
    """When it began to fail, if that was its own doing"""
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
        """Fresh ones included"""
        self.left: list[int] = []
        """Processes that the supervisor could not end"""
        self.mps_environment: dict[str, str] = {}
        self.attempts = 0

    def run(self, seconds: float, recovery: bool) -> tuple[FaultReport, list[int]]:
        """Let it happen, and end all clients.

        Returns:
            What was measured, and the processes that are left.

        Raises:
            UserError: a client ends before its time, or nothing happens any more.
        """
        names, neighbours, fresh_before_s = list(self.shares), list(self.shares)[1:], None
        if self.mode == "mps":
            gpus = sorted({share.environment["CUDA_VISIBLE_DEVICES"] for share in self.shares.values()})
            self.mps_environment = self.supervised.start_mps(gpus)
        for name in names:
            self._start(name, name, self.fault.name if name == FAULTY else None)
        self._until_each(names, lambda client: client.ready, "it was ready")
        for together in (neighbours, [FAULTY]):
            self.supervised.go(*together)
            self._until_each(together, lambda client: len(client.steps) > 0, "its first step")
            if together is neighbours and recovery:
                fresh_before_s = self._fresh("before")
        windows = {"before": self._watch(seconds)}
        struck_at = self._strike()
        fresh_after_s = self._fresh("after") if recovery and self.fault.hangs else None
        ended_by = self._end_faulty(windows, seconds)
        gone_at = self._until(lambda: self.clients[FAULTY].over, "the end of the faulty client")
        if recovery and not self.fault.hangs:
            began = time.monotonic()
            fresh_after_s = began - struck_at + self._fresh("after")
        windows.setdefault("during", (struck_at, gone_at))
        windows["after"] = self._watch(seconds)
        jobs = [
            {"job": name, "faulty": name == FAULTY, "status": client.status, "reason": client.reason}
            | {when: client.rate(*window) for when, window in windows.items()}
            for name, client in self.clients.items()
            if name in names
        ]
        edges = np.arange(windows["before"][0], windows["after"][1], SHORTEST_S)
        steps = [
            {"job": name, "at_s": (begin + end) / 2 - struck_at, "steps_per_s": self.clients[name].rate(begin, end)}
            for name in names
            for begin, end in pairwise(edges)
        ]
        for name, client in self.clients.items():
            if not client.over:
                self.supervised.end(name)
        self._until(lambda: all(client.over for client in self.clients.values()), "the end of all clients")
        report = FaultReport(
            fault=self.fault.name,
            mode=self.mode,
            device=self.shares[FAULTY].device,
            jobs=pd.DataFrame(jobs).assign(provenance="measured"),
            steps=pd.DataFrame(steps).assign(provenance="measured"),
            gone_s=gone_at - struck_at,
            ended_by=ended_by,
            fresh_before_s=fresh_before_s,
            fresh_after_s=fresh_after_s,
            attempts=self.attempts,
        )
        return report, [*self.left, *self.supervised.sweep()]

    def _strike(self) -> float:
        """Let the faulty client fail; the moment."""
        faulty = self.clients[FAULTY]
        if self.fault.name == "kill":
            struck_at = time.monotonic()
            self.supervised.kill(FAULTY)
            return struck_at
        self.supervised.go(FAULTY)
        self._until(lambda: faulty.fails_at is not None, "the fault")
        return faulty.fails_at

    def _end_faulty(self, windows: dict[str, tuple[float, float]], seconds: float) -> str:
        """Watch a hung client, and end it; what it took."""
        faulty = self.clients[FAULTY]
        if not self.fault.hangs:
            return "SIGKILL" if self.fault.name == "kill" else "itself"
        windows["during"] = self._watch(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(faulty.pid, signal.SIGTERM)
        self._watch(DEAF_S)
        if faulty.over:
            return "SIGTERM"
        self.supervised.kill(FAULTY)
        return "SIGKILL"

    def _start(self, name: str, of: str, fault: str | None = None, steps: int | None = None) -> None:
        """Start a client that has the share of one of the clients; it waits for its cue."""
        self.clients[name] = Client()
        self.supervised.start(self.process(name, self.shares[of], fault, steps))

    def process(self, name: str, share: Share, fault: str | None, steps: int | None) -> JobProcess:
        content = {"fault": fault, "steps": steps, "device": share.torch_name, "cores": share.cores}
        log = str(self.folder / f"{name}.log")
        return JobProcess(name, PROGRAM, content, log, self.mps_environment | share.environment)

    def _fresh(self, when: str) -> float:
        """Seconds until a fresh client takes its first step in the faulty one's place, at the first try or a later."""
        began, self.attempts = time.monotonic(), 0
        while time.monotonic() < began + PATIENCE_S:
            self.attempts += 1
            name = f"fresh-{when}-{self.attempts}"
            self._start(name, FAULTY, steps=1)
            self.supervised.go(name)
            fresh = self.clients[name]
            self._until(lambda fresh=fresh: fresh.over, "the only step of a fresh client")
            if fresh.steps:
                return fresh.steps[0][0] - began
        raise UserError(f"No fresh client could use the device for {PATIENCE_S:g} s after the fault.")

    def _until_each(self, names: Sequence[str], came: Callable[[Client], bool], what: str) -> None:
        clients = {name: self.clients[name] for name in names}
        self._until(lambda: all(came(each) or each.status != "alive" for each in clients.values()), what)
        for name, client in clients.items():
            if not came(client):
                log = self.folder / f"{name}.log"
                said = log.read_text(errors="replace").strip()[-300:] if log.is_file() else ""
                raise UserError(f"The client {name} ended before {what}: {client.reason}. {said}")

    def _until(self, happened: Callable[[], bool], what: str) -> float:
        """Listen until something has happened; the moment."""
        give_up = time.monotonic() + PATIENCE_S
        while not happened():
            if time.monotonic() > give_up:
                raise UserError(f"The fault experiment was given up: {what} did not happen in {PATIENCE_S:g} s.")
            self._listen()
        return time.monotonic()

    def _watch(self, seconds: float) -> tuple[float, float]:
        """Listen for so long; the moments it began and ended."""
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            self._listen()
        return begin, time.monotonic()

    def _listen(self) -> None:
        event = self.supervised.next_event(LISTEN_S)
        if event is None:
            return
        client, told = self.clients[event["job"]], event.get("event", event)
        if told["kind"] == "started":
            client.pid = told["pid"]
        elif told["kind"] == "ended":
            client.over = True
            self.left += told["left"]
            if client.status == "alive":
                client.status = "killed" if (told["status"] or 0) < 0 else "failed"
                client.reason = how_ended(told)
        elif told["kind"] == "Ready":
            client.ready = True
        elif told["kind"] in ("Steps", "Fails"):
            client.steps.append((told["at_s"], told["steps"]))
            client.fails_at = told["at_s"] if told["kind"] == "Fails" else client.fails_at
        elif told["kind"] in ("Ended", "Failed"):
            client.status, client.reason = told["status"], told.get("reason", "")
