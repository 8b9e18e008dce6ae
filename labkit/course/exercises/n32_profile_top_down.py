"""Exercises of 32_profile_top_down."""

import torch

from labkit.course.exercise import Exercise
from labkit.course.slow_trainer import hits_one_by_one


def _hits(logit: torch.Tensor, label: torch.Tensor) -> int:
    return int(hits_one_by_one(logit, label))


EXERCISES = {
    "32.amdahl": Exercise(
        1 / (1 - 0.6),
        hint="What is left of a step of 1 when 0.6 of it takes no time any more? The gain is 1 over that.",
        explanation="However quick the input becomes, the other 40 % remain: no work on the input can beat this bound.",
        unit="times",
        mistakes={
            1.6: "That would be the gain if the rest grew shorter, too; only 60 % of the step vanishes.",
            0.4: "That is what is left of the step; the gain is 1 over it.",
        },
    ),
    "32.lookup": Exercise(
        True,
        hint="Index 3 of table 2 is row 2 × 500 + 3 of all tables together. Add to each column the row at which its "
        "table begins.",
        explanation="One call does the work of 64, and gives the same embeddings to the last bit.",
    ),
    "32.hits": Exercise(
        _hits,
        hint="Compare whole tensors: (logit > 0) and (label > 0.5) are tensors of truth values. Where are they equal?",
        explanation="Nothing is read from the tensors until somebody wants the sum.",
    ),
    "32.method": Exercise(
        "framework",
        hint="Which of them knows that a call belongs to the backward pass, and costs little?",
        explanation="First the framework's profiler, which knows phases and operators; a system profiler confirms; the "
        "kernel profiler, which repeats every kernel many times, comes last.",
        choices=("framework", "system", "kernel"),
    ),
}
