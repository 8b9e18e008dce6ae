"""Exercises of 21_speech_on_budgets: the CTC loss, a gap taken apart, and what one run each would have said.

Shapes: T outputs, V alphabet with the blank (0), S states of an alignment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- the loss, all alignments at once


def ctc_loss(log_probabilities: Tensor, tokens: Sequence[int]) -> float:
    states = [0]
    for token in tokens:
        states += [token, 0]  # blank, a, blank, b, blank
    leaps = [place > 1 and state not in (0, states[place - 2]) for place, state in enumerate(states)]
    ahead = torch.full((len(states),), -math.inf)  # (S,)
    ahead[:2] = log_probabilities[0, states[:2]]
    for output in log_probabilities[1:]:
        step = F.pad(ahead, (1, 0), value=-math.inf)[:-1]
        leap = F.pad(ahead, (2, 0), value=-math.inf)[:-2].where(torch.tensor(leaps), -math.inf)
        ahead = torch.stack([ahead, step, leap]).logsumexp(0) + output[states]
    return -ahead[-2:].logsumexp(0).item()


def _said(tokens: list[int], outputs: int, seed: int) -> Any:
    """Outputs (T, 5) of a model that knows nothing."""
    drawn = torch.randn(outputs, 5, generator=torch.Generator().manual_seed(seed)).log_softmax(1)
    return lambda code: code(drawn, tokens)


_LEAPS = "place > 1 and state not in (0, states[place - 2])"
CTC = WrittenExercise(
    ctc_loss,
    module="speech",
    cases=(
        Case("three letters and nine outputs", _said([1, 3, 2], 9, 1)),
        Case("two equal letters, between which a blank has to stand", _said([2, 2], 5, 2)),
        Case("as many outputs as letters: one alignment", _said([4, 1, 3], 3, 3)),
        Case("fewer outputs than letters: no alignment, inf", _said([4, 1, 3], 2, 4)),
        Case("nothing said: blanks alone", _said([], 4, 5)),
        Case("ten letters", _said([1, 2, 2, 3, 4, 4, 1, 3, 3, 2], 40, 6)),
    ),
    mistakes={
        (_LEAPS, "place > 1 and state != 0"): (
            "Between two equal letters a blank has to stand, or they are merged: no leap from a letter to its equal."
        ),
        (_LEAPS, "False"): "From one letter to the next, if they differ, an alignment may leap over the blank.",
        ("return -ahead[-2:]", "return -ahead[-1:]"): "An alignment may end with the last letter or with the blank.",
        ("ahead[:2] = log_probabilities[0, states[:2]]", "ahead[:1] = log_probabilities[0, states[:1]]"): (
            "An alignment may begin with the first letter or with the blank."
        ),
        ("torch.stack([ahead, step, leap]).logsumexp(0)", "torch.stack([ahead, step, leap]).amax(0)"): (
            "That is the best alignment alone. The loss is of all of them: their probabilities add up."
        ),
    },
    hint="States blank, a, blank, b, …, blank. At each output a state is reached from itself, from the one before, "
    "and, if it is a letter unlike the letter before, from two before: logsumexp of these, plus the output's own.",
    explanation="All alignments, whose number is exponential, in T × S additions; torch's loss is this, in batches.",
)

# --- the gap, taken apart


def decompose(slow: pd.DataFrame, fast: pd.DataFrame) -> dict[str, float]:
    times = slow["time_s"] / fast["time_s"]
    samples = slow["samples"] / fast["samples"]
    ratios = {"times": times, "rates": times / samples, "samples": samples}
    means = {name: math.exp(np.log(ratio).mean(skipna=False)) for name, ratio in ratios.items()}
    return means | {"low": times.min(skipna=False), "high": times.max(skipna=False)}


def _pair(slow: list[tuple[float, float]], fast: list[tuple[float, float]], order: list[int] | None = None) -> Any:
    """Of (seconds, samples) by seed; the second platform's seeds in another order."""

    def ask(code: Any) -> Any:
        one, other = (pd.DataFrame(runs, columns=["time_s", "samples"]) for runs in (slow, fast))
        found = code(one, other.loc[order or list(other.index)])
        return {name: float(found[name]) for name in ("times", "rates", "samples", "low", "high")}

    return ask


_TIMES = 'times = slow["time_s"] / fast["time_s"]'
DECOMPOSE = WrittenExercise(
    decompose,
    module="budgets",
    cases=(
        Case("one seed", _pair([(60.0, 9e3)], [(20.0, 12e3)])),
        Case(
            "three seeds at one batch",
            _pair([(30.0, 6e3), (45.0, 9e3), (40.0, 8e3)], [(10.0, 6e3), (15.0, 9e3), (13.0, 8e3)]),
        ),
        Case(
            "three seeds whose rows come in another order",
            _pair([(30.0, 6e3), (45.0, 9e3), (40.0, 8e3)], [(25.0, 9e3), (15.0, 4e3), (33.0, 8e3)], [2, 0, 1]),
        ),
        Case("a seed that did not arrive: NaN", _pair([(30.0, 6e3), (math.nan, math.nan)], [(10.0, 6e3), (9.0, 5e3)])),
    ),
    mistakes={
        (
            _TIMES,
            'times = slow["time_s"] / fast["time_s"].to_numpy()',
        ): "Divide by seed, which pandas does by the index, not by the order of the rows.",
        ("math.exp(np.log(ratio).mean(skipna=False))", "ratio.mean(skipna=False)"): (
            "Arithmetic means of ratios do not multiply: the mean of the logarithms, and exp of it."
        ),
        ("np.log(ratio).mean(skipna=False)", "np.log(ratio).mean()"): (
            "pandas leaves NaN out of a mean: without the seed that failed the platform looks better than it is."
        ),
        ('"rates": times / samples', '"rates": samples / times'): (
            "The fast platform's samples a second over the slow one's, so that the two factors multiply to the times."
        ),
    },
    hint="Ratios by seed: slow over fast of time_s and samples, fast over slow of samples / time_s; of each "
    "math.exp(np.log(ratio).mean(skipna=False)); low and high are the least and the greatest ratio of times.",
    explanation="Logarithms add up, so the two factors multiply to the ratio of times exactly.",
)

# --- what one run each would have said


def sooner_share(times_s: Sequence[float], others_s: Sequence[float]) -> float:
    own, others = np.asarray(times_s, float)[:, None], np.asarray(others_s, float)
    return float(np.mean((own < others) + (own == others) / 2))


ONE_SEED = WrittenExercise(
    sooner_share,
    module="budgets",
    cases=(
        Case("three runs against two", lambda code: code([5.0, 3.0, 7.0], [4.0, 8.0])),
        Case("one that is always sooner", lambda code: code([1.0, 2.0], [3.0, 4.0, 5.0])),
        Case("the same times", lambda code: code([1.0, 2.0, 3.0], [3.0, 1.0, 2.0])),
        Case("runs that never arrive", lambda code: code([4.0, math.inf, 6.0], [math.inf, 5.0, math.inf])),
    ),
    mistakes={
        (
            "own, others = np.asarray(times_s, float)[:, None], np.asarray(others_s, float)",
            "own, others = np.array([*zip(times_s, others_s)], float).T",
        ): "Any run of one may meet any run of the other: all pairs, not the first with the first.",
        (" + (own == others) / 2", ""): "A tie, as of two runs that never arrive, counts half.",
        ("own < others", "own > others"): "That is the share in which the first is later.",
        (
            "np.mean((own < others) + (own == others) / 2)",
            "np.median(own) < np.median(others)",
        ): "Asked is what single runs say, pair by pair, not the medians.",
    },
    hint="np.asarray(times_s)[:, None] < np.asarray(others_s) is True for each pair in which the first is sooner.",
    explanation="0 or 1: one run each would have told which is sooner; 0.5: it would have told nothing.",
)

EXERCISES = {
    "21.ctc": CTC,
    "21.decompose": DECOMPOSE,
    "21.one_seed": ONE_SEED,
    "21.why_gap": Explanation(
        rubric=(
            "numbers: the gap at an easy and at a hard target, at the common and at the own batches, with both factors",
            "why: at one batch the same steps are taken, so only the rate differs; a larger batch has fewer steps "
            "in the same samples and needs more of them, by a factor that may move with the target or not",
            "trade-off: when a dear platform should leave a part of its memory empty, or what a paper should report",
        ),
        model="At the common batch small takes 1.2 to 1.4 times as long as large at every threshold, for both "
        "take the same steps, but for rounding, and only the rates differ. At the own batches of 168 and "
        "288 the rates differ by 1.4, too, but large needs 1.41 times the samples to a CER of 0.7 and 1.87 "
        "times to 0.2, so the gap falls from 1.02 to 0.72: its lead is spent on samples. On large I would "
        "train at 96, which is 2.8 times sooner than 288, and leave memory empty; a paper should give both "
        "factors.",
    ),
    "21.why_hard": Explanation(
        rubric=(
            "numbers: the spread of a time over seeds, and how often one run each would have named another winner",
            "why: a crossing is the first evaluation past a threshold, and near the end of training curves are flat, "
            "so a small difference in error is a large one in time",
            "trade-off: what more seeds, several thresholds or a fixed time would cost and tell",
        ),
        model="To a CER of 0.7 middle's slower seed takes 1.27 times as long as its faster one, while small and "
        "large differ by 2 %, and the winner changes with the threshold: small is sooner in 0 % of the "
        "pairs at 0.7 and in all at 0.6. A crossing is the first evaluation past a threshold, and where a "
        "curve is flat a small difference in error, which a seed decides, is a large one in time. Six "
        "thresholds cost nothing more and three seeds three times as much; I would report ranges and both "
        "factors, and the error after a fixed time.",
    ),
}
