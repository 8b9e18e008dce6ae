"""A plan: which jobs share which device, in which modes, how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError

MODES = ("alone", "naive", "mps", "mig", "cpu-shared", "cpu-pinned")
"""`alone` runs the jobs one after another; `naive` and `cpu-shared` are plain processes, on a GPU and on a CPU."""
CPU_MODES = ("cpu-shared", "cpu-pinned")
DEFAULT_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Workload:
    """Jobs that run together in one mode, started at one barrier; in mode alone, one after another."""

    name: str
    mode: str
    jobs: tuple[PlannedJob, ...]

    def __post_init__(self):
        if self.mode not in MODES:
            raise UserError(f"{self.name}: mode {self.mode!r} is unknown: choose one of {', '.join(MODES)}.")
        if not self.jobs:
            raise UserError(f"{self.name}: there is no job in it: name at least one.")
        names = set()
        for job in self.jobs:
            if job.name in names:
                raise UserError(
                    f"{job.where or self.name}: another job of this workload is called {job.name}, too: give each a "
                    "name of its own."
                )
            names.add(job.name)


@dataclass(frozen=True)
class Plan:
    """Workloads that run one after another, each so many times."""

    name: str
    workloads: tuple[Workload, ...]
    device: str | None = None
    """cpu, or a GPU's number or UUID; None takes the first GPU where there is one"""
    repeats: int = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    """For each round, counted from its start"""
    spin: bool = False
    """Whether idle CPU threads of a job wait busily, as OpenMP's do by default, or give their core to its neighbours"""

    def __post_init__(self):
        if self.repeats < 1:
            raise UserError(f"repeats is {self.repeats}: give a whole number from 1.")
        if not self.timeout_s > 0:
            raise UserError(f"timeout is {self.timeout_s:g}: give a number of seconds above zero.")
        if not self.workloads:
            raise UserError(f"the plan {self.name!r} has no workload: name at least one job and one mode.")
        names = [(workload.mode, workload.name) for workload in self.workloads]
        if again := [name for name in names if names.count(name) > 1]:
            mode, name = again[0]
            raise UserError(
                f"two workloads of mode {mode} are called {name!r}: name each mode only once, and each workload by "
                "itself."
            )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """From what `asdict` gave, by way of JSON."""
        workloads = [
            Workload(each["name"], each["mode"], tuple(map(PlannedJob.from_dict, each["jobs"])))
            for each in values["workloads"]
        ]
        return cls(**values | {"workloads": tuple(workloads)})
