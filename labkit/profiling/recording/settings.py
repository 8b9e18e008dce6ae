"""Which steps a profiler passes over and which it records, and what it writes down of them."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.errors import UserError, with_flag

CHATTER = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Variables that silence torch's profilers; the second one counts only where it is set before torch is imported."""


@dataclass(frozen=True)
class ProfileSettings:
    """The schedule of a profile."""

    skip: int = 20
    """Steps before the profiler starts. The later half of them is timed: what a step takes unprofiled"""
    warmup: int = 3
    """Steps under the profiler that do not count: its own start falls into them"""
    steps: int = 10
    """Steps that are recorded"""
    shapes: bool = True
    """Whether the sizes of inputs are recorded, from which arithmetic and bytes follow"""
    memory: bool = False
    """Whether each allocation is recorded"""

    def __post_init__(self):
        for name, least in (("skip", 2), ("warmup", 1), ("steps", 1)):
            if not least <= getattr(self, name) <= 100_000:
                raise UserError(
                    f"{with_flag(name)} is {getattr(self, name)}: give a whole number of at least {least}, such as "
                    f"{getattr(ProfileSettings, name)}."
                )

    def in_words(self) -> str:
        """The schedule in a sentence."""
        return (
            f"{self.skip} steps run unprofiled ({self.timed} are timed), {self.warmup} warm the profiler up, "
            f"{self.steps} are recorded"
        )

    @property
    def timed(self) -> int:
        """Steps that are timed unprofiled."""
        return (self.skip + 1) // 2
