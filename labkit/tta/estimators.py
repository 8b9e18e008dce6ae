"""Time to a target when not every run gets there: Kaplan–Meier, the share of successes, expected time with restarts.

Failed is not censored. A run that *failed* will never reach the target: its time is infinite, and it counts as waiting
at every later time. A run that was *cut off* says only that its time is longer than its last evaluation; from then on
it is not counted. Dropping either altogether would make hard targets look cheap, because only the lucky runs stay.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betainc, betaincinv, stdtrit

from labkit.tta.outcomes import SERIES, Attempts, Outcomes, attempts

MIN_RUNS_FOR_INTERVAL = 5
"""Fewer runs cannot bound a median: their whole range misses it in one case of eight (four runs) or of four (three)."""
MOST_WORK = 60_000
"""Runs times easier targets that are looked at, at most, to keep the median of a harder target above theirs: all
targets of ten runs with up to six hundred evaluations each, or some hundreds of targets of hundreds of runs"""
SURVIVAL_COLUMNS = [
    *SERIES, "target", "runs", "reached", "failed", "censored", "success_low", "success_high", "median", "low", "high",
    "level", "expected", "expected_low", "expected_high",
]  # fmt: skip
BAND_COLUMNS = [*SERIES, "level", "low", "median", "high", "runs", "kind"]


def survival(
    curves: pd.DataFrame, runs: pd.DataFrame, targets: float | np.ndarray, *, x: str = "wall_s"
) -> pd.DataFrame:
    """How long each series of runs takes to reach each target, how often it does, and what that costs in all.

    A harder target never takes less: where runs were cut off, the estimates of single targets can cross though the
    times that they estimate cannot. The largest estimate of all easier targets then counts.

    Args:
        curves: one row per evaluation (`labkit.tta.curves`) of one metric.
        runs: one row per run (`labkit.tta.run_table`).
        targets: one value of the metric, or several.
        x: "wall_s", "train_s", "samples", "energy_j" or "cost_usd", in whose unit the times are.

    Returns:
        SURVIVAL_COLUMNS, one row per series and target: the 95 % interval of the share of runs that reach it; median,
        low, high and level of `median_time` (where level is NaN, low and high are the fastest and the slowest run, inf
        if one did not reach it); and `expected_to_target`.
    """
    return survival_of(attempts(curves, runs, np.atleast_1d(targets)), x)


def survival_of(found: Attempts, x: str = "wall_s") -> pd.DataFrame:
    """`survival` of attempts that were found already."""
    outcomes, targets = found.on(x), found.targets
    frames = [pd.DataFrame(columns=SURVIVAL_COLUMNS)]
    groups = outcomes.runs.reset_index(drop=True).groupby(SERIES, sort=False, dropna=False)
    places_of: dict[Any, np.ndarray] = groups.indices
    for series, places in places_of.items():
        own = outcomes.of(places)
        reached, failed, count = own.reached.sum(axis=1), own.failed.sum(axis=1), len(places)
        censored = count - reached - failed
        estimates = _estimates(own)
        if censored.any():
            easier, levels = _easier(found, own.runs)
            before = _estimates(easier.on(x))
            sign = 1.0 if found.is_rising else -1.0
            place = np.searchsorted(levels, sign * targets) - 1
            for name in ("median", "high", "expected", "expected_high"):
                most_before = np.append(np.fmax.accumulate(before[name]), np.nan)  # NaN where no level is easier
                estimates[name] = np.fmax(estimates[name], most_before[place])
        success_low, success_high = success_interval(reached, count, censored)
        counts = {"target": targets, "runs": count, "reached": reached, "failed": failed, "censored": censored}
        shares = {"success_low": success_low, "success_high": success_high}
        frames.append(pd.DataFrame(dict(zip(SERIES, series, strict=True)) | counts | shares | estimates))
    return pd.concat(frames[1:] or frames, ignore_index=True)[SURVIVAL_COLUMNS]


def _easier(found: Attempts, runs: pd.DataFrame) -> tuple[Attempts, np.ndarray]:
    """Attempts of these runs at every value that they evaluated to, and these values: larger ones are harder."""
    if (key := tuple(runs["run"])) not in found.easier:
        sign = 1.0 if found.is_rising else -1.0
        own = found.curves[found.curves["run"].isin(runs["run"])]
        levels = np.unique(sign * own["value"].dropna())
        most = max(MOST_WORK // len(runs), 100)
        levels = levels[np.linspace(0, len(levels) - 1, min(most, len(levels))).astype(int)]
        found.easier[key] = attempts(own, runs, sign * levels), levels
    return found.easier[key]


def _estimates(own: Outcomes) -> dict[str, np.ndarray]:
    median, low, high, level = median_time(own.reached, own.time)
    is_range, times = np.isnan(level), np.where(own.reached, own.time, np.inf)
    low, high = np.where(is_range, times.min(axis=1), low), np.where(is_range, times.max(axis=1), high)
    values = (median, low, high, level, *expected_to_target(own.spent, own.reached, own.failed))
    return dict(zip(SURVIVAL_COLUMNS[-len(values) :], values, strict=True))


def band(times: pd.DataFrame) -> pd.DataFrame:
    """The spread of the time at which the runs of a series get to each level of the metric: BAND_COLUMNS.

    `times` is `survival` of levels of the metric. The band ends at the level beyond which an edge is unknown; series of
    one run have no rows.
    """
    known = times[(times["runs"] > 1) & np.isfinite(times["high"])].reset_index(drop=True)
    kind = [
        f"range of {runs} runs" if np.isnan(level) else f"{100 * level:.0f} % interval of the median of {runs} runs"
        for level, runs in zip(known["level"], known["runs"], strict=True)
    ]
    return known.assign(kind=kind, level=known["target"])[BAND_COLUMNS]


def median_time(reached: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Kaplan–Meier median of the time to target, with its 95 % interval.

    Where the estimate rests exactly on one half the median is the middle of that step, so that it is the ordinary
    median where all runs reached; it is inf where half of the runs or more do not get there.

    The interval ends where the beta product confidence limits of the estimate pass one half (Fay, Brittain and Proschan
    2013, Biostatistics 14:723). Without censoring these are the order statistics of the sign test: exact, and mostly
    above 95 %; of five runs it is their range, which covers 93.75 %.

    Args:
        reached: (..., R) whether each run reached the target.
        time: (..., R) when it did; inf where it failed, its last evaluation where it was cut off.

    Returns:
        median, low, high in the unit of `time`, and the interval's level, each (...). low and high are inf where
        nothing bounds them, and all three are NaN where fewer than `MIN_RUNS_FOR_INTERVAL` runs were still counted when
        the first of them got there.
    """
    reached, time = np.asarray(reached, bool), np.asarray(time, float)
    order = np.lexsort((~reached, time), axis=-1)
    reached, time = np.take_along_axis(reached, order, -1), np.take_along_axis(time, order, -1)
    size = time.shape[-1]
    waiting, *moments = _estimate(reached)
    counted = size - reached.argmax(-1)
    tail = (np.maximum(0.025, 0.5**counted) + 1e-9)[..., None]
    left = np.arange(size)[::-1]
    # the lower limit after each, which the next to get there would lower, and the upper one, are below one half
    lowered = (moment * left / (left + number) for number, moment in enumerate(moments, 1))
    lower_is_below = (left == 0) | (_share_below_half(*lowered) > tail)
    upper_is_below = 1 - _share_below_half(*moments) <= tail

    def first_where(test: np.ndarray) -> np.ndarray:
        places = np.append(test, np.ones((*test.shape[:-1], 1), bool), axis=-1).argmax(-1)[..., None]
        ever = np.append(time, np.full((*time.shape[:-1], 1), np.inf), axis=-1)
        return np.take_along_axis(ever, places, -1)[..., 0]

    tests = (waiting < 0.5 + 1e-9, waiting < 0.5 - 1e-9, lower_is_below, upper_is_below)
    at_half, after_half, low, high = map(first_where, tests)
    is_known = reached.any(-1) & (counted >= MIN_RUNS_FOR_INTERVAL)
    low, high, level = (np.where(is_known, each, np.nan) for each in (low, high, 1 - 2 * (tail[..., 0] - 1e-9)))
    return (at_half + after_half) / 2, low, high, level


def survival_curve(reached: np.ndarray, time: np.ndarray) -> pd.DataFrame:
    """Kaplan–Meier estimate of the share of runs still short of the target.

    `reached` (R,) and `time` (R,) are as for `median_time`. Columns time and waiting: from 0, a row per time at which a
    run got there or was cut off.
    """
    reached, time = np.asarray(reached, bool), np.asarray(time, float)
    order = np.lexsort((~reached, time))
    waiting, *_ = _estimate(reached[order])
    frame = pd.DataFrame({"time": np.append(0.0, time[order]), "waiting": np.append(1.0, waiting)})
    return frame[np.isfinite(frame["time"])].drop_duplicates("time", keep="last").reset_index(drop=True)


def _estimate(reached: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Share of runs that still wait after each run, in order of time, and two moments of its upper limit: (..., R)."""
    at_risk = np.arange(reached.shape[-1], 0, -1)
    factors = (1 - reached / at_risk, *(np.where(reached, at_risk / (at_risk + power), 1.0) for power in (1, 2)))
    waiting, first, second = (np.cumprod(factor, axis=-1) for factor in factors)
    return waiting, first, second


def _share_below_half(first_moment: np.ndarray, second_moment: np.ndarray) -> np.ndarray:
    """Share below one half of the beta distribution with these moments; 0 where it is the number 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = (first_moment - second_moment) / (second_moment - first_moment**2)
        share = betainc(first_moment * scale, (1 - first_moment) * scale, 0.5)
    return np.where(first_moment == 1, 0.0, share)


def success_interval(
    reached: np.ndarray, runs: np.ndarray | int, censored: np.ndarray | int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """95 % interval of the share of runs that reach the target: Jeffreys', from 0 where none did, to 1 where all did.

    By simulation it covers 92 to 100 % (benchmarks/statistics_of_time.py); Brown, Cai and DasGupta 2001, Statistical
    Science 16:101. Of `runs`, `reached` reached it and `censored` were cut off (arrays of one shape). A run that was
    cut off counts as a failure in the lower bound and as a success in the upper one.
    """
    reached, best = np.asarray(reached), np.asarray(reached) + censored
    low = betaincinv(reached + 0.5, runs - reached + 0.5, 0.025)
    high = betaincinv(best + 0.5, runs - best + 0.5, 0.975)
    return np.where(reached == 0, 0.0, low), np.where(best == runs, 1.0, high)


def expected_to_target(
    spent: np.ndarray, reached: np.ndarray, failed: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expected time (or samples, or cost) until a run has reached the target, if each run that fails is restarted.

    Where no run was cut off, that is all that was spent over the number of successes. A run that was cut off is taken
    to go on as the longer ones did (their weights grow by its own, as in the Kaplan–Meier estimate); if no run is
    longer, it counts as a failure that ended there.

    The interval combines, on the logarithmic scale, those of the mean of the successes (Student's t) and of the share
    of successes (`success_interval`), as independent (MOVER, Zou and Donner 2008, Statistics in Medicine 27:1693).
    There is none where no run failed: how long a failure would last is then not known.

    Args:
        spent: (..., R) by each run until it reached the target, failed or was cut off.
        reached: (..., R).
        failed: (..., R).

    Returns:
        The expectation, inf without a success, and the bounds of its 95 % interval, NaN without a failure and below two
        successes or three runs that came to an end; each (...).
    """
    ended = reached | failed
    order = np.lexsort((~ended, spent), axis=-1)
    spent, reached, ended = (np.take_along_axis(each, order, -1) for each in (spent, reached, ended))
    size = spent.shape[-1]
    at_risk = np.arange(size, 0, -1)
    left = np.cumprod(1 - ended / at_risk, axis=-1)
    weight = ended * np.concatenate([np.ones((*left.shape[:-1], 1)), left[..., :-1]], axis=-1) / at_risk
    weight[..., -1] += left[..., -1]
    successes, ends = reached.sum(-1), ended.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share, total = (weight * reached).sum(-1), (weight * spent).sum(-1)
        success = (weight * reached * spent).sum(-1) / share
        has_failed = share < 1 - 1e-9
        failure = np.where(has_failed, (total - share * success) / (1 - share), np.nan)
        expected = np.where(successes == 0, np.inf, total / share)
        squares = ((weight * reached * (spent - success[..., None]) / share[..., None]) ** 2).sum(-1)
        error = np.sqrt(squares * successes / (successes - 1)) / success
        error *= stdtrit(np.maximum(successes - 1, 1), 0.975)
        shares = success_interval(successes, size, size - ends)
        high, low = (success + (1 - bound) / bound * failure for bound in shares)
        low = expected * np.exp(-np.hypot(error, np.log(expected / low)))
        high = expected * np.exp(np.hypot(error, np.log(high / expected)))
    known = has_failed & (successes >= 2) & (ends >= 3)
    return expected, np.where(known, low, np.nan), np.where(known, high, np.nan)
