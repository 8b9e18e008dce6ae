"""Mixes: which jobs share which device, in which modes, how often; and the launches that they make."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

from labkit import UserError, json_data, tracking
from labkit.jobs import NO_TARGET, Job, ScriptJob, job_from_json
from labkit.launch.launches import Launch

MODES = ("alone", "naive", "mps", "mig", "cpu-shared", "cpu-pinned")
"""`alone` runs the jobs one after another; `naive` and `cpu-shared` are plain processes, on a GPU and on a CPU."""
CPU_MODES = ("cpu-shared", "cpu-pinned")
ENDS = {"target", "max_seconds", "max_epochs"}
"""Settings by which a job names its own end"""
NAME = re.compile(r"\w[\w.+-]{0,59}")
MIG_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb(?:[+-][\w.]+)*", re.IGNORECASE)
"""Compute slices, memory slices and extras, as `nvidia-smi mig -lgip` writes them: 3g.40gb, 1c.3g.40gb, 1g.10gb+me"""


@dataclass(frozen=True)
class PlannedJob:
    """One job. It is written as it was asked for; nothing of the machine is in it."""

    name: str
    """Unique among the jobs that run together; names its log file"""
    job: Job | ScriptJob
    """What it trains, with seed 0; {seed} stands for the seed in a script's arguments"""
    seed: int = 0
    """Seed of this copy, where the job takes one"""
    device: str | None = None
    """cpu, a GPU's or a slice's number or UUID; None takes that of the mix"""
    cores: int | None = None
    """Cores of its partition in mode cpu-pinned; None takes an equal share"""
    memory_bytes: int | None = None
    """Cap of its partition, and the estimate that counts instead of ours"""
    gpu_percent: float | None = None
    """Share of the GPU's multiprocessors in mode mps; None lets all clients use all"""
    mig_profile: str | None = None
    """Slice that it needs in mode mig, such as 3g.40gb; None takes any"""
    folder: str | None = None
    """Working folder of the script, from this process' own; None takes that one"""
    where: str = ""
    """Where it was asked for, for messages: a file and its line, or the item of --jobs"""

    def __post_init__(self):
        if not NAME.fullmatch(self.name):
            raise UserError(
                f"name {self.name!r} also names a file: use up to 60 letters, digits and . _ + - only, a letter or "
                "digit first.",
                field="name",
            )
        if self.cores is not None and self.cores < 1:
            raise UserError(f"cores is {self.cores}: give a whole number from 1.", field="cores")
        if self.gpu_percent is not None and not 0 < self.gpu_percent <= 100:
            said = f"gpu_percent is {self.gpu_percent:g}: give a number above 0 and up to 100."
            raise UserError(said, field="gpu_percent")
        if self.mig_profile is not None and not MIG_PROFILE.fullmatch(self.mig_profile):
            raise UserError(
                f"mig_profile {self.mig_profile!r} is not a MIG profile: write one such as 3g.40gb (`nvidia-smi mig "
                "-lgip` lists those of your GPU).",
                field="mig_profile",
            )
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise UserError(f"memory is {self.memory_bytes}: give a size above zero, such as 2GiB.", field="memory")

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "PlannedJob":
        """The job that `to_json` gave this data of; a ValueError where it does not fit."""
        shapes = get_type_hints(cls)
        values = {name: data[name] for name in shapes if name in data and name != "job"}
        for name, value in values.items():
            json_data.check_shape(value, shapes[name], name)
        return cls(job=job_from_json(data["job"]), **values)

    @property
    def label(self) -> str:
        """What it trains, for people: dlrm:tour, or the script's name."""
        return self.job.label

    def command(self) -> "tracking.ScriptCommand":
        """What it runs, wherever that is."""
        if not isinstance(self.job, ScriptJob):
            return self.job.with_settings(seed=self.seed).command(folder=self.folder)
        command = self.job.command(folder=self.folder)
        return command.seeded(self.seed) if self.job.takes_seed else command


def job_text(job: Job | ScriptJob) -> str:
    """A job as text, equal for jobs that differ in name, seed and place only, and share one profile."""
    return json.dumps(json_data.to_json(job), sort_keys=True)


def mix_words(labels: Iterable[str]) -> str:
    """Jobs that run together as text, most copies first.

    >>> mix_words(["speech:tour", "dlrm:tour", "dlrm:tour"])
    '2 × dlrm:tour + speech:tour'
    """
    counts = sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0]))
    return " + ".join(label if times == 1 else f"{times} × {label}" for label, times in counts)


def shared_with(mode: str, jobs: Sequence[PlannedJob], words: str | None = None) -> dict[str, Any]:
    """What the record of a run says of the jobs that it shared a device with, itself included."""
    keys = repr(sorted(job_text(job.job) for job in jobs))
    return {
        "mode": mode,
        "jobs": mix_words(job.label for job in jobs) if words is None else words,
        "mix": hashlib.blake2s(keys.encode(), digest_size=3).hexdigest(),
    }


@dataclass(frozen=True)
class Workload:
    """Jobs that run together in one mode, started at one barrier; in mode alone, one after another."""

    name: str
    mode: str
    jobs: tuple[PlannedJob, ...]
    where: str | None = None
    """Where its mode was asked for, for messages"""

    def __post_init__(self):
        if self.mode not in MODES:
            raise UserError(f"{self.name}: mode {self.mode!r} is unknown: choose one of {', '.join(MODES)}.")
        if not self.jobs:
            raise UserError(f"{self.name}: there is no job in it: name at least one.")
        if len({job.name for job in self.jobs}) < len(self.jobs):
            raise UserError(f"{self.name}: two of its jobs have the same name: give each a name of its own.")


@dataclass(frozen=True)
class Mix:
    """Workloads that run one after another, and the number of times."""

    name: str
    workloads: tuple[Workload, ...]
    device: str | None = None
    """cpu, or a GPU's number or UUID; None takes the first GPU where there is one"""
    repeats: int = 1
    timeout_s: float = 3600.0
    """For each round, counted from its start"""
    spin: bool = False
    """Whether idle CPU threads of a job wait busily, as OpenMP's do by default, or give their core to its neighbours"""

    def __post_init__(self):
        if self.repeats < 1:
            raise UserError(f"repeats is {self.repeats}: give a whole number from 1.")
        if not self.timeout_s > 0:
            raise UserError(f"timeout is {self.timeout_s:g}: give a number of seconds above zero.")
        if not self.workloads:
            raise UserError(f"the mix {self.name!r} has no workload: name at least one job and one mode.")
        names = [(workload.mode, workload.name) for workload in self.workloads]
        for mode, name in names:
            if names.count((mode, name)) > 1:
                raise UserError(f"two workloads of mode {mode} are called {name!r}: give each a name of its own.")


def with_baseline(mix: Mix, baseline: str = "each") -> Mix:
    """The mix, and before it the jobs alone that it does not run alone itself.

    `baseline` is each; one of those that differ in their seed only, which is shorter, and not exact, as seeds reach a
    target at different times; or none.
    """

    def key(job: PlannedJob) -> tuple:
        return job.job, job.seed if baseline == "each" else None

    if baseline == "none":
        return mix
    seen = {key(job) for each in mix.workloads if each.mode == "alone" for job in each.jobs}
    baselines = []
    for each in mix.workloads:
        missing = []
        for job in each.jobs:
            if key(job) not in seen:
                missing.append(job)
                seen.add(key(job))
        if missing:
            baselines.append(Workload(f"{each.name}-alone", "alone", tuple(missing)))
    return replace(mix, workloads=(*baselines, *mix.workloads)) if baselines else mix


def on_device(mix: Mix, device: str) -> Mix:
    """The mix with all of its jobs on one device, whatever they name; naive on the CPU is called cpu-shared."""
    workloads = tuple(
        replace(
            workload,
            mode="cpu-shared" if (workload.mode, device) == ("naive", "cpu") else workload.mode,
            jobs=tuple(replace(job, device=None) for job in workload.jobs),
        )
        for workload in mix.workloads
    )
    return replace(mix, device=device, workloads=workloads)


def with_seconds(mix: Mix, seconds: float | None) -> Mix:
    """The mix with its jobs trained for a number of seconds, except scripts and jobs that name their own end.

    They then have no target, since all of them are to run for all of that time.
    """
    if seconds is None:
        return mix
    if not seconds > 0:
        raise UserError(f"seconds is {seconds:g}: give a number above zero.")

    def timed(job: PlannedJob) -> PlannedJob:
        if isinstance(job.job, ScriptJob) or ENDS & job.job.settings().keys():
            return job
        return replace(job, job=job.job.with_settings(max_seconds=float(seconds), target=NO_TARGET))

    workloads = tuple(replace(each, jobs=tuple(map(timed, each.jobs))) for each in mix.workloads)
    return replace(mix, workloads=workloads)


def mix_launches(mix: Mix) -> list[Launch]:
    """The rounds of a mix as launches, in their order; in mode alone, each job is a round.

    They go repeat by repeat, so that drift affects all modes alike.
    """
    found: list[Launch] = []
    for repeat in range(mix.repeats):
        for workload in mix.workloads:
            for jobs in [(job,) for job in workload.jobs] if workload.mode == "alone" else [workload.jobs]:
                place = f"{workload.name}-{workload.mode}-{repeat}"
                together = f"{place}-{jobs[0].name}" if workload.mode == "alone" else place
                about = {"workload": workload.name, "repeat": repeat}
                how = {"mode": workload.mode, "together": together, "limit_s": mix.timeout_s}
                for job in jobs:
                    own = about | {"job": job.name, "job_key": job_text(job.job)}
                    found.append(Launch(f"{place}-{job.name}", job.command(), job.label, about=own, **how))
    return found
