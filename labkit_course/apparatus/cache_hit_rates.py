"""Hit rates of a cache of rows: simulated, and by the published heuristic; and how skewed the rows are."""

from collections.abc import Iterable

import numpy as np

from labkit.placement import CacheIndex


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
