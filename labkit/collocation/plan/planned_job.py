"""One job of a plan: what is trained, and what part of the device it asks for."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labkit.errors import UserError

KINDS = ("dlrm", "speech", "script")
NAME = re.compile(r"\w[\w.+-]{0,59}")
MIG_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb(?:[+-][\w.]+)*", re.IGNORECASE)
"""Compute slices, memory slices and extras, as `nvidia-smi mig -lgip` writes them: 3g.40gb, 1c.3g.40gb, 1g.10gb+me"""


@dataclass(frozen=True)
class PlannedJob:
    """One job. It is written as it was asked for; nothing of the machine is in it."""

    name: str
    """Unique among the jobs that run together; names its log file"""
    kind: str
    """dlrm, speech or script"""
    request: dict[str, Any] = field(default_factory=dict)
    """Fields of TrainRequest but `job`; empty for a script"""
    script: str | None = None
    """Path of a Python file, from the working folder; scripts only"""
    arguments: tuple[str, ...] = ()
    """Of the script, one an item, whatever they contain"""
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
                f"{self._at}name {self.name!r} names a file, too: use up to 60 letters, digits and . _ + - only, "
                "a letter or digit first."
            )
        if self.kind not in KINDS:
            raise UserError(f"{self._at}job {self.kind!r} is unknown: choose one of {', '.join(KINDS)}.")
        if (self.kind == "script") != (self.script is not None):
            raise UserError(
                f"{self._at}a job of kind {self.kind} {'needs' if self.script is None else 'has no'} script."
            )
        if self.cores is not None and self.cores < 1:
            raise UserError(f"{self._at}cores is {self.cores}: give a whole number from 1.")
        if self.gpu_percent is not None and not 0 < self.gpu_percent <= 100:
            raise UserError(f"{self._at}gpu_percent is {self.gpu_percent:g}: give a number above 0 and up to 100.")
        if self.mig_profile is not None and not MIG_PROFILE.fullmatch(self.mig_profile):
            raise UserError(
                f"{self._at}mig_profile {self.mig_profile!r} is no MIG profile: write one such as 3g.40gb "
                "(`nvidia-smi mig -lgip` lists those of your GPU)."
            )
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise UserError(f"{self._at}memory is {self.memory_bytes}: give a size above zero, such as 2GiB.")

    @property
    def _at(self) -> str:
        return f"{self.where}: " if self.where else ""

    @property
    def label(self) -> str:
        """What it trains, in words: dlrm:tour, or the script's name."""
        return Path(self.script).name if self.script else f"{self.kind}:{self.request.get('preset', 'tour')}"

    @property
    def likeness(self) -> tuple:
        """Equal for jobs that differ in name, seed and place only, which share one profile."""
        settings = {name: value for name, value in self.request.items() if name != "seed"}
        return (self.kind, self.script, self.arguments, tuple(sorted(settings.items())))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return asdict(self) | {"arguments": list(self.arguments)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PlannedJob:
        return cls(**values | {"arguments": tuple(values["arguments"])})
