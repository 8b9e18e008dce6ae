"""Exercises of 50_time_to_accuracy."""

from labkit.course.exercise import NUMBER, YES_NO, Exercise, Mistake

EXERCISES = (
    Exercise(
        "50.can_fall",
        YES_NO,
        True,
        hint="Think of two runs, one fast and one slow, and a target that only the fast one reaches.",
        explanation="A slow run that no longer reaches the target drops out of the mean, and what is left is faster.",
    ),
    Exercise(
        "50.waiting",
        NUMBER,
        0.375,
        hint="At each crossing, multiply by the share of the runs still running at that moment that did not cross.",
        explanation="3/4 after 10 s; at 20 s two runs were still running and one crossed: 3/4 · 1/2.",
        mistakes=(
            Mistake(0.5, "Two of four did cross, but the run that ended at 15 s was not there any more at 20 s."),
            Mistake(0.0, "That drops the runs that stopped short; they were running until they stopped."),
            Mistake(0.75, "That is after 10 s; another run crossed at 20 s."),
            Mistake(37.5, "As a share, not in per cent."),
        ),
    ),
    Exercise(
        "50.median",
        NUMBER,
        20.0,
        relative=0.001,
        unit="seconds",
        hint="The median is the first time at which at most half of the runs are still waiting.",
        explanation="The curve is at 0.75 until 20 s, where it falls below one half.",
        mistakes=(
            Mistake(15.0, "That is the middle of the two runs that finished: the others count, too."),
            Mistake(10.0, "After 10 s three quarters are still waiting."),
            Mistake(17.5, "That is the middle of the four last times; at 15 s and 30 s no run crossed."),
        ),
    ),
    Exercise(
        "50.restarts",
        NUMBER,
        13.0,
        unit="seconds",
        hint="All time spent, also by the runs that failed, over the number of successes.",
        explanation="33 s of successes and 6 s of failures are 39 s, for three successes.",
        mistakes=(
            Mistake(11.0, "That is the mean of the runs that got there; the failures took time, too."),
            Mistake(7.8, "That shares the time among all five runs, and two of them bought nothing."),
        ),
    ),
    Exercise(
        "50.cost",
        NUMBER,
        0.002,
        unit="US dollars",
        hint="Cost is hours × dollars an hour.",
        explanation="20 s are 20/3600 hours, at 0.36 dollars each.",
        mistakes=(
            Mistake(7.2, "The price is by the hour, and the time in seconds."),
            Mistake(0.12, "An hour has 3600 seconds; 60 of them are a minute."),
            Mistake(0.2, "That is in cents."),
        ),
    ),
)
