"""Exercises of 31_the_observer_effect."""

from labkit.course.exercise import Exercise

_BASE_S = (48.7 + 48.3) / 2

EXERCISES = {
    "31.interval": Exercise(
        True,
        hint="Is 1, which means no effect at all, inside the interval?",
        explanation="The interval includes 1: a gain, a loss and no effect all agree with what was measured.",
    ),
    "31.pairs": Exercise(
        "drift",
        hint="What if all turns of one observer came first, while the machine grows warm or another program ends?",
        explanation="What changes slowly hits all observers of a round alike; the random order spreads the rest.",
        choices=("drift", "speed", "memory"),
    ),
    "31.nsys": Exercise(
        100 * (49.4 / _BASE_S - 1),
        relative=0.05,
        unit="%",
        hint="Divide 49.4 s by the mean of both baselines, and tell the difference from 1 in per cent.",
        explanation="About as much as two runs of the baseline differ by: one run tells little.",
        mistakes={
            49.4 / _BASE_S: "That is the ratio; the question is for per cent more.",
            49.4 - _BASE_S: "That is in seconds; the question is for per cent.",
            100 * 49.4 / _BASE_S: "That is per cent of the baseline; the question is for per cent more.",
        },
    ),
}
