"""What share of lookups a cache of rows answers: simulated, by the published heuristic, and at best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from labkit.placement.cache import simulate_hit_rate

if TYPE_CHECKING:
    import pandas as pd


def expected_hit_rate(num_rows: int, lookups: int, cache_rows: int) -> float:
    """The share of a batch's lookups that a cache answers, uniform rows, by the heuristic of a performance model.

    Lin et al., arXiv 2201.07821, embedding lookups: a kernel finds its own repeated rows, and X rows that are resident
    from before. They take X from the size of a GPU's L2 cache; here it is what the cache holds.

    Args:
        num_rows: of one table, E in the paper.
        lookups: of one batch in it, B L.
        cache_rows: that stay of it.
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

    No cache answers more of single, independent lookups; in a batch, equal lookups of an absent row count as one miss.
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

    The sources are "simulated", after as many batches again to fill the cache; "bound", of `zipf_bound`; and, where
    rows are uniform (exponent 0), "heuristic", of `expected_hit_rate`. The last two know no policy.

    Args:
        exponents: of the rows' Zipf distribution.
        cache_shares: rows of the cache over those of the table.
        lookups: of a batch.
        batches: that count.
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
