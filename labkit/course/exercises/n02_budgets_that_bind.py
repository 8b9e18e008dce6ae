"""Exercises of 02_budgets_that_bind."""

from labkit.course.exercise import Exercise

_T4, _H100_SXM = 8.1, 66.9
"""FP32 peaks in TFLOP/s, as the notebook gives them."""

EXERCISES = {
    "02.percent": Exercise(
        100 * _T4 / _H100_SXM,
        relative=0.02,
        unit="%",
        hint="What share of the H100's arithmetic does a T4 have, in per cent?",
        explanation="That many of the multiprocessors, with all of the bandwidth: the rest of a T4 is not emulated.",
        mistakes={
            _T4 / _H100_SXM: "That is a share of 1; MPS wants per cent.",
            100 * _H100_SXM / _T4: "The other way round: the budget makes the H100 smaller.",
            100 * 320 / 3350: "That is the ratio of the bandwidths, which MPS does not divide.",
        },
    ),
    "02.faster": Exercise(
        "too fast",
        hint="What does the job wait for, and does the budget take any of that away?",
        explanation="It waits for memory, and the budget leaves it more of that than the board has.",
        choices=("too fast", "too slow", "as fast"),
    ),
    "02.mapped": Exercise(
        True,
        hint="The pages of a mapped file can be read again from the disk: what can the kernel do with them?",
        explanation="Pages of a file are given back when memory is short, or not counted at all. What a process makes "
        "itself has nowhere else to go.",
    ),
}
