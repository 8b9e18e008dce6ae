"""The scheduler: told what happened and when, it says what to start where; and the schedule that came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from labkit.sharing.packing.policy import Admission, DeviceState, OwnPolicy, PackingDevice, Policy
from labkit.sharing.packing.queue import Attempt, QueuedJob, TrackedJob

MAX_OVERTAKEN = 4
"""Our choice between a device left idle (0: first come, first served, as in CARMA) and a big job left waiting."""
JOB_COLUMNS = [
    "job", "label", "status", "device", "arrives_s", "starts_s", "ends_s", "wait_s", "completion_s", "slowdown", "oom",
    "attempts",
]  # fmt: skip
ATTEMPT_COLUMNS = ["job", "label", "attempt", "device", "alone", "queued_s", "starts_s", "ends_s", "ending"]
COMPARED = ("makespan_s", "mean_completion_s", "mean_wait_s", "energy_j")


class Devices(Protocol):
    """Devices that jobs run on, in truth or simulated, and their clock."""

    @property
    def now_s(self) -> float:
        """Seconds since the queue was opened; they do not run backwards."""

    def look(self) -> Iterable[dict[str, float]]:
        """What a monitor reads of each device, in order, as `DeviceState` names it; nothing where it does not look."""

    def start(self, job: TrackedJob) -> None:
        """Start the last attempt of a job."""

    def endings(self, until_s: float | None) -> Iterable[tuple[str, str, str]]:
        """Let time pass until something happens, or someone comes: name, ending and reason of the jobs that ended."""


class Scheduler:
    """Places jobs on devices by a policy, for the simulator and for real processes alike; `jobs` is the queue's state.

    Jobs are looked at in the order in which they came. One that fits nowhere lets later ones pass, but only
    `MAX_OVERTAKEN` of them: then all wait until it has started, so that small jobs cannot starve a big one.

    A job that ran out of memory runs again, once, alone (CARMA's recovery). It comes before the queue: a device among
    the largest is closed to others at once, and is its own as soon as it is empty.
    """

    def __init__(
        self,
        queue: Sequence[QueuedJob],
        devices: Sequence[PackingDevice],
        policy: Policy | OwnPolicy,
        admission: Admission | None = None,
    ):
        self.jobs = {job.name: TrackedJob(job) for job in queue}
        """By name, in the order of the queue"""
        assert all(job.profile for job in queue) and len(self.jobs) == len(queue), "check the queue first"
        self._in_order = sorted(self.jobs.values(), key=lambda job: job.queued.arrives_s)  # equal ones as in the file
        self._devices, self._policy, self._admission = tuple(devices), policy, admission or Admission()
        self._reserved: dict[str, int] = {}
        """The device that a recovering job waits for or runs on alone"""
        self._last = -1
        self._observed: dict[int, dict[str, float]] = {}

    @property
    def next_arrival_s(self) -> float | None:
        """When the next job comes; None where all have."""
        return next((job.queued.arrives_s for job in self._that_are("expected")), None)

    @property
    def finished(self) -> bool:
        """Whether every job is done or failed."""
        return all(job.status in ("done", "failed") for job in self.jobs.values())

    def run(self, devices: Devices, stop: object = None) -> None:
        """Run the queue on devices to its end, or until `stop` is true."""
        while not self.finished and not stop:
            self.let_arrive(devices.now_s)
            for position, seen in enumerate(devices.look()):
                self.observed(position, **seen)
            for job in self.starts(devices.now_s):
                devices.start(job)
            for name, ending, reason in devices.endings(self.next_arrival_s):
                self.ended(name, devices.now_s, ending, reason)

    def let_arrive(self, until_s: float) -> None:
        """The jobs that have come by then get in line."""
        for job in self._that_are("expected"):
            if job.queued.arrives_s <= until_s:
                job.status, job.queued_s = "queued", until_s

    def ended(self, name: str, at_s: float, ending: str, reason: str = "") -> None:
        """A running job ended: done, out of memory, failed (which running again would not mend), or stopped."""
        job = self.jobs[name]
        attempt = job.attempts[-1]
        assert job.status == "running", f"{name} ends ({ending}), and is {job.status}"
        attempt.ends_s, attempt.ending, attempt.reason = at_s, ending, reason
        job.status, job.queued_s = ending, at_s
        if ending == "out of memory":
            job.status = "failed" if attempt.alone else "recovering"
        self._reserved.pop(name, None)
        # what was seen of the device was seen with this job on it
        self._observed.pop(attempt.device, None)

    def observed(self, device: int, **seen: float) -> None:
        """What a monitor read of a device, as `DeviceState` names it; the last reading counts."""
        self._observed[device] = seen

    def starts(self, at_s: float) -> list[TrackedJob]:
        """The jobs to start now, each with its new attempt. They are running from here on."""
        started = self._recover(at_s)
        waiting: list[TrackedJob] = []
        for job in self._that_are("queued"):
            if any(earlier.overtaken >= MAX_OVERTAKEN for earlier in waiting):
                break
            device = self._policy.choose(job.profile, self._states(), self._admission, self._last)
            if device is None:
                waiting.append(job)
                continue
            for earlier in waiting:
                earlier.overtaken += 1
            self._last = device
            started.append(self._start(job, device, at_s, alone=False))
        return started

    def _that_are(self, status: str) -> list[TrackedJob]:
        return [job for job in self._in_order if job.status == status]

    def _on(self, device: int) -> list[TrackedJob]:
        return [job for job in self._that_are("running") if job.attempts[-1].device == device]

    def _states(self) -> list[DeviceState]:
        closed = self._reserved.values()
        states = []
        for n, device in enumerate(self._devices):
            profiles = tuple(job.profile for job in self._on(n))
            states.append(DeviceState(device, profiles, n in closed, **self._observed.get(n, {})))
        return states

    def _recover(self, at_s: float) -> list[TrackedJob]:
        """Give each recovering job a device of its own: reserved now, started on when empty."""
        most = max(device.memory_bytes for device in self._devices)
        # a smaller device would be a second attempt thrown away
        largest = [n for n, device in enumerate(self._devices) if device.memory_bytes == most]
        started = []
        for job in sorted(self._that_are("recovering"), key=lambda job: job.queued_s):
            free = [n for n in largest if n not in self._reserved.values()]
            if job.name not in self._reserved and free:
                self._reserved[job.name] = min(free, key=lambda n: len(self._on(n)))
            device = self._reserved.get(job.name)
            if device is not None and not self._on(device):
                started.append(self._start(job, device, at_s, alone=True))
        return started

    def _start(self, job: TrackedJob, device: int, at_s: float, *, alone: bool) -> TrackedJob:
        job.attempts.append(Attempt(len(job.attempts) + 1, device, alone, job.queued_s, at_s))
        job.status = "running"
        return job


@dataclass(frozen=True)
class Schedule:
    """What a policy made of a queue."""

    policy: str
    provenance: str
    """predicted, or measured; measured, an ending can be "stopped", too"""
    jobs: pd.DataFrame
    """JOB_COLUMNS, in the order of the queue. device, starts_s and ends_s are those of a job's last attempt; wait_s is
    all its time in line, completion_s from its arrival to its end; slowdown is the time of its last attempt over the
    duration alone in its profile, NaN unless it is done; oom, whether it ever ran out of memory"""
    attempts: pd.DataFrame
    """ATTEMPT_COLUMNS, in order of time, a bar each in a Gantt figure"""
    totals: dict[str, float | int | str]
    """makespan_s is from the first arrival to the last end; means are over jobs that are done"""


def schedule_of(
    policy: str,
    provenance: str,
    jobs: Sequence[TrackedJob],
    devices: Sequence[PackingDevice],
    energy_note: str,
    energy_j: float | None = None,
) -> Schedule:
    """The frames of a queue, simulated or real."""
    job_rows, attempt_rows = [], []
    for job in jobs:
        named = {"job": job.name, "label": job.queued.job.label}
        own = [
            named | vars(attempt) | {"attempt": attempt.number, "device": devices[attempt.device].name}
            for attempt in job.attempts
        ]
        attempt_rows += own
        row = named | {"status": job.status, "arrives_s": job.queued.arrives_s, "attempts": len(own)}
        row["oom"] = any(attempt["ending"] == "out of memory" for attempt in own)
        if own:
            last, alone_s = own[-1], job.profile.duration_s
            ends_s = np.nan if last["ends_s"] is None else last["ends_s"]
            row |= {"device": last["device"], "starts_s": last["starts_s"], "ends_s": ends_s}
            row["wait_s"] = sum(attempt["starts_s"] - attempt["queued_s"] for attempt in own)
            row["completion_s"] = ends_s - own[0]["queued_s"]
            row["slowdown"] = (ends_s - last["starts_s"]) / alone_s if job.status == "done" and alone_s else np.nan
        job_rows.append(row)
    rows = pd.DataFrame(job_rows, columns=JOB_COLUMNS)
    attempts = pd.DataFrame(attempt_rows, columns=ATTEMPT_COLUMNS).astype({"ends_s": float})
    attempts = attempts.sort_values("starts_s", kind="stable", ignore_index=True)
    done = rows[rows["status"] == "done"]
    totals = {
        "jobs": len(rows),
        "done": len(done),
        "failed": int((rows["status"] == "failed").sum()),
        "ooms": int((attempts["ending"] == "out of memory").sum()),
        "makespan_s": attempts["ends_s"].max() - rows["arrives_s"].min(),
        "mean_completion_s": done["completion_s"].mean(),
        "mean_wait_s": done["wait_s"].mean(),
        "mean_slowdown": done["slowdown"].mean(),
        "energy_j": np.nan if energy_j is None else energy_j,
        "energy_note": energy_note,
    }
    return Schedule(policy, provenance, rows, attempts, totals)


def side_by_side(schedules: Sequence[Schedule]) -> pd.DataFrame:
    """Totals of several schedules of one queue, each beside the first.

    Returns:
        policy, provenance, the totals, and for each of COMPARED its ratio (makespan_ratio, …; below 1 is less).
    """
    told = [{"policy": each.policy, "provenance": each.provenance, **each.totals} for each in schedules]
    frame = pd.DataFrame(told)
    for name in COMPARED:
        frame[name.rpartition("_")[0] + "_ratio"] = frame[name] / frame[name].iloc[0]
    return frame
