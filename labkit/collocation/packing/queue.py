"""QUEUE.yaml: jobs in line, when each comes, and what each asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.plan.job_settings import read_setting
from labkit.collocation.plan.mistakes import did_you_mean
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan.yaml_file import Node, YamlFile, text
from labkit.collocation.plan.yaml_jobs import YamlJobs
from labkit.errors import UserError
from labkit.hardware.sizes import size_text

EXAMPLE = """\
profiles:
  small: {duration: 120, memory: 1.5GiB, utilisation: 0.3}
jobs:
  - job: dlrm:tour
    copies: 3
    profile: small
  - script: train.py
    arrives: 30
    memory: 2GiB
    utilisation: 0.5"""
TOP_LEVEL = ("jobs", "profiles", "seconds")
ROW_FIELDS = ("arrives", "profile", "duration", "utilisation")
"""Of a row, beside those of a job in a plan; `memory` is both the job's and its profile's"""
PROFILE_FIELDS = {
    "duration": float,
    "memory": "size",
    "estimate": "size",
    "utilisation": float,
    "provenance": str,
    "note": str,
}


def read_queue(path: Path) -> list[QueuedJob]:
    """Read a queue file.

    `jobs` is a list as in a plan, and `seconds` is as there. Beside a job's own fields a row may have `arrives`
    (seconds, 0 by default) and what is known of the job alone: `duration` (seconds), `memory`, `utilisation` (0 to 1),
    or a `profile`: these fields as a group, or the name of such a group under the top-level `profiles`. A profile also
    takes `estimate` (memory as believed before the job runs, where that is not the truth), `provenance` and `note`.
    `memory` beside a profile is such an estimate, as it is in a plan.

    Args:
        path: of the file; scripts and data with relative paths are looked for in its folder.

    Returns:
        The jobs in the order of the file. One of which nothing is known has no profile.

    Raises:
        UserError: with every mistake of every row.
    """
    file = YamlFile(path, EXAMPLE)
    queue = _Reader(file).queue()
    file.mistakes.raise_if_any()
    return queue


def memory_faults(queue: Sequence[QueuedJob], devices: Sequence[PackingDevice]) -> list[str]:
    """One line for each job that is believed to need more memory than the largest device has."""
    largest = max(devices, key=lambda device: device.memory_bytes)
    return [
        f"{job.job.where or job.name}: job {job.name} is estimated at {size_text(job.profile.memory_estimate_bytes)}, "
        f"and the largest device, {largest.name}, has {size_text(largest.memory_bytes)}: make its batch smaller, or "
        "write the memory that it was measured to need."
        for job in queue
        if job.profile and job.profile.memory_estimate_bytes > largest.memory_bytes
    ]


@dataclass(frozen=True)
class _Asked:
    """The fields of a row that are the queue's."""

    arrives_s: float
    own: dict[str, Any]
    """duration and utilisation, where the row has them"""
    profile: JobProfile | None


class _Reader:
    """Reads one file, noting mistakes with it."""

    def __init__(self, file: YamlFile):
        self.file = file
        self.mistakes = file.mistakes
        self.profiles: dict[str, JobProfile | None] = {}
        """By name; None for a wrong one, so that its rows are not blamed, too"""

    def queue(self) -> list[QueuedJob]:
        place = self.file.place(self.file.root)
        top = self.file.fields(self.file.root, place, TOP_LEVEL, "jobs: ...") or {}
        if "profiles" in top:
            self._read_profiles(top["profiles"])
        seconds = self.file.value(top, "seconds", lambda node: read_setting(text(node), float))
        if "jobs" not in top:
            self.mistakes.add(place, "there is no job in it: list some under jobs.")
            return []
        jobs = YamlJobs(self.file, seconds, ROW_FIELDS)
        planned = jobs.read(top["jobs"])
        asked = {place: self._asked(own, place) for place, own in jobs.beside.items()}
        queued = [self._queued(job, asked[job.where]) for job in planned]
        return [job for job in queued if job is not None]

    def _asked(self, own: dict[str, Node], place: str) -> _Asked:
        numbers = {
            name: self.file.value(own, name, lambda node: read_setting(text(node), float), place)
            for name in ("arrives", "duration", "utilisation")
            if name in own
        }
        arrives_s = numbers.pop("arrives", None) or 0.0
        if arrives_s < 0:
            self.mistakes.add(place, f"it is {arrives_s:g}: give seconds from 0.", within="field 'arrives'")
        return _Asked(max(0.0, arrives_s), numbers, self._row_profile(own.get("profile"), place))

    def _row_profile(self, node: Node | None, place: str) -> JobProfile | None:
        if not isinstance(node, yaml.ScalarNode):
            return None if node is None else self._group(node, place, "field 'profile'")
        if node.value not in self.profiles:
            known = (
                did_you_mean(node.value, self.profiles) if self.profiles else "write it under the top-level profiles."
            )
            self.mistakes.add(place, f"profile {node.value!r} is unknown: {known}", within="field 'profile'")
        return self.profiles.get(node.value)

    def _queued(self, job: PlannedJob, asked: _Asked) -> QueuedJob | None:
        if self.mistakes.of(job.where):
            return None
        with self.mistakes.noting(job.where):
            return QueuedJob(job, asked.arrives_s, _profile(asked.profile, asked.own, job.memory_bytes))
        return None

    def _read_profiles(self, node: Node) -> None:
        place = self.file.place(node)
        for name, group in (self.file.fields(node, place, None, "small: {memory: 2GiB}") or {}).items():
            self.profiles[name] = self._group(group, self.file.place(group), f"profile {name!r}")

    def _group(self, node: Node, place: str, within: str) -> JobProfile | None:
        """A profile from its fields; None where it is wrong, which is noted."""
        fields = self.file.fields(node, place, tuple(PROFILE_FIELDS), "memory: 2GiB")
        if fields is None:
            return None
        values = {
            name: self.file.value(
                fields, name, lambda node, name=name: read_setting(text(node), PROFILE_FIELDS[name]), place
            )
            for name in fields
        }
        if self.mistakes.of(place):
            return None
        with self.mistakes.noting(place, within=within):
            return _profile(None, values, None)
        return None


def _profile(given: JobProfile | None, own: dict[str, Any], memory_bytes: int | None) -> JobProfile | None:
    """A profile as given, changed by a row's own fields; without one, from these alone.

    Raises:
        UserError: what makes a profile is missing or wrong.
    """
    if given is not None:
        changes = {"duration_s": own.get("duration"), "utilisation": own.get("utilisation")}
        changes["memory_estimate_bytes"] = memory_bytes
        return replace(given, **{name: value for name, value in changes.items() if value is not None})
    memory_bytes = own.get("memory", memory_bytes)
    estimate_bytes = own.get("estimate", memory_bytes)
    if not own:
        return None  # a cap on a job's memory says nothing of how busy it keeps a device
    needed = (("memory", estimate_bytes), ("utilisation", own.get("utilisation")))
    if missing := [name for name, value in needed if value is None]:
        raise UserError(f"there is no {' and no '.join(missing)} of the job alone: write it, or leave its profile out.")
    return JobProfile(
        estimate_bytes,
        own["utilisation"],
        own.get("duration"),
        memory_bytes,
        own.get("provenance", "predicted"),
        own.get("note", ""),
    )
