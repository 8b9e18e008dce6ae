"""Keys: five distributions to try an index on, and the check of keys that somebody brings."""

from collections.abc import Callable

import numpy as np

from labkit import UserError
from labkit.indexes.kernels import KEY_END


def _uniform(random: np.random.Generator, count: int) -> np.ndarray:
    return random.integers(0, 2**60, count)


def _lognormal(random: np.random.Generator, count: int) -> np.ndarray:
    """As in ALEX's paper: sigma 2, here on a scale on which few keys are equal."""
    return np.minimum(random.lognormal(0.0, 2.0, count) * 1e12, 2.0**61)


def _zipf(random: np.random.Generator, count: int) -> np.ndarray:
    """Gaps between keys follow Zipf's law: most are small, some are very large."""
    return np.cumsum(np.minimum(random.zipf(1.5, count), 10**9))


def _timestamps(random: np.random.Generator, count: int) -> np.ndarray:
    """Microseconds since 1970, in bursts with pauses."""
    gaps = random.exponential(50.0, count)
    gaps[random.random(count) < 1e-3] *= 1e5
    return 1_700_000_000_000_000 + np.cumsum(gaps + 1)


def _adversarial(random: np.random.Generator, count: int) -> np.ndarray:
    """Clusters within clusters on all scales: wherever a line is fitted, most keys are at one of its ends."""
    scales = np.sort(random.integers(0, 61, (count, 3)), axis=1)
    return (2 ** scales.astype(np.int64)).sum(axis=1) + random.integers(0, 1 + (count >> 6), count)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform": _uniform,
    "lognormal": _lognormal,
    "zipf": _zipf,
    "timestamps": _timestamps,
    "adversarial": _adversarial,
}


def make_keys(distribution: str, count: int, seed: int = 0) -> np.ndarray:
    """Distinct keys in ascending order, int64 (count,)."""
    random, drawn = np.random.default_rng(seed), count
    while True:
        found = np.unique(DISTRIBUTIONS[distribution](random, drawn).astype(np.int64))
        if len(found) >= count:
            return np.sort(random.permutation(found)[:count])
        drawn = drawn * 2 + 64


def check_keys(keys: object) -> np.ndarray:
    """The keys as int64.

    Raises:
        UserError: they are not whole numbers in the range of an index; the text names the first that is wrong.
    """
    given = np.asarray(keys)
    if given.ndim != 1 or given.dtype.kind not in "iuf":
        raise UserError(f"keys are {given.dtype} of shape {given.shape}: give one row of whole numbers.", field="keys")
    wrong = np.flatnonzero(~((given >= 0) & (given < KEY_END) & (np.floor(given) == given)))  # a NaN is not >= 0
    if len(wrong):
        raise UserError(
            f"key number {wrong[0]} is {given[wrong[0]]}: keys are whole numbers from 0 to 2^62 - 1. Remove NaN, and "
            "number other values, or shift and scale them.",
            field="keys",
        )
    return given.astype(np.int64)


def check_sorted(keys: np.ndarray) -> None:
    """Refuse keys that are not in ascending order, or not distinct."""
    wrong = np.flatnonzero(keys[1:] <= keys[:-1])
    if len(wrong):
        first, second = keys[wrong[0]], keys[wrong[0] + 1]
        what = f"is {second} again" if first == second else f"is {second}, after {first}"
        raise UserError(
            f"key number {wrong[0] + 1} {what}: a bulk load needs distinct keys in ascending order. Sort them first: "
            "keys, first = numpy.unique(keys, return_index=True); values = values[first].",
            field="keys",
        )
