"""What a job is when it has a device to itself: the one thing that predictions are made from."""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit.errors import UserError


@dataclass(frozen=True)
class SoloProfile:
    """One job alone. What is not known is None, and `missing` says why."""

    job: str
    """In words: dlrm:tour, or the script's name"""
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
