"""Embedding tables with fewer rows than categories: by hashing, or by quotients and remainders.

Shapes: B batch, F categorical features, P of them with a table of quotients, L pooling factor, D embedding dim.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import ceil, isqrt

import torch
from torch import Tensor, nn

from labkit import UserError
from labkit.models.dlrm import TableAFeature


class CompressedTables(nn.Module):
    """Sums of embeddings, from tables with a share of the rows; tables with few rows are unchanged.

    Each larger table has M rows, the same M for all. With `hash`, category i has row i mod M, which it shares with all
    categories of this remainder. With `quotient-remainder`, it has the elementwise product of row i mod M and row
    i div M of a second table, a pair that no other category has (Shi et al., KDD 2020, arXiv 1909.02107).
    """

    def __init__(
        self,
        num_rows: Sequence[int],
        embedding_dim: int,
        *,
        method: str,
        share: float,
        tables: Callable = TableAFeature,
    ):
        """`num_rows` are the categories of each feature; `tables` stores the rows and looks them up."""
        super().__init__()
        kept = _most_rows(num_rows, method, share)
        remainders, quotients = zip(*(_stored(rows, method, kept) for rows in num_rows), strict=True)
        self.divisor = nn.Buffer(torch.tensor(remainders, dtype=torch.int32).view(-1, 1), persistent=False)
        paired = [feature for feature, rows in enumerate(quotients) if rows]
        self.paired = nn.Buffer(torch.tensor(paired, dtype=torch.int64), persistent=False)  # (P,)
        self.stored = tables([*remainders, *filter(None, quotients)], embedding_dim)

    def forward(self, categorical: Tensor) -> Tensor:
        """Return the sums (B, F, D) for int32 (B, F, L), category numbers within each feature."""
        remainders = categorical % self.divisor
        if not len(self.paired):
            return self.stored(remainders)
        batch, features, pooling = categorical.shape
        quotients = categorical[:, self.paired] // self.divisor[self.paired]  # (B, P, L)
        # a bag for each category, for products are taken before bags are summed
        rows = torch.cat([remainders, quotients], 1).transpose(1, 2).reshape(batch * pooling, -1, 1)
        looked_up = self.stored(rows)  # (B·L, F + P, D)
        products = looked_up[:, self.paired] * looked_up[:, features:]  # (B·L, P, D)
        embedded = looked_up[:, :features].index_copy(1, self.paired, products)
        return embedded.view(batch, pooling, features, -1).sum(1)

    def table_weights(self) -> list[Tensor]:
        """The weights (rows, D) of the tables of rows or remainders, then of those of quotients."""
        return self.stored.table_weights()


def _stored(rows: int, method: str, most: int) -> tuple[int, int]:
    """Rows of a feature's table and of its table of quotients, if a table has at most `most` rows."""
    if rows > most and method == "hash":
        return most, 0
    quotients = -(-rows // most)
    return (most, quotients) if most + quotients < rows else (rows, 0)


def _most_rows(num_rows: Sequence[int], method: str, share: float) -> int:
    """The most rows per table with which all tables together have at most this share of the rows."""
    # with products the total is smallest if there are as many quotients as remainders; above that it grows with `most`
    fewest = 1 if method == "hash" else isqrt(max(num_rows) - 1) + 1
    allowed = share * sum(num_rows)

    def all_rows(most: int) -> int:
        return sum(sum(_stored(rows, method, most)) for rows in num_rows)

    if all_rows(fewest) > allowed:
        raise UserError(
            f"{method} cannot compress the embedding tables, of {sum(num_rows):,} rows, to {share:g} of their size: "
            f"give --compress-to {ceil(1e4 * all_rows(fewest) / sum(num_rows)) / 1e4:g} or more"
            + (", or use --compress hash." if method != "hash" else "."),
            field="compress_to",
        )
    return bisect_right(range(max(num_rows)), allowed, lo=fewest, key=all_rows) - 1
