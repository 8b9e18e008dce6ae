"""Exercises of 50_time_to_accuracy."""

from labkit.course.exercise import Exercise

EXERCISES = {
    "50.can_fall": Exercise(
        True,
        hint="Think of two runs, one fast and one slow, and a target that only the fast one reaches.",
        explanation="A slow run that no longer reaches the target drops out of the mean, and what is left is faster.",
    ),
    "50.waiting": Exercise(
        0.375,
        hint="At each crossing, multiply by the share of the runs still running at that moment that did not cross.",
        explanation="3/4 after 10 s; at 20 s two runs were still running and one crossed: 3/4 · 1/2.",
        mistakes={
            0.5: "Two of four did cross, but the run that ended at 15 s was not there any more at 20 s.",
            0.0: "That drops the runs that stopped short; they were running until they stopped.",
            0.75: "That is after 10 s; another run crossed at 20 s.",
            37.5: "As a share, not in per cent.",
        },
    ),
    "50.median": Exercise(
        20.0,
        relative=0.001,
        unit="seconds",
        hint="The median is the first time at which at most half of the runs are still waiting.",
        explanation="The curve is at 0.75 until 20 s, where it falls below one half.",
        mistakes={
            15.0: "That is the middle of the two runs that finished: the others count, too.",
            10.0: "After 10 s three quarters are still waiting.",
            17.5: "That is the middle of the four last times; at 15 s and 30 s no run crossed.",
        },
    ),
    "50.restarts": Exercise(
        13.0,
        unit="seconds",
        hint="All time spent, also by the runs that failed, over the number of successes.",
        explanation="33 s of successes and 6 s of failures are 39 s, for three successes.",
        mistakes={
            11.0: "That is the mean of the runs that got there; the failures took time, too.",
            7.8: "That shares the time among all five runs, and two of them bought nothing.",
        },
    ),
    "50.cost": Exercise(
        0.002,
        unit="US dollars",
        hint="Cost is hours × dollars an hour.",
        explanation="20 s are 20/3600 hours, at 0.36 dollars each.",
        mistakes={
            7.2: "The price is by the hour, and the time in seconds.",
            0.12: "An hour has 3600 seconds; 60 of them are a minute.",
            0.2: "That is in cents.",
        },
    ),
}
