"""Who goes where: what a job must pass to join others on a device, policies, the scheduler, and its schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from labkit import UserError
from labkit.sharing.queue import Attempt, JobProfile, Slowdown, TrackedJob, slowdown_by_utilisation

BUSIEST = 0.8
"""A GPU this busy takes no other job: CARMA's 80 % of SM activity"""
MIN_GAIN = 0.05
"""Share by which the throughput of a device has to grow for another job to join: our choice"""
MAX_OVERTAKEN = 4
"""Our choice between a device left idle (0: first come, first served, as in CARMA) and a big job left waiting"""
JOB_COLUMNS = [
    "job", "label", "status", "device", "arrives_s", "starts_s", "ends_s", "wait_s", "completion_s", "slowdown", "oom",
    "attempts",
]  # fmt: skip
ATTEMPT_COLUMNS = ["job", "label", "attempt", "device", "alone", "queued_s", "starts_s", "ends_s", "ending"]
COMPARED = ("makespan_s", "mean_completion_s", "mean_wait_s", "energy_j")


@dataclass(frozen=True)
class PackingDevice:
    """A device as far as packing needs to know it."""

    name: str
    """Unique among the devices of a queue"""
    memory_bytes: int


@dataclass(frozen=True)
class DeviceState:
    """One device at one moment, as known to a policy: estimates, and what a monitor has seen; never the truth.

    A job that has just started is in the belief but not yet in the monitor's reading; one that was underestimated is in
    the reading but not in the belief. So the worse of the two counts.
    """

    device: PackingDevice
    profiles: tuple[JobProfile, ...] = ()
    """Of the jobs that run on it"""
    closed: bool = False
    """Whether a recovered job has it, or waits for it, alone"""
    monitored_free_bytes: float = math.inf
    """As last observed"""

    @property
    def free_bytes(self) -> float:
        believed = self.device.memory_bytes - sum(profile.memory_estimate_bytes for profile in self.profiles)
        return min(believed, self.monitored_free_bytes)

    @property
    def utilisation(self) -> float:
        return sum(profile.utilisation for profile in self.profiles)


@dataclass(frozen=True)
class Admission:
    """The preconditions that every policy shares; a policy then picks among the devices that pass.

    CARMA (arXiv 2508.19073) filters GPUs before it places: its released code skips those whose SM activity is 80 % or
    more, and those whose free memory is below the job's need.
    """

    margin_bytes: int = 0
    """Kept free on every device that jobs share, for fragmentation and contexts"""
    max_utilisation: float = BUSIEST
    """A device this busy takes no other job"""
    slowdown: Slowdown = slowdown_by_utilisation
    """What sharing is believed to cost"""

    def admits(self, profile: JobProfile, state: DeviceState, *, largest_bytes: int) -> bool:
        """Whether a job may start on a device now; `largest_bytes` is the memory of the largest device of all.

        A job that is believed to need more than that gets such a device alone rather than nothing: published estimators
        miss DLRM's memory by up to 76 times (CARMA), and a check before the start is the place to refuse.
        """
        if state.closed:
            return False
        need = profile.memory_estimate_bytes + self.margin_bytes
        if need > state.free_bytes:
            return not state.profiles and need > largest_bytes == state.device.memory_bytes
        if not state.profiles:
            return True
        together, before = self._rate((*state.profiles, profile)), self._rate(state.profiles)
        return state.utilisation < self.max_utilisation and together >= before * (1 + MIN_GAIN)

    def _rate(self, profiles: tuple[JobProfile, ...]) -> float:
        """Progress of all jobs of a device together, in seconds of a job alone each second."""
        return sum(1 / slowdown for slowdown in self.slowdown(profiles))


def cpu_admission(slowdown: Slowdown, margin_bytes: int = 0) -> Admission:
    """What a job must pass to join others on CPU cores: the memory, and a gain.

    A limit on utilisation, CARMA's for GPUs, would keep every core to one job: threads that take turns look busy
    whether there is something to gain or not.
    """
    return Admission(margin_bytes, math.inf, slowdown)


class Chooser(Protocol):
    """A policy, of labkit's or of its user's."""

    name: str

    def choose(self, profile: JobProfile, states: Sequence[DeviceState], admission: Admission) -> int | None:
        """Position of the device on which a job starts now, or None: it waits.

        `states` are those of all devices, in a fixed order.
        """


@dataclass(frozen=True)
class Policy:
    """A choice among the devices that admit a job."""

    name: str
    summary: str
    collocates: bool = True
    """Whether it puts a job next to another, on the device whose free memory it leaves least of"""

    def choose(self, profile: JobProfile, states: Sequence[DeviceState], admission: Admission) -> int | None:
        """As in `Chooser`; the earlier one of equals."""
        largest_bytes = max(state.device.memory_bytes for state in states)
        ranks = {
            position: state.free_bytes - profile.memory_estimate_bytes if self.collocates else 0
            for position, state in enumerate(states)
            if (self.collocates or not state.profiles) and admission.admits(profile, state, largest_bytes=largest_bytes)
        }
        return min(ranks, key=ranks.__getitem__, default=None)


_ALL = (
    Policy("exclusive", "a device for each job", collocates=False),
    Policy("best-fit", "the device whose free memory it leaves least of"),
)
POLICIES = {policy.name: policy for policy in _ALL}
"""By name, `exclusive` first: the others are compared with it"""


def get_policy(name: str) -> Policy:
    """A policy by its name; a UserError where there is none of that name."""
    if name not in POLICIES:
        raise UserError(f"policy {name!r} is unknown: choose one of {', '.join(POLICIES)}.")
    return POLICIES[name]


class Scheduler:
    """Places jobs on devices by a policy, for the simulator and for real processes alike; `jobs` is the queue's state.

    Jobs are looked at in the order in which they came. One that fits nowhere lets later ones pass, but only
    `MAX_OVERTAKEN` of them: then all wait until it has started, so that small jobs cannot starve a big one.

    A job that ran out of memory runs again, once, alone (CARMA's recovery). It comes before the queue: a device among
    the largest is closed to others at once, and is its own as soon as it is empty.
    """

    def __init__(
        self,
        jobs: Sequence[TrackedJob],
        devices: Sequence[PackingDevice],
        policy: Chooser,
        admission: Admission | None = None,
    ):
        self.jobs = {job.name: job for job in jobs}
        """By name, in the order of the queue"""
        assert all(job.profile for job in jobs) and len(self.jobs) == len(jobs), "check the queue first"
        self._in_order = sorted(self.jobs.values(), key=lambda job: job.queued.arrives_s)  # equal ones as in the file
        self._devices, self._policy, self._admission = tuple(devices), policy, admission or Admission()
        self._reserved: dict[str, int] = {}
        """The device that a recovering job waits for or runs on alone"""
        self._observed: dict[int, dict[str, float]] = {}

    @property
    def next_arrival_s(self) -> float | None:
        """When the next job comes; None where all have."""
        return next((job.queued.arrives_s for job in self._that_are("expected")), None)

    @property
    def finished(self) -> bool:
        """Whether every job is done or failed."""
        return all(job.status in ("done", "failed") for job in self.jobs.values())

    def let_arrive(self, until_s: float) -> None:
        """The jobs that have come by then get in line."""
        for job in self._that_are("expected"):
            if job.queued.arrives_s <= until_s:
                job.status, job.queued_s = "queued", until_s

    def ended(self, name: str, at_s: float, ending: str, reason: str = "") -> None:
        """A running job ended: done, out of memory, failed (which running again would not fix), or stopped."""
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
            device = self._policy.choose(job.profile, self._states(), self._admission)
            if device is None:
                waiting.append(job)
                continue
            for earlier in waiting:
                earlier.overtaken += 1
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
    """Totals of several schedules of one queue, each compared with the first.

    Returns:
        policy, provenance, the totals, and for each of COMPARED its ratio (makespan_ratio, …; below 1 is less).
    """
    told = [{"policy": each.policy, "provenance": each.provenance, **each.totals} for each in schedules]
    frame = pd.DataFrame(told)
    for name in COMPARED:
        frame[name.rpartition("_")[0] + "_ratio"] = frame[name] / frame[name].iloc[0]
    return frame
