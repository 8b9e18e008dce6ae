"""Exercises of 00_start_here."""

from labkit.course.exercise import Exercise

EXERCISES = {
    "00.provenance": Exercise(
        "emulated",
        hint="A run on all of a machine is measured; look at what the budgets cell prints beside one-core.",
        explanation="Part of a larger machine stands in for a small one, whose caches and memory may differ.",
        choices=("measured", "recorded", "emulated", "predicted"),
        mistakes={
            "measured": "It ran, but not on a machine with one core: on one core of a larger one.",
            "predicted": "Nothing was computed from a model: the run took place.",
            "recorded": "That is for runs of another machine that are only shown here.",
        },
    ),
    "00.cost": Exercise(
        0.30,
        unit="US dollars",
        hint="Cost is hours × dollars an hour.",
        explanation="45 minutes are 0.75 hours, and 0.75 × 0.40 is 0.30.",
        mistakes={
            18.0: "The price is by the hour, and 45 are minutes.",
            30.0: "That is in cents.",
            0.4 / 0.75: "Multiply the price by the hours, do not divide.",
        },
    ),
    "00.test_looks": Exercise(
        lambda events: sum(event["event"] == "tested" for event in events),
        hint="Count the lines of events.jsonl whose event is `tested`.",
        explanation="The target was watched on the validation split, so the test split could stay closed to the end.",
        mistakes={
            lambda events: sum(
                event["event"] == "evaluated" for event in events
            ): "Those are the evaluations of the validation split; the test split's event is `tested`.",
            0: "Look at the last lines: the test split is scored when the run has ended.",
        },
    ),
}
