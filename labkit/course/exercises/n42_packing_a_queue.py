"""Exercises of 42_packing_a_queue."""

from labkit.course.exercise import Exercise

EXERCISES = {
    "42.gain": Exercise(
        100 * (2 / 1.6 - 1),
        unit="%",
        hint="Together the device does 1 / 1.6 of a job's work a second for each of the two. Compare that sum with 1.",
        explanation="2 / 1.6 = 1.25 times the work, though each job takes 1.6 times as long: the queue gains, each job "
        "loses.",
        mistakes={
            60: "That is how much longer each job takes; the question is for the work of both together.",
            1.25: "That is the ratio; the question is for per cent more.",
        },
    ),
    "42.fit": Exercise(
        "small",
        hint="Best-fit leaves as little free memory as it can on the device that it chooses.",
        explanation="1 GiB is left there, and 5 GiB stay together elsewhere for a job that needs them.",
        choices=("small", "large"),
    ),
    "42.recovery": Exercise(
        0.05 * 600 + 600,
        unit="s",
        hint="Nothing of the first attempt is kept: add what it took to the whole of the second.",
        explanation="An early end costs little. Worse is that nobody may share the device meanwhile.",
        mistakes={
            600: "The first attempt took time, too.",
            30: "That is the first attempt alone.",
        },
    ),
}
