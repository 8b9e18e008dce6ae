"""Hit rates of a cache of rows: simulated, by the published heuristic, and the best possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from labkit.placement import CacheIndex

if TYPE_CHECKING:
    import pandas as pd


def simulate_hit_rate(
    batches: Iterable[np.ndarray], num_rows: int, cache_rows: int, policy: str = "lru", *, warm_up: int = 0
) -> float:
    """The share of lookups that hit a cache: all but one for each distinct row of a batch that is missing.

    Args:
        batches: row numbers of each batch, in any shape; batches of one lookup are the textbook case.
        num_rows: of the table.
        cache_rows: slots of the cache.
        policy: "lru" or "lfu".
        warm_up: number of batches at the beginning that do not count.
    """
    index, lookups, missed = CacheIndex(num_rows, cache_rows, policy), 0, 0
    for number, batch in enumerate(batches):
        look = index.look(np.unique(batch))
        if number >= warm_up:
            lookups += np.size(batch)
            missed += look.missed
    return 1 - missed / max(1, lookups)


def expected_hit_rate(num_rows: int, lookups: int, cache_rows: int) -> float:
    """The share of a batch's lookups that hit a cache, for uniform rows, by the heuristic of a performance model.

    Lin et al., arXiv 2201.07821, embedding lookups: a kernel hits its own repeated rows, and X rows that are resident
    from before. They derive X from the size of a GPU's L2 cache; here it is the size of the cache.

    Args:
        num_rows: of one table, E in the paper.
        lookups: of one batch in this table, B L.
        cache_rows: slots of the cache.
    """
    unique = num_rows * (1 - (1 - 1 / num_rows) ** lookups)
    resident = min(cache_rows, num_rows, lookups)
    if unique <= resident:
        return 1 - unique / lookups
    return 1 - (resident + (lookups - resident) * (num_rows - resident) / num_rows) / lookups


def zipf_shares(num_rows: int, exponent: float) -> np.ndarray:
    """The probability float64 (R,) of each row, the most popular first; exponent 0 is uniform."""
    shares = np.arange(1.0, num_rows + 1) ** -exponent
    return shares / shares.sum()


def zipf_bound(num_rows: int, exponent: float, cache_rows: int) -> float:
    """The probability of the `cache_rows` most popular rows.

    It bounds the hit rate of any cache for single, independent lookups; in a batch, equal lookups of a missing row are
    one miss.
    """
    return float(zipf_shares(num_rows, exponent)[:cache_rows].sum())


def hit_rates(
    exponents: Sequence[float],
    cache_shares: Sequence[float],
    *,
    num_rows: int = 100_000,
    lookups: int = 2048,
    batches: int = 200,
    policies: Iterable[str] = ("lru", "lfu"),
    seed: int = 0,
) -> pd.DataFrame:
    """Hit rates of one table, one row each of (zipf_exponent, cache_share, policy, source, hit_rate).

    The sources are "simulated", after the same number of batches to fill the cache; "bound" (`zipf_bound`); and, for
    uniform rows (exponent 0), "heuristic" (`expected_hit_rate`). The last two do not depend on the policy.

    Args:
        exponents: of the Zipf distribution of the rows.
        cache_shares: rows of the cache, as a share of the table's.
        lookups: per batch.
        batches: number of batches that count.
    """
    import pandas as pd

    found: list[tuple] = []
    for exponent in exponents:
        rng, cumulated = np.random.default_rng(seed), zipf_shares(num_rows, exponent).cumsum()
        drawn = np.searchsorted(cumulated, rng.random((2 * batches, lookups)) * cumulated[-1])
        for share in cache_shares:
            slots = max(1, round(share * num_rows))
            for policy in policies:
                rate = simulate_hit_rate(drawn, num_rows, slots, policy, warm_up=batches)
                found.append((exponent, share, policy, "simulated", rate))
            found.append((exponent, share, None, "bound", zipf_bound(num_rows, exponent, slots)))
            if exponent == 0:
                found.append((exponent, share, None, "heuristic", expected_hit_rate(num_rows, lookups, slots)))
    return pd.DataFrame(found, columns=["zipf_exponent", "cache_share", "policy", "source", "hit_rate"])
