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
    graph: bool = True
    """Whether one more step is recorded as a graph of operators (`torch.profiler.ExecutionTraceObserver`)"""

    def __post_init__(self):
        for name, least in (("skip", 2), ("warmup", 1), ("steps", 1)):
            if not least <= getattr(self, name) <= 100_000:
                raise UserError(
                    f"{with_flag(name)} is {getattr(self, name)}: give a whole number of at least {least}, such as "
                    f"{getattr(ProfileSettings, name)}."
                )

    def in_words(self) -> str:
        """The schedule in a sentence.

        >>> print(ProfileSettings(skip=4, steps=8).in_words())
        steps 1 to 4 run unprofiled (3 and 4 timed), 5 to 7 warm the profiler up, 8 to 15 are recorded
        """
        warm, recorded = self.skip + self.warmup, self.skip + self.warmup + self.steps
        first = self.skip - self.timed + 1
        return (
            f"steps 1 to {self.skip} run unprofiled ({_span(first, self.skip, ' and ')} timed), "
            f"{_span(self.skip + 1, warm)} warm{'s' * (self.warmup == 1)} the profiler up, "
            f"{_span(warm + 1, recorded)} {'are' if self.steps > 1 else 'is'} recorded"
        )

    @property
    def timed(self) -> int:
        """Steps that are timed unprofiled."""
        return (self.skip + 1) // 2


def _span(first: int, last: int, joint: str = " to ") -> str:
    if first == last:
        return str(first)
    return f"{first}{joint if last == first + 1 else ' to '}{last}"
