"""Exercises of 31_the_observer_effect."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import fmean, stdev
from typing import Any

from labkit.course.explanation import Explanation
from labkit.course.fake_clock import FakeClock
from labkit.course.written import Case, WrittenExercise

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


def _bursts(look, hz, seconds, clock=time.perf_counter, sleep=time.sleep):
    began, taken = clock(), []
    for number in range(math.ceil(hz * seconds)):
        sleep(max(0.0, began + number / hz - clock()))
        taken.append(clock() - began)
        look()
    return taken


def _negative(look, hz, seconds, clock=time.perf_counter, sleep=time.sleep):
    return sample(look, hz, seconds, clock, lambda pause: sleep(pause or -1.0))


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
        (_naive(lambda period, took: period)): (
            "Each turn takes the period *and* the look, so the samples drift: wait until `began + number / hz`."
        ),
        (_naive(lambda period, took: period - took)): (
            "Each sleep takes a little too long, and that adds up: wait until a point in time, `began + number / hz`."
        ),
        (_bursts): (
            "After a look that took too long the missed samples come in a burst: leave them out, and go on at the next "
            "point that is still to come."
        ),
        (_negative): ("A sleep of less than nothing is an error: max(0, ...)."),
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
        (lambda times, tool: [(times[frozenset()], each) for tools, each in times.items() if tool in tools]): (
            "A run with two tools differs from the bare one in two things: its partner is the run with all the others."
        ),
        (lambda times, tool: [(times[frozenset()], times[frozenset({tool})])] if frozenset({tool}) in times else []): (
            "Other pairs differ in this one tool, too: with and without it beside the same others."
        ),
        (lambda times, tool: [(under, alone) for alone, under in pairs_of(times, tool)]): (
            "The run without the tool comes first."
        ),
    },
    hint="For each set of tools that has this one: is there a run with the same set less this tool?",
    explanation="Compared things differ in one thing.",
)


def overhead(pairs: list[tuple]) -> tuple:
    import numpy as np
    from scipy import stats

    logs = np.log([under / alone for alone, under in pairs])
    if len(logs) < 2:
        return np.exp(logs.mean()), np.nan, np.nan
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
    return tuple(np.exp([logs.mean(), logs.mean() - half, logs.mean() + half]))


def _overhead(*, t: bool = True, root: bool = True, log: bool = True, exp: bool = True, flip: bool = False) -> Any:
    def code(pairs: list[tuple]) -> tuple[float, float, float]:
        from scipy import stats

        turned = [pair[::-1] for pair in pairs] if flip else pairs
        values = [math.log(b / a) if log else b / a for a, b in turned]
        if len(values) < 2:
            return overhead(turned) if log and exp else (fmean(values), math.nan, math.nan)
        factor = stats.t.ppf(0.975, len(values) - 1) if t else 1.96
        half = factor * stdev(values) / (len(values) ** 0.5 if root else 1)
        found = fmean(values), fmean(values) - half, fmean(values) + half
        return tuple(map(math.exp, found)) if log and exp else found

    return code


def _unpaired(pairs: list[tuple]) -> tuple[float, float, float]:
    from scipy import stats

    alone, under = ([math.log(value) for value in column] for column in zip(*pairs, strict=True))
    if len(alone) < 2:
        return overhead(pairs)
    ratio = fmean(under) - fmean(alone)
    half = stats.t.ppf(0.975, 2 * len(alone) - 2) * ((stdev(alone) ** 2 + stdev(under) ** 2) / len(alone)) ** 0.5
    return math.exp(ratio), math.exp(ratio - half), math.exp(ratio + half)


DRIFTING = [(1.0, 1.1), (1.5, 1.7), (2.2, 2.4), (3.1, 3.5)]
OVERHEAD = WrittenExercise(
    overhead,
    module="overhead",
    cases=(
        Case("four pairs of a machine that grows slower", lambda code: code(DRIFTING)),
        Case("twice as long, and half as long", lambda code: code([(1.0, 2.0), (4.0, 2.0)])),
        Case("two pairs", lambda code: code([(48.29, 48.40), (48.43, 48.37)])),
        Case("one pair", lambda code: code([(10.0, 12.0)])),
        Case("twelve pairs", lambda code: code([(10 + n, (10 + n) * (1.02 + 0.01 * (n % 3))) for n in range(12)])),
    ),
    mistakes={
        (_overhead(t=False)): ("1.96 is for many pairs; of n take the t distribution with n − 1 degrees of freedom."),
        (_overhead(root=False)): ("That is how far single pairs lie apart; the mean of n is known √n times better."),
        (_overhead(log=False)): (
            "The mean of ratios is not the ratio: twice and half as long come to 1.25. Average their logarithms."
        ),
        (_overhead(exp=False)): ("These are logarithms: math.exp brings them back to ratios."),
        (_overhead(flip=True)): ("The time under the observer divided by the time alone, not the other way round."),
        (_unpaired): ("Take the ratio within each pair first, or the drift of the machine is in the interval."),
    },
    hint="The logarithm of under / alone of each pair; mean ± t · s / √n of these (scipy.stats.t.ppf(0.975, n − 1)); "
    "the exponential of all three. One pair has no interval: NaN twice.",
    explanation="Ratios multiply, so their logarithms are what is averaged.",
)


def enough_pairs(spread: float, ratio: float) -> int:
    from math import log

    from scipy import stats

    wanted, pairs = abs(log(ratio)), 2
    while stats.t.ppf(0.975, pairs - 1) * spread / pairs**0.5 > wanted:
        pairs += 1
    return pairs


def _normal(spread: float, ratio: float) -> int:
    return max(2, math.ceil((1.96 * spread / abs(math.log(ratio))) ** 2))


def _no_root(spread: float, ratio: float) -> int:
    from scipy import stats

    pairs = 2
    while stats.t.ppf(0.975, pairs - 1) * spread / pairs > abs(math.log(ratio)):
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
        (_normal): ("1.96 is for many pairs; few need the t distribution, which itself depends on how many there are."),
        (_no_root): ("The interval shrinks with the root of the number of pairs."),
        (lambda spread, ratio: enough_pairs(spread, ratio) - 1): ("One more: count pairs, not degrees of freedom."),
        (lambda spread, ratio: enough_pairs(spread, max(ratio, 1 / ratio) ** 0.5)): (
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


def _next(widens: Callable[[int], float], t: bool = True) -> Any:
    def code(runs: list[float]) -> tuple[float, float]:
        from scipy import stats

        factor = stats.t.ppf(0.975, len(runs) - 1) if t else 1.96
        half = factor * stdev(runs) * widens(len(runs))
        return fmean(runs) - half, fmean(runs) + half

    return code


NEXT = WrittenExercise(
    next_run,
    module="overhead",
    cases=(
        Case("six runs", lambda code: code([48.66, 48.29, 48.06, 48.43, 48.40, 48.37])),
        Case("two runs", lambda code: code([48.66, 48.29])),
        Case("twenty runs", lambda code: code([10 + (7 * n % 13) / 10 for n in range(20)])),
    ),
    mistakes={
        (_next(lambda n: n**-0.5)): ("That is where the *mean* lies; one more run strays by itself, too: √(1 + 1/n)."),
        (_next(lambda n: 1.0)): ("The mean itself is not known exactly: √(1 + 1/n) in place of 1."),
        (_next(lambda n: (1 + 1 / n) ** 0.5, t=False)): ("1.96 is for many runs: take the t distribution."),
        (lambda runs: (min(runs), max(runs))): ("The range of a few runs is narrower than where the next may fall."),
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
