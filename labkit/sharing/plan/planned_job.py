"""One job of a plan: the script that trains, and what part of the device it asks for."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.jobs import JOBS
from labkit.tracking import SEED

NAME = re.compile(r"\w[\w.+-]{0,59}")
MIG_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb(?:[+-][\w.]+)*", re.IGNORECASE)
"""Compute slices, memory slices and extras, as `nvidia-smi mig -lgip` writes them: 3g.40gb, 1c.3g.40gb, 1g.10gb+me"""


@dataclass(frozen=True)
class PlannedJob:
    """One job. It is written as it was asked for; nothing of the machine is in it."""

    name: str
    """Unique among the jobs that run together; names its log file"""
    script: str
    """dlrm or speech, labkit's own; or the path of a Python file, from the working folder"""
    arguments: tuple[str, ...] = ()
    """Of the script, one an item, whatever they contain; {seed} stands for the seed"""
    seed: int = 0
    """Of this copy, where its arguments take one"""
    device: str | None = None
    """cpu, a GPU's or a slice's number or UUID; None takes the plan's"""
    cores: int | None = None
    """Of its partition in mode cpu-pinned; None takes an equal share"""
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
                f"name {self.name!r} names a file, too: use up to 60 letters, digits and . _ + - only, a letter or "
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
                f"mig_profile {self.mig_profile!r} is no MIG profile: write one such as 3g.40gb (`nvidia-smi mig "
                "-lgip` lists those of your GPU).",
                field="mig_profile",
            )
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise UserError(f"memory is {self.memory_bytes}: give a size above zero, such as 2GiB.", field="memory")

    @property
    def is_labkits(self) -> bool:
        """Whether its script is one of labkit's own."""
        return self.script in JOBS

    @property
    def takes_seed(self) -> bool:
        """Whether its arguments do."""
        return any(SEED in argument for argument in self.arguments)

    @property
    def label(self) -> str:
        """What it trains, in words: dlrm:tour, or the script's name."""
        if not self.is_labkits:
            return Path(self.script).name
        preset = self.arguments[self.arguments.index("--preset") + 1] if "--preset" in self.arguments else "tour"
        return f"{self.script}:{preset}"

    @property
    def job_key(self) -> tuple:
        """Equal for jobs that differ in name, seed and place only, which share one profile."""
        return (self.script, self.arguments)


def mix_words(labels: Iterable[str]) -> str:
    """Jobs that run together in words, most copies first.

    >>> mix_words(["speech:tour", "dlrm:tour", "dlrm:tour"])
    '2 × dlrm:tour + speech:tour'
    """
    counts = sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0]))
    return " + ".join(label if times == 1 else f"{times} × {label}" for label, times in counts)


def told_of_mix(mode: str, jobs: Sequence[PlannedJob], words: str | None = None) -> dict[str, Any]:
    """What the record of a run says of the jobs that it shared a device with, itself included."""
    keys = repr(sorted(repr(job.job_key) for job in jobs))
    return {
        "mode": mode,
        "jobs": mix_words(job.label for job in jobs) if words is None else words,
        "mix": hashlib.blake2s(keys.encode(), digest_size=3).hexdigest(),
    }
