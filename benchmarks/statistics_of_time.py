"""How often the intervals of `labkit.tta` hold what they say: `python benchmarks/statistics_of_time.py`, half a minute.

Runs are made up with a known truth: times to the target are lognormal, a share of the runs fails (after a shorter, the
same, or a longer time), and of some the end is not seen, because they were cut off at a time that has nothing to do
with how they fare. Each case is drawn 1,000 times; an interval that is not given is not counted.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from labkit.tta import expected_to_target, median_time, success_interval

MEAN_S = 10.0


class Case(NamedTuple):
    runs: int
    fails: float
    """Share of the runs"""
    fails_after: float
    """Mean time of a failure, over that of a success"""
    spread: float
    """Coefficient of variation of both"""
    cut_off: float
    """Share of the runs that somebody stops within 15 s, if they have not ended until then"""


CASES = [
    Case(*case)
    for case in product((3, 5, 10), (0.0, 0.2, 0.4), (0.3, 1.0, 3.0), (0.1, 0.3, 0.6), (0.0, 0.3))
    if case[1] or case[2] == 1.0
]


class Drawn(NamedTuple):
    spent: np.ndarray
    """(D, R) seconds until a run reached the target, failed or was cut off"""
    reached: np.ndarray
    failed: np.ndarray
    expected: float
    """The truth"""
    median: float


def draw(case: Case, draws: int, seed: int) -> Drawn:
    from scipy.special import ndtri

    random, shape = np.random.default_rng(seed), (draws, case.runs)
    sigma = np.sqrt(np.log(1 + case.spread**2))
    fails = random.random(shape) < case.fails
    spent = MEAN_S * random.lognormal(-(sigma**2) / 2, sigma, shape) * np.where(fails, case.fails_after, 1.0)
    until = np.where(random.random(shape) < case.cut_off, random.uniform(0, 15, shape), np.inf)
    is_cut = until < spent
    expected = MEAN_S * (1 + case.fails / (1 - case.fails) * case.fails_after)
    median = MEAN_S * np.exp(-(sigma**2) / 2 + sigma * ndtri(0.5 / (1 - case.fails)))
    return Drawn(np.minimum(spent, until), ~fails & ~is_cut, fails & ~is_cut, expected, float(median))


def coverage(case: Case, draws: int, seed: int) -> dict[str, tuple[float, float]]:
    """Of each interval: the share that holds the truth of those that are given, and how many are given."""
    spent, reached, failed, expected, median = draw(case, draws, seed)
    cut_off = case.runs - reached.sum(1) - failed.sum(1)
    intervals = {
        "expected": (expected, *expected_to_target(spent, reached, failed)[1:]),
        "median": (median, *median_time(reached, np.where(failed, np.inf, spent))[1:3]),
        "share": (1 - case.fails, *success_interval(reached.sum(1), case.runs, cut_off)),
    }
    found = {}
    for name, (truth, low, high) in intervals.items():
        given = ~np.isnan(low)
        holds = (low <= truth) & (truth <= high)
        found[name] = (float(holds[given].mean()) if given.any() else float("nan"), float(given.mean()))
    return found


def main() -> None:
    from measuring import write_result

    rows = []
    for case in CASES:
        found = coverage(case, draws=1000, seed=0)
        rows.append(case._asdict() | {name: {"holds": each[0], "given": each[1]} for name, each in found.items()})
    for runs, name in product((3, 5, 10), ("expected", "median", "share")):
        holds = [row[name]["holds"] for row in rows if row["runs"] == runs and row[name]["given"] > 0]
        print(
            f"{runs:2} runs, {name:8}: {min(holds):.1%} to {max(holds):.1%}"
            if holds
            else f"{runs:2} runs, {name}: none"
        )
    large = {}
    for case in CASES:
        if case.runs == 10:
            drawn = draw(case._replace(runs=100_000), draws=1, seed=1)
            large[str(case)] = float(expected_to_target(*drawn[:3])[0][0] / drawn.expected)
    print(f"expected time of 100,000 runs over the truth: {min(large.values()):.3f} to {max(large.values()):.3f}")
    write_result("statistics_of_time", draws=1000, cases=rows, expected_over_truth=large)


if __name__ == "__main__":
    main()
