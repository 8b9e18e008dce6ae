"""Exercises of 31_the_observer_effect."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from labkit_course.apparatus import FakeClock
from labkit_course.exercises.n02_budgets_that_bind import ratio_interval
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- a sampler


def sample(
    look: Callable, hz: float, seconds: float, clock: Callable = time.perf_counter, sleep: Callable = time.sleep
) -> list[float]:
    began, number, taken = clock(), 0, []
    while number < hz * seconds:
        sleep(max(0.0, began + number / hz - clock()))
        taken.append(clock() - began)
        look()
        number = max(number, int((clock() - began) * hz)) + 1  # what was missed is not made up for
    return taken


def _sampled(code: Any, hz: float, seconds: float, *looks_s: float) -> list[float]:
    clock = FakeClock()
    return code(clock.work(*looks_s), hz, seconds, clock, clock.sleep)


def _naive(pause: Callable[[float, float], float]) -> Any:
    """Sleeps so long after each look: `pause` of the period and of what the look took."""

    def code(look, hz, seconds, clock=time.perf_counter, sleep=time.sleep):
        began, taken = clock(), []
        while clock() - began < seconds:
            at = clock()
            taken.append(at - began)
            look()
            sleep(max(0.0, pause(1 / hz, clock() - at)))
        return taken

    return code


SAMPLE = WrittenExercise(
    sample,
    module="overhead",
    cases=(
        Case("looks of 2 ms at 100 Hz for a second", lambda code: _sampled(code, 100, 1.0, 2e-3)),
        Case("how many looks at 3 Hz in 2 s", lambda code: len(_sampled(code, 3, 2.0, 1e-3))),
        Case("one look of 47 ms at 100 Hz", lambda code: _sampled(code, 100, 0.2, *[1e-3] * 3, 0.047, 1e-3)),
        Case("looks of 15 ms at 100 Hz", lambda code: _sampled(code, 100, 0.2, 0.0153)),
    ),
    mistakes={
        _naive(lambda period, took: period): (
            "Each turn takes the period *and* the look, so the samples drift: wait until `began + number / hz`."
        ),
        _naive(lambda period, took: period - took): (
            "Each sleep takes a little too long, and that adds up: wait until a point in time, `began + number / hz`."
        ),
        ("max(number, int((clock() - began) * hz)) + 1", "number + 1"): (
            "After a look that took too long the missed samples come in a burst: leave them out, and go on at the next "
            "point that is still to come."
        ),
        ("max(0.0, began + number / hz - clock())", "began + number / hz - clock()"): (
            "A sleep of less than nothing is an error: max(0, ...)."
        ),
    },
    hint="Sample `number` is due at `began + number / hz`: sleep until then, note the time since `began`, look; "
    "the next number is the first that is still to come.",
    explanation="Sample n is due at n / hz, whatever the ones before it took.",
)

# --- a difference with its interval


def pairs_of(times: dict, tool: str) -> list[tuple]:
    return [
        (times[tools - {tool}], under) for tools, under in times.items() if tool in tools and tools - {tool} in times
    ]


TIMES = {frozenset(tools.split()): seconds for tools, seconds in (("", 10.0), ("a", 11.0), ("b", 10.5), ("a b", 12.0))}
MORE = TIMES | {frozenset({"a", "b", "c"}): 15.0, frozenset({"d", "c"}): 20.0}
PAIRS = WrittenExercise(
    pairs_of,
    module="overhead",
    cases=(
        Case("four runs, and the tool a", lambda code: sorted(code(TIMES, "a"))),
        Case("a tool that ran once, beside others", lambda code: sorted(code(MORE, "c"))),
        Case("a tool whose only run has no partner", lambda code: code(MORE, "d")),
        Case("four runs, and the tool b", lambda code: sorted(code(TIMES, "b"))),
    ),
    mistakes={
        ("times[tools - {tool}], under", "times[frozenset()], under"): (
            "A run with two tools differs from the bare one in two things: its partner is the run with all the others."
        ),
        ("tools - {tool} in times", "tools == {tool}"): (
            "Other pairs differ in this one tool, too: with and without it beside the same others."
        ),
        ("times[tools - {tool}], under", "under, times[tools - {tool}]"): "The run without the tool comes first.",
    },
    hint="For each set of tools that has this one: is there a run with the same set less this tool?",
    explanation="Compared things differ in one thing.",
)


def overhead(pairs: list[tuple]) -> tuple:
    alone, under = zip(*pairs, strict=True)
    if len(pairs) < 2:
        return under[0] / alone[0], float("nan"), float("nan")
    return ratio_interval(alone, under)


OVERHEAD = WrittenExercise(
    overhead,
    module="overhead",
    cases=(
        Case("two pairs", lambda code: code([(48.29, 48.40), (48.43, 48.37)])),
        Case("twelve pairs", lambda code: code([(10 + n, (10 + n) * (1.02 + 0.01 * (n % 3))) for n in range(12)])),
        Case("one pair", lambda code: code([(10.0, 12.0)])),
    ),
    mistakes={
        ("(alone, under)", "(under, alone)"): (
            "The time under the observer divided by the time alone, not the other way round."
        ),
        (
            "(alone, under)",
            "(*pairs)",
        ): "First all times alone, then all times under: zip(*pairs) turns pairs into both.",
        ('float("nan"), float("nan")', "None, None"): "NaN, not None: tables and figures leave it out.",
    },
    hint="`zip(*pairs)` gives the times alone and the times under, which your ratio_interval wants. One pair has no "
    "interval: NaN twice.",
    explanation="Ratios multiply, so their logarithms are what is averaged.",
)


def enough_pairs(spread: float, ratio: float) -> int:
    from math import log

    from scipy import stats

    wanted, pairs = abs(log(ratio)), 2
    while stats.t.ppf(0.975, pairs - 1) * spread / pairs**0.5 > wanted:
        pairs += 1
    return pairs


ENOUGH = WrittenExercise(
    enough_pairs,
    module="overhead",
    cases=(
        Case("a spread of 0.05, and 5 % longer", lambda code: code(0.05, 1.05)),
        Case("a spread of 0.02, and twice as long", lambda code: code(0.02, 2.0)),
        Case("a spread of 0.1, and 5 % longer", lambda code: code(0.1, 1.05)),
        Case("a spread of 0.05, and 10 % sooner", lambda code: code(0.05, 0.9)),
    ),
    mistakes={
        ("stats.t.ppf(0.975, pairs - 1)", "1.96"): (
            "1.96 is for many pairs; few need the t distribution, which itself depends on how many there are."
        ),
        ("pairs**0.5", "pairs"): "The interval shrinks with the root of the number of pairs.",
        ("return pairs", "return pairs - 1"): "One more: count pairs, not degrees of freedom.",
        ("abs(log(ratio))", "abs(log(ratio)) / 2"): (
            "The whole interval may be twice as wide: half of it has to be no more than the effect."
        ),
    },
    hint="Begin with 2 and add one while t(0.975, n − 1) · spread / √n is more than |log(ratio)|.",
    explanation="Half the effect needs about four times as many pairs.",
)


def next_run(runs: list[float]) -> tuple:
    import numpy as np
    from scipy import stats

    half = stats.t.ppf(0.975, len(runs) - 1) * np.std(runs, ddof=1) * (1 + 1 / len(runs)) ** 0.5
    return np.mean(runs) - half, np.mean(runs) + half


NEXT = WrittenExercise(
    next_run,
    module="overhead",
    cases=(
        Case("six runs", lambda code: code([48.66, 48.29, 48.06, 48.43, 48.40, 48.37])),
        Case("two runs", lambda code: code([48.66, 48.29])),
        Case("twenty runs", lambda code: code([10 + (7 * n % 13) / 10 for n in range(20)])),
    ),
    mistakes={
        ("(1 + 1 / len(runs))", "(1 / len(runs))"): (
            "That is where the *mean* lies; one more run strays by itself, too: √(1 + 1/n)."
        ),
        (" * (1 + 1 / len(runs)) ** 0.5", ""): "The mean itself is not known exactly: √(1 + 1/n) in place of 1.",
        ("stats.t.ppf(0.975, len(runs) - 1)", "1.96"): "1.96 is for many runs: take the t distribution.",
        lambda runs: (min(runs), max(runs)): "The range of a few runs is narrower than where the next may fall.",
    },
    hint="mean ± t · s · √(1 + 1/n), with t of scipy.stats.t at 0.975 and n − 1 degrees of freedom.",
    explanation="A single run outside it is a sign; one inside it tells nothing.",
)

EXERCISES = {
    "31.sample": SAMPLE,
    "31.overhead": OVERHEAD,
    "31.why_pairs": Explanation(
        (
            "numbers: the interval of one observer here, and whether it includes 1.",
            "why: what slow changes of the machine do to a difference, and what pairs and the random order do to that.",
            "trade-off: what more rounds or longer turns would cost, and what they would show.",
        ),
        "labkit's sampler at 10 Hz has an interval that includes 1 on the author's machine: no effect can be told from "
        "noise there. A machine that warms up or is shared slows all observers of one round alike: the ratio within a "
        "round loses that, and the random order spreads what changes within it. Four times as many rounds would halve "
        "the interval and take four times as long.",
    ),
    "31.enough": ENOUGH,
    "31.pairs": PAIRS,
    "31.next_run": NEXT,
    "31.why_nsys": Explanation(
        (
            "numbers: the run under nsys beside the run that differs in nsys alone, and where one more run may fall.",
            "why: what one run can tell, and which other tools ran beside it.",
            "trade-off: what it would take to know, and what to use meanwhile.",
        ),
        "The run under nsys took 49.40 s and the run with the same other tools (dcgmi, nvidia-smi, top) 48.37 s: 2.1 % "
        "longer, from one pair, which has no interval. Six runs without nsys say that one more would fall between "
        "about 47.8 and 48.9 s if no other tool costs anything, so 49.40 s is a sign; both baselines alone would allow "
        "44 to 53 s. A handful of pairs would settle it; memory and the report at the end are the surer cost.",
    ),
}
