"""Exercises of 50_time_to_accuracy. A run that failed has time inf, one that was cut off the time of its cut."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

Curve = list[tuple[float, float]]

# --- the time of a run


def run_times(runs: pd.DataFrame) -> pd.Series:
    times = runs["time_to_target_s"].copy()  # NaN where it has not crossed
    cut = runs["outcome"] == "censored"
    times[cut] = runs["last_time_s"][cut]
    return times.fillna(math.inf)


def _times_of(*outcomes: str) -> Any:
    """Of runs that end after 10, 11, 12 ... s, and a second after their crossing."""
    last = pd.Series(range(10, 10 + len(outcomes)), dtype=float)
    crossed = (last - 1).where([each == "reached" for each in outcomes])
    columns = {"outcome": outcomes, "time_to_target_s": crossed, "last_time_s": last}
    return lambda code: list(code(pd.DataFrame(columns)))


TIMES = WrittenExercise(
    run_times,
    module="tta",
    cases=(
        Case("two that arrive, one that is cut off", _times_of("reached", "censored", "reached")),
        Case("one that is cut off, one that fails and one that arrives", _times_of("censored", "failed", "reached")),
        Case("two that fail", _times_of("failed", "failed")),
    ),
    mistakes={
        ('runs["last_time_s"][cut]', "math.inf"): (
            "A run that was cut off may still have got there: what is known is that it takes longer than its last time."
        ),
        ("math.inf", 'runs["last_time_s"]'): "A run that failed would never have got there: its time is inf.",
        (".fillna(math.inf)", ""): "NaN is no time: a run that failed has inf.",
        (".fillna(math.inf)", ".dropna()"): "Do not leave out runs that failed: give as many times as there are runs.",
    },
    hint='time_to_target_s is NaN of all that did not arrive: put last_time_s where outcome is "censored", then fill '
    "the rest with math.inf.",
    explanation="Arrived, cut off or failed: each run has a time, and none is dropped.",
)

# --- Kaplan-Meier


def waiting(times: Sequence[float], reached: Sequence[bool]) -> Curve:
    share, curve = 1.0, [(0.0, 1.0)]
    for time in sorted({t for t, r in zip(times, reached, strict=True) if r}):
        at_risk = sum(t >= time for t in times)
        crossed = sum(t == time and r for t, r in zip(times, reached, strict=True))
        share *= 1 - crossed / at_risk
        curve.append((time, share))
    return curve


FOUR = ([10.0, 15.0, 20.0, 30.0], [True, False, True, False])
WAITING = WrittenExercise(
    waiting,
    module="tta",
    cases=(
        Case("three runs that all arrive", lambda code: code([12.0, 10.0, 11.0], [True] * 3)),
        Case("arrivals after 10 and 20 s, cuts after 15 and 30 s", lambda code: code(*FOUR)),
        Case("a run that failed: its time is inf", lambda code: code([3.0, math.inf, 2.0], [True, False, True])),
        Case("two that arrive at the same time", lambda code: code([5.0, 4.0, 5.0, 6.0], [True] * 4)),
        Case("one that is cut off just when another arrives", lambda code: code([5.0, 5.0, 7.0], [True, False, True])),
        Case("none that arrives", lambda code: code([8.0, math.inf], [False, False])),
    ),
    mistakes={
        ("t >= time for t in times", "t >= time and r for t, r in zip(times, reached, strict=True)"): (
            "Those are the finished runs alone: the others were waiting, too."
        ),
        ("t >= time for", "time <= t < math.inf for"): (
            "A run that failed waits for ever: it stays at risk to the end."
        ),
        ("t >= time for t in times", "t >= time or not r for t, r in zip(times, reached, strict=True)"): (
            "A run that was cut off is not at risk after its cut: count the times from this one on."
        ),
        lambda times, reached: waiting(times, [math.isfinite(t) for t in times]): (
            "A cut is no crossing: the curve falls only where a run arrives."
        ),
        ("t >= time for t in times", "t > time or r and t == time for t, r in zip(times, reached, strict=True)"): (
            "Who is cut off at the very time is still at risk then: t >= time."
        ),
        (
            "curve.append((time, share))",
            "curve += [(time, share)] * crossed",
        ): "Two arrivals at one time are one step of the curve.",
        ("return curve", "return curve[1:]"): "The curve begins at (0.0, 1.0).",
    },
    hint="At each time of a crossing: at risk are the runs whose time is that or later; multiply the share by "
    "1 − crossed / at risk.",
    explanation="Failed runs hold the curve up for ever; those cut off count as long as they were seen.",
)


def median_time(curve: Curve) -> float:
    for time, share in curve:
        if share <= 0.5:
            return time
    return math.inf


MEDIAN = WrittenExercise(
    median_time,
    module="tta",
    cases=(
        Case(
            "a curve through one half",
            lambda code: code([(0.0, 1.0), (10.0, 0.75), (20.0, 0.4), (25.0, 0.2), (30.0, 0.1)]),
        ),
        Case("one that rests exactly at one half", lambda code: code([(0.0, 1.0), (4.0, 0.5), (9.0, 0.0)])),
        Case("one that stays above one half", lambda code: code([(0.0, 1.0), (4.0, 0.8), (9.0, 0.6)])),
    ),
    mistakes={
        ("<= 0.5", "< 0.5"): "At most one half: <=.",
        ("math.inf", "time"): (
            "Where more than half never arrive there is no median: inf, not the last time that was seen."
        ),
        lambda curve: curve[len(curve) // 2][0]: "Not the middle of the list: the first time where the share is low.",
        lambda curve: next((t for t, share in reversed(curve) if share > 0.5), math.inf): (
            "That is the step before: there more than half are still waiting."
        ),
    },
    hint="Go along the curve; return the first time whose share is at most 0.5, and math.inf if there is none.",
    explanation="It needs no run that failed to have a time: only that more than half arrive.",
)

# --- how often, and what it costs


def success_interval(reached: int, runs: int) -> tuple[float, float]:
    share, z = reached / runs, 1.96
    middle = share + z**2 / (2 * runs)
    half = z * math.sqrt(share * (1 - share) / runs + z**2 / (4 * runs**2))
    return (middle - half) / (1 + z**2 / runs), (middle + half) / (1 + z**2 / runs)


def _wald(reached: int, runs: int) -> tuple[float, float]:
    share = reached / runs
    half = 1.96 * math.sqrt(share * (1 - share) / runs)
    return share - half, share + half


SUCCESS = WrittenExercise(
    success_interval,
    module="tta",
    cases=(
        Case("33 of 50", lambda code: list(code(33, 50))),
        Case("all of 5", lambda code: list(code(5, 5))),
        Case("none of 3", lambda code: [1 + each for each in code(0, 3)]),
    ),
    mistakes={
        _wald: "That is share ± 1.96 standard errors, which says of 5 successes in 5 that nothing is unknown.",
        lambda reached, runs: tuple(100 * each for each in success_interval(reached, runs)): "Shares, not per cent.",
        lambda reached, runs: tuple(each * (1 + 1.96**2 / runs) for each in success_interval(reached, runs)): (
            "Both ends are divided by 1 + z²/n."
        ),
    },
    hint="With p = reached / runs: (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n).",
    explanation="Wilson's interval (1927): five of five may still be four of seven.",
)


def expected_cost_usd(spent_s: Sequence[float], reached: Sequence[bool], usd_per_h: float) -> float:
    if not any(reached):
        return math.inf
    return sum(spent_s) / sum(reached) / 3600 * usd_per_h


COST = WrittenExercise(
    expected_cost_usd,
    module="tta",
    cases=(
        Case("two that arrive", lambda code: code([1800.0, 5400.0], [True, True], 0.5)),
        Case("three that arrive, two that diverge", lambda code: code([10, 11, 12, 3, 3], [1, 1, 1, 0, 0], 0.36)),
        Case("none that arrives", lambda code: code([10.0, 11.0], [False, False], 0.36)),
    ),
    mistakes={
        ("sum(spent_s)", "sum(s for s, r in zip(spent_s, reached, strict=True) if r)"): (
            "The failures took time, too, and somebody pays for it."
        ),
        ("sum(reached)", "len(reached)"): "Shared by the successes only: a failure has bought nothing.",
        ("3600", "60"): "An hour has 3,600 seconds.",
        (" / 3600", ""): "The price is by the hour, and the time in seconds.",
        ("return math.inf", "reached = [True]"): "No success at any price: inf, where none arrives.",
    },
    hint="All seconds that were spent, over the number of successes; by 3,600, times the price. Without a success inf.",
    explanation="The expected cost if each run that fails is started anew, until one gets there.",
)

# --- other people's runs


def hours_to_target(epochs: np.ndarray, seconds_per_epoch: np.ndarray) -> np.ndarray:
    hours = np.asarray(epochs) * seconds_per_epoch / 3600
    return np.where(np.isnan(hours), np.inf, hours)


def _hours(*epochs: float) -> Any:
    """Of runs on GPUs that are drawn anew."""
    seconds = np.random.default_rng(len(epochs)).integers(1000, 9000, len(epochs)).astype(float)
    return lambda code: code(np.array(epochs), seconds)


HOURS = WrittenExercise(
    hours_to_target,
    module="tta",
    cases=(
        Case("three runs that arrive", _hours(7.0, 6.0, 8.0)),
        Case("four, and one that did not arrive: NaN epochs", _hours(14.0, math.nan, 13.0, 9.0)),
        Case("none that arrived", _hours(math.nan, math.nan)),
    ),
    mistakes={
        ("np.where(np.isnan(hours), np.inf, hours)", "hours"): (
            "A run that came to the end of its epochs has failed: its time is inf. NaN is left out of means unseen."
        ),
        (" / 3600", ""): "Hours: 3,600 seconds each.",
        ("np.inf", "0"): "0 hours is the best of times.",
        ("np.where(np.isnan(hours), np.inf, hours)", "hours[~np.isnan(hours)]"): (
            "Do not leave out runs that failed: give as many times as there are runs."
        ),
    },
    hint="epochs × seconds an epoch / 3,600; then np.where(np.isnan(...), np.inf, ...).",
    explanation="The time is put together of two measurements: epochs by seed, seconds an epoch by GPU.",
)


def sooner_percent(hours: Mapping[str, float], platform: str) -> dict[str, float]:
    return {other: 100 * (1 - hours[platform] / took) for other, took in hours.items() if other != platform}


SOONER = WrittenExercise(
    sooner_percent,
    module="tta",
    cases=(
        Case("three platforms", lambda code: code({"a": 6.0, "b": 8.0, "c": 18.0}, "a")),
        Case("one that never arrives", lambda code: code({"a": 6.0, "b": math.inf}, "a")),
        Case("the slowest of two", lambda code: code({"a": 6.0, "b": 8.0}, "b")),
    ),
    mistakes={
        ("(1 - hours[platform] / took)", "(took / hours[platform] - 1)"): (
            "That is how much longer the other takes: sooner is a share of the other's time."
        ),
        ("(1 - hours[platform] / took)", "hours[platform] / took"): (
            "That is the share of the time it takes; sooner is what is saved."
        ),
        ("100 * ", ""): "In per cent.",
        (" if other != platform", ""): "Leave the platform itself out.",
    },
    hint="100 × (1 − own time / other's time), for each of the others.",
    explanation="60 % sooner is 2.5 times as fast: say which of the two you mean.",
)


def fit_log_time(hours: np.ndarray, covariates: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones(len(hours)), covariates])
    return np.linalg.lstsq(design, np.log(hours), rcond=None)[0]


def _drawn(count: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(count)
    covariates = random.normal(size=(count, width))
    return np.exp(1 + covariates @ np.linspace(-0.5, 0.7, width) + 0.1 * random.normal(size=count)), covariates


FIT = WrittenExercise(
    fit_log_time,
    module="tta",
    cases=(
        Case("30 runs, two covariates", lambda code: code(*_drawn(30, 2))),
        Case("five covariates", lambda code: code(*_drawn(80, 5))),
    ),
    mistakes={
        ("np.log(hours)", "hours"): "It is the logarithm of the time that is linear: effects multiply.",
        ("np.ones(len(hours)), ", ""): "A column of ones is missing: the time where all covariates are 0.",
        lambda hours, covariates: np.exp(fit_log_time(hours, covariates)): (
            "Return the coefficients; whoever wants factors takes exp of them."
        ),
        ("[0]", "[0][1:]"): "The constant comes first, and is wanted, too.",
    },
    hint="np.column_stack of ones and covariates; np.linalg.lstsq against np.log(hours).",
    explanation="An accelerated failure time model with log-normal times; cut-off runs take a likelihood.",
)

EXERCISES = {
    "50.times": TIMES,
    "50.waiting": WAITING,
    "50.median": MEDIAN,
    "50.success": SUCCESS,
    "50.why_mean_lies": Explanation(
        rubric=(
            "numbers: gives the mean of the finished runs and the share it leaves out, at an easy and at a hard target",
            "why: the slow runs are the first that no longer arrive, so those that stay are a chosen part",
            "trade-off: says what to report in its place (median of all, success rate, cost) and what that cannot say",
        ),
        model="At the hard target the mean covers only those runs that got there, and does not tell which share it "
        "leaves out. The slow ones fall out first, so the mean can stay or fall while the target gets harder, and a "
        "method that fails often looks fast. The median over all runs with the success rate says both, and where "
        "more than half fail there is no median, which is an answer, too.",
    ),
    "50.cost": COST,
    "50.hours": HOURS,
    "50.sooner": SOONER,
    "50.why_batch": Explanation(
        rubric=(
            "numbers: compares one platform at its largest and at its best batch, at two targets",
            "why: ratio of times = ratio of epoch times × ratio of epochs, and large batches take more epochs",
            "trade-off: a common batch compares hardware, each one's best compares what one would really do",
        ),
        model="With one batch the epochs to a target are the same everywhere, so the ratio of times is that of the "
        "epoch times at every target, whatever the paper saw. Each at its largest batch, the P100 takes 0.98 times as "
        "long as the A40 at 0.65 and 1.57 times at 0.40, at the best ones 3.8 and 3.9 times: past some tens of "
        "utterances an epoch gets hardly faster and more of them are needed, and the largest batches never reach the "
        "hardest target, where the smallest card does. A common batch compares hardware; each one's best compares "
        "what a user would do with it.",
    ),
    "50.fit": FIT,
}
