"""The pipelines and their settings. Nothing here loads a numerical library, so that a budget can bind one first."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from labkit import errors, jobs, tracking

STAGES = ("load", "clean", "features", "train", "serve")
"""Stages of every pipeline, in their order"""


@dataclass(frozen=True)
class PipelineJob(jobs.Job):
    """A pipeline over data of some size."""

    words: ClassVar[str]
    """What it does, for lists of pipelines"""
    items: ClassVar[str]
    """What it predicts something of, such as trips"""
    scale: float = 1.0
    """Size of the data; its generator's rows and bytes are proportional to it"""
    seed: int = 0
    """Seed of the data and the model"""

    def __post_init__(self) -> None:
        counts = [each.name for each in fields(self) if each.type is int and each.name != "seed"]
        self.refuse_unless_above_zero("scale", *counts)

    @classmethod
    def script(cls) -> Path:
        return Path(__file__).with_name(f"{cls.name}.py")

    def command(self, **harness: Any) -> "tracking.ScriptCommand":
        return tracking.ScriptCommand(str(self.script()), self.arguments, **harness)

    def config(self) -> dict[str, Any]:
        """Settings for the record of a run, in a section of their own."""
        return {"pipeline": self.all_settings()}


@dataclass(frozen=True)
class TripsJob(PipelineJob):
    name: ClassVar[str] = "trips"
    words: ClassVar[str] = "the kind of a shopping trip: features by group, boosted trees"
    items: ClassVar[str] = "trips"
    way: Literal["function", "pandas", "compiled", "polars", "duckdb"] = "pandas"
    """How the features are made"""
    processes: int = 1
    """Processes that make the features"""
    rounds: int = 10
    """Rounds of boosting"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.processes > 64:
            raise errors.wrong_value("processes", self.processes, "give at most 64.")


@dataclass(frozen=True)
class SpamJob(PipelineJob):
    name: ClassVar[str] = "spam"
    words: ClassVar[str] = "unwanted mails: cleaned text, counted words, naive Bayes"
    items: ClassVar[str] = "mails"
    buckets: int = 2**14
    """Columns into which words are hashed"""


@dataclass(frozen=True)
class SegmentsJob(PipelineJob):
    name: ClassVar[str] = "segments"
    words: ClassVar[str] = "customers of one kind: features by customer, k-means"
    items: ClassVar[str] = "customers"
    clusters: int = 4
    """Number of groups"""


@dataclass(frozen=True)
class FailuresJob(PipelineJob):
    name: ClassVar[str] = "failures"
    words: ClassVar[str] = "disks that fail within a week: rolling means of a time series, boosted trees"
    items: ClassVar[str] = "days of disks"
    rounds: int = 20
    """Rounds of boosting"""


@dataclass(frozen=True)
class CommandsJob(PipelineJob):
    name: ClassVar[str] = "commands"
    words: ClassVar[str] = "spoken commands: decoded audio, log-mel features, the kit's recogniser"
    items: ClassVar[str] = "utterances"
    epochs: int = 3
    """Epochs of training"""
    batch_size: int = 32
    """Utterances per step"""


PIPELINES: dict[str, type[PipelineJob]] = {
    kind.name: kind for kind in (TripsJob, SpamJob, SegmentsJob, FailuresJob, CommandsJob)
}
