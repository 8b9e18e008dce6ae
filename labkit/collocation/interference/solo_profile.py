"""What a job is when it has a device to itself: the one thing that predictions are made from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.runs.atomic import replace_text
from labkit.training.request import TrainRequest

FORMAT = 1
OF_THE_PLACE = ("seed", "job", "device", "budget", "sample_hz")
"""Settings of a request that do not change what a step does."""


@dataclass(frozen=True)
class SoloProfile:
    """One job alone. What is not known is None, and `missing` says why."""

    job: str
    """In words: dlrm:tour, or the script's name"""
    likeness: str
    """Equal for jobs that share a profile (`likeness_of`)"""
    device: str
    """Name of the CPU or GPU that it ran on"""
    cores: int
    """CPU cores that it could use"""
    provenance: str
    """measured, recorded or emulated"""
    step_time_ms: float
    """On the whole device; on a CPU with threads that wait passively, as beside others"""
    cpu_share: float | None = None
    """CPU time of its threads, of all cores' time: 0 to 1"""
    threads: int | None = None
    """That computed"""
    step_time_alone_ms: float | None = None
    """On a CPU as mode alone has it, with threads that wait busily; None where that makes no difference"""
    step_time_one_core_ms: float | None = None
    """With one thread on one core"""
    step_time_crowded_ms: float | None = None
    """With all its threads on half of the cores, where they must take turns"""
    flop_per_step: float | None = None
    """Floating-point operations, of the operators that have a formula"""
    bytes_per_step: float | None = None
    """Read and written by these operators, as if nothing stayed in a cache between two of them"""
    arithmetic_share: float | None = None
    """Operations a second, of the machine's most"""
    bandwidth_share: float | None = None
    """Bytes a second, of the bandwidth of the machine's memory; caches can make it more than 1"""
    working_set_bytes: float | None = None
    """Bytes that a step touches: no more than it moves, nor than the job holds"""
    memory_bytes: int | None = None
    """Most that it held: resident memory, or on a GPU what torch reserved"""
    gpu_busy: float | None = None
    """Share of the time in which a kernel ran: 0 to 1"""
    sm_active: float | None = None
    """Multiprocessors that had work, averaged over all and the time: 0 to 1"""
    sm_occupancy: float | None = None
    """Warps that were resident, of the most there can be: 0 to 1"""
    dram_active: float | None = None
    """Share of the GPU memory's peak bandwidth: 0 to 1"""
    missing: dict[str, str] = field(default_factory=dict)
    """Why, of each field that is None"""

    @property
    def alone_ms(self) -> float:
        """A step's time in mode alone."""
        return self.step_time_alone_ms or self.step_time_ms

    @property
    def steps_per_s(self) -> float:
        return 1000 / self.alone_ms

    def need(self, *names: str) -> list[float]:
        """The values of fields that a prediction cannot do without.

        Raises:
            UserError: one is not known.
        """
        for name in names:
            if getattr(self, name) is None:
                why = self.missing.get(name, "it was not measured")
                raise UserError(
                    f"{self.job} on {self.device}: its profile has no {name} ({why}), without which nothing can be "
                    "predicted for this mode: profile it alone on a machine that tells, or choose another mode."
                )
        return [getattr(self, name) for name in names]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> SoloProfile:
        """Read what `save` wrote.

        Raises:
            UserError: there is no such file, or it is damaged.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            values.pop("format")
            return cls(**values)
        except FileNotFoundError:
            raise UserError(f"{path}: there is no such profile: make one with profile_alone.") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: this profile is damaged ({error}): delete it, and profile the job again."
            ) from None


def likeness_of(job: PlannedJob) -> str:
    """A short text that is equal for jobs that differ in name, seed and place only.

    >>> one, other = (PlannedJob(name, "dlrm", {"preset": "tour", "seed": seed}) for name, seed in (("a", 1), ("b", 2)))
    >>> likeness_of(one) == likeness_of(other) != likeness_of(PlannedJob("c", "dlrm", {"batch_size": 64}))
    True
    """
    kind, script, arguments, settings = job.likeness
    usual = {each.name: each.default for each in fields(TrainRequest)}
    told = {name: value for name, value in settings if name not in OF_THE_PLACE and value != usual.get(name)}
    text = json.dumps([kind, script, list(arguments), told], sort_keys=True, default=str)
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()


def job_of_request(request: dict[str, Any]) -> PlannedJob:
    """The planned job of a run's recorded request."""
    return PlannedJob("recorded", request["job"], {name: value for name, value in request.items() if name != "job"})
