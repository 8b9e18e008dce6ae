"""How often a run reaches the target, and what that takes in all if each that fails is started anew."""

from __future__ import annotations

import numpy as np


def success_interval(
    reached: np.ndarray, runs: np.ndarray, censored: np.ndarray | int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """95 % interval of the share of runs that reach the target: Jeffreys', from 0 where none did, to 1 where all did.

    By simulation it covers 92 to 100 % (benchmarks/statistics_of_time.py); Brown, Cai and DasGupta 2001, Statistical
    Science 16:101. `reached` and `censored` of the `runs` reached it and were cut off, of any shape; one that was cut
    off counts against the share in the lower bound, and for it in the upper.
    """
    from scipy.special import betaincinv

    reached, best = np.asarray(reached), np.asarray(reached) + censored
    low = betaincinv(reached + 0.5, runs - reached + 0.5, 0.025)
    high = betaincinv(best + 0.5, runs - best + 0.5, 0.975)
    return np.where(reached == 0, 0.0, low), np.where(best == runs, 1.0, high)


def expected_to_target(
    spent: np.ndarray, reached: np.ndarray, failed: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expected time (or samples, or cost) until a run has reached the target, each that fails being started anew.

    That is all that was spent, over the number of successes, where no run was cut off. One that was cut off is taken to
    go on as those did that went on for longer (their weights grow by its own, as in the Kaplan–Meier estimate); one
    that nobody outlasted counts as a failure that ended there.

    The interval puts together, on the logarithmic scale, those of the mean of the successes (Student's t) and of the
    share of successes (`success_interval`), each taken to be off by itself (MOVER, Zou and Donner 2008, Statistics in
    Medicine 27:1693). There is none where no run failed: how long a failure would last is then not known.

    Args:
        spent: (..., R) by each run until it reached the target, failed or was cut off.
        reached: (..., R).
        failed: (..., R).

    Returns:
        The expectation, inf without a success, and the bounds of its 95 % interval, NaN without a failure and below two
        successes or three runs that came to an end; each (...).
    """
    from scipy.special import stdtrit

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
