"""The mean of a few runs with its interval, and how many runs a difference takes."""

from collections.abc import Sequence

import numpy as np

from labkit import UserError


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of a few values, and the low and high end of its 95 % interval (Student's t); NaN for what is not known.

    >>> [round(each, 2) for each in mean_interval([9.1, 10.4, 9.7, 11.0, 10.1])]
    [10.06, 9.17, 10.95]
    """
    from scipy.special import stdtrit

    if len(values) < 2:
        return float(values[0]) if len(values) else np.nan, np.nan, np.nan
    mean = float(np.mean(values))
    half = float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / len(values) ** 0.5)
    return mean, mean - half, mean + half


def runs_needed(spread: float, difference: float, power: float = 0.8) -> int:
    """Least number of pairs of runs with which a share `power` of studies finds a true difference.

    A study finds it if the 95 % interval of the mean difference does not hold 0. An interval just as wide as the
    difference is not enough: its middle varies too, and half of all such studies miss. So the difference has to be
    (t_0.975 + t_power) · spread / √n, with n − 1 degrees of freedom.

    Args:
        spread: standard deviation of the pairs' differences (of logarithms, for a ratio), from a few pairs.
        difference: the smallest difference that matters, in the same unit.
        power: share of studies that are to find it.

    Raises:
        UserError: the difference is 0.

    >>> runs_needed(0.002, 0.002), runs_needed(0.002, 0.001), runs_needed(0.002, 0.001, power=0.5)
    (10, 34, 18)
    """
    from scipy.special import stdtrit

    if not difference:
        raise UserError("difference is 0: no number of runs finds that; give the smallest one that matters.")
    pairs = 2
    while sum(stdtrit(pairs - 1, (0.975, power))) * spread / pairs**0.5 > abs(difference):
        pairs += 1
    return pairs
