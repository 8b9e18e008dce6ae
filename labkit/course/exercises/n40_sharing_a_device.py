"""Exercises of 40_sharing_a_device."""

from labkit.course.exercise import Exercise

_SPEEDS = (60 / 100, 20 / 50, 5 / 10)

EXERCISES = {
    "40.isolation": Exercise(
        "mig",
        hint="Which of them divides the hardware, and not only its time or its multiprocessors?",
        explanation="A MIG slice has its own part of the memory's channels and of the L2 cache; with MPS and time "
        "slices all jobs share them.",
        choices=("naive", "mps", "mig"),
    ),
    "40.overestimate": Exercise(
        111.8 / 1.47,
        relative=0.02,
        unit="times",
        hint="Divide what was predicted by what was measured.",
        explanation="76 times: on a GPU of 80 GB such a job would wait for ever.",
        mistakes={
            1.47 / 111.8: "That is the share that is needed; the question is the other way round.",
            111.8 - 1.47: "That is how much too much; the question is how many times.",
        },
    ),
    "40.gain": Exercise(
        sum(_SPEEDS),
        relative=0.01,
        unit="times",
        hint="Divide each job's speed together by its speed alone, then add up.",
        explanation="1.5: half as much again as one after another, though every job runs slower.",
        mistakes={
            85 / 160: "That adds up steps of different jobs, which are no common unit.",
            sum(_SPEEDS) / 3: "That is the mean speed of a job; the gain is what all do together.",
        },
    ),
    "40.fairness": Exercise(
        sum(_SPEEDS) ** 2 / (3 * sum(speed**2 for speed in _SPEEDS)),
        relative=0.005,
        hint="The speeds are 0.6, 0.4 and 0.5 of those alone; put them into the formula.",
        explanation="0.97: nearly even.",
        mistakes={
            85**2 / (3 * (60**2 + 20**2 + 5**2)): "Take the speeds relative to alone, not the steps a second.",
        },
    ),
}
