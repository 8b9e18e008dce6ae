"""Exercises of 00_start_here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from labkit_course.exercise import Exercise
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- time to target


def time_to_target(
    times: Sequence[float], values: Sequence[float], target: float, higher_is_better: bool = True
) -> float | None:
    for time, value in zip(times, values, strict=True):
        there = value >= target if higher_is_better else value <= target
        if there:
            return time
    return None


RISE = ([0.4, 0.9, 1.3, 1.8, 2.4], [0.55, 0.66, 0.71, 0.70, 0.73])
TIME_TO_TARGET = WrittenExercise(
    time_to_target,
    module="tta",
    cases=(
        Case("five evaluations, target 0.65", lambda code: code(*RISE, 0.65)),
        Case("a curve that falls below the target again", lambda code: code(*RISE, 0.702)),
        Case("a value that is exactly the target", lambda code: code(*RISE, 0.73)),
        Case("a target that is never met", lambda code: code(*RISE, 0.75)),
        Case("no evaluation at all", lambda code: code([], [], 0.5)),
        Case("an error rate, which falls", lambda code: code([1.0, 2.0, 3.0], [0.9, 0.5, 0.2], 0.5, False)),
    ),
    mistakes={
        ("in zip(times, values, strict=True)", "in zip(times[::-1], values[::-1])"): (
            "That is the last evaluation past the target: the first one is meant."
        ),
        lambda times, values, target, *_: times[np.abs(np.subtract(values, target)).argmin()]: (
            "That is the evaluation nearest to the target, which may lie short of it."
        ),
        ("return time\n", "return times[max(0, times.index(time) - 1)]\n"): (
            "That is the evaluation before: there the target is not met yet."
        ),
        lambda times, values, target, *_: np.interp(target, values, times): (
            "Do not interpolate: between two evaluations nobody knew the value."
        ),
        ("value >= target", "value > target"): "At the target counts: >=, not >.",
        ("return None", "return times[-1]"): (
            "A run that never gets there has no time to target: return None, not its last time."
        ),
        (" if higher_is_better else value <= target", ""): (
            "An error rate falls: without `higher_is_better` the target is met at or below it."
        ),
    },
    hint="Go through the pairs of time and value in order; return the first time whose value is at or past the target.",
    explanation="The first evaluation at or past the target, as labkit and MLPerf count; without one there is no time.",
)

# --- what the events say


def test_looks(events: Iterable[dict[str, Any]]) -> int:
    return sum(event["event"] == "tested" for event in events)


def _events(*kinds: str) -> list[dict[str, Any]]:
    return [{"event": kind, "wall_s": 1.0 + n, "train_s": 0.8 + 0.7 * n} for n, kind in enumerate(kinds)]


ONE_LOOK = _events("started", "evaluated", "evaluated", "target_reached", "tested", "ended")
PEEKING = _events("started", "evaluated", "tested", "evaluated", "tested", "evaluated", "tested", "ended")
TEST_LOOKS = WrittenExercise(
    test_looks,
    module="tta",
    cases=(
        Case("the events of a run with one look", lambda code: code(ONE_LOOK)),
        Case("a run that was tested after each evaluation", lambda code: code(PEEKING)),
        Case("a run that was stopped before its end", lambda code: code(_events("started", "evaluated"))),
    ),
    mistakes={
        ('"tested"', '"evaluated"'): (
            "Those are the evaluations of the validation split; the test split's event is `tested`."
        ),
        ("sum", "any"): "Count them: there may be several.",
        ('== "tested"', 'in ("tested", "evaluated")'): (
            "Only the looks at the test split: `evaluated` is the validation split, which may be looked at."
        ),
    },
    hint='Each event is a dict; count those whose event["event"] is "tested".',
    explanation="The target was watched on the validation split, so the test split could stay closed to the end.",
)


def evaluation_share(events: Iterable[dict[str, Any]]) -> float:
    last = [event for event in events if event["event"] == "evaluated"][-1]
    return 1 - last["train_s"] / last["wall_s"]


EVALUATION_SHARE = WrittenExercise(
    evaluation_share,
    module="tta",
    cases=(
        Case("the events of a run with two evaluations", lambda code: code(ONE_LOOK)),
        Case("a single evaluation", lambda code: code(_events("started", "evaluated", "ended"))),
        Case("a run of three evaluations", lambda code: code(PEEKING)),
    ),
    mistakes={
        ("[-1]", "[0]"): "That is after the first evaluation: both clocks add up, so read them at the last one.",
        ("1 - ", ""): "That is the share of training; the other part is wanted.",
        ('1 - last["train_s"] / last["wall_s"]', 'last["wall_s"] / last["train_s"] - 1'): (
            "A share of all the time: divide by wall_s."
        ),
    },
    hint="`wall_s` counts everything, `train_s` training alone, both from the start: what part of the last wall_s is "
    "not training?",
    explanation="What is looked at often costs time, and it is in the time to target, as whoever waits feels it.",
)

# --- money


def price_spread(prices: Iterable[float | None]) -> float:
    known = [price for price in prices if price is not None]
    return max(known) / min(known)


PRICE_SPREAD = WrittenExercise(
    price_spread,
    module="tta",
    cases=(
        Case("three prices", lambda code: code([0.5, 4.0, 1.0])),
        Case("one that is not known", lambda code: code([0.5, None, 4.0, 0.25])),
        Case("a single price", lambda code: code([None, 2.0])),
    ),
    mistakes={
        ("/", "-"): "How many times, not how much more.",
        ("max(known) / min(known)", "min(known) / max(known)"): (
            "The dearest over the cheapest, not the other way round."
        ),
        ("price for price in prices if price is not None", "price or 0 for price in prices"): (
            "No price is not a price of 0: leave None out."
        ),
        ("max(known) / min(known)", "known[-1] / known[0]"): (
            "The prices stand in no order: take the largest and the smallest."
        ),
    },
    hint="Leave out what is None; then the largest over the smallest.",
    explanation="Where no source was found the catalogue has no price, and says None: never 0.",
)

EXERCISES = {
    "00.time_to_target": TIME_TO_TARGET,
    "00.why_both": Explanation(
        rubric=(
            "numbers: gives two targets of one's own run with their times, and their ratio",
            "why: the curve flattens towards what is possible on the data",
            "trade-off: says what a comparison needs, the same target on the same data, or a time for several targets",
        ),
        model="On my run the harder of two targets that lie two hundredths apart took clearly longer than the easier "
        "one, because the curve flattens towards what can be learnt from this data. A time without its target, or an "
        "accuracy without its time, can therefore be made to look as good as one likes: compare two machines at the "
        "same target, better at several.",
    ),
    "00.evaluation_share": EVALUATION_SHARE,
    "00.test_looks": TEST_LOOKS,
    "00.cost": Exercise(
        lambda minutes, usd_per_h: minutes / 60 * usd_per_h,
        draw=lambda random: {
            "minutes": random.choice(range(21, 58, 3)),
            "usd_per_h": random.choice([0.08, 0.31, 0.59, 0.79, 1.48, 2.5]),
        },
        unit="US dollars",
        hint="Cost is hours × dollars an hour.",
        explanation="Whoever rents by the hour pays for time alone, whatever came out of it.",
        mistakes={
            lambda minutes, usd_per_h: minutes * usd_per_h: "The price is by the hour, and the time in minutes.",
            lambda minutes, usd_per_h: 100 * minutes / 60 * usd_per_h: "That is in cents.",
            lambda minutes, usd_per_h: usd_per_h / (minutes / 60): "Multiply the price by the hours, do not divide.",
        },
    ),
    "00.price_spread": PRICE_SPREAD,
}
