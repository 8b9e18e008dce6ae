"""The deep learning recommendation model (Naumov et al., arXiv 1906.00091) in textbook form, and with smaller tables.

Shapes: B batch, D embedding dim, F categorical features (tables), L pooling factor, N = F + 1 features that meet,
P features with a table of quotients.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, isqrt

import torch
from torch import Tensor, nn

from labkit import UserError


@dataclass(frozen=True)
class DlrmConfig:
    """The shape of one DLRM."""

    dense_dim: int
    """Number of dense (continuous) features"""
    num_rows: tuple[int, ...]
    """Rows of each embedding table"""
    embedding_dim: int
    """Width of an embedding and of the output of the bottom MLP"""
    bottom_mlp: tuple[int, ...]
    """Widths of the bottom MLP without its input; the last equals `embedding_dim`"""
    top_mlp: tuple[int, ...]
    """Widths of the top MLP without its input; the last is 1, the logit"""

    def __post_init__(self):
        if self.bottom_mlp[-1] != self.embedding_dim:
            raise UserError(
                f"bottom_mlp ends in {self.bottom_mlp[-1]}, but embedding_dim is {self.embedding_dim}: make them "
                "equal, because the output of the bottom MLP is multiplied with the embeddings."
            )
        if self.top_mlp[-1] != 1:
            raise UserError(f"top_mlp ends in {self.top_mlp[-1]}: end it in 1, the logit of the click.")

    @property
    def num_tables(self) -> int:
        return len(self.num_rows)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the embedding tables in fp32, which are most of a DLRM."""
        return 4 * sum(self.num_rows) * self.embedding_dim


class TableAFeature(nn.Module):
    """An `nn.EmbeddingBag` per categorical feature; only the rows in a batch get a gradient."""

    def __init__(self, num_rows: Sequence[int], embedding_dim: int):
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag.from_pretrained(torch.empty(rows, embedding_dim), freeze=False, mode="sum", sparse=True)
            for rows in num_rows  # empty, because the model initialises them
        )

    def forward(self, categorical: Tensor) -> Tensor:
        """Return the sums (B, F, D) for int32 (B, F, L), row numbers within each table."""
        return torch.stack([bag(categorical[:, f]) for f, bag in enumerate(self.bags)], dim=1)

    def table_weights(self) -> list[Tensor]:
        """The weight (rows, D) of each table."""
        return [bag.get_parameter("weight") for bag in self.bags]


class PairwiseDots(nn.Module):
    """The dot products of all pairs of features."""

    def __init__(self, count: int):
        super().__init__()
        pairs = torch.tril_indices(count, count, offset=-1)
        self.first, self.second = (nn.Buffer(each, persistent=False) for each in pairs)

    def forward(self, features: Tensor) -> Tensor:
        """Return (B, N (N − 1) / 2) for (B, N, D)."""
        products = torch.bmm(features, features.transpose(1, 2))  # (B, N, N)
        return products[:, self.first, self.second]


class Dlrm(nn.Module):
    """Bottom MLP and embeddings, their interaction, top MLP; returns one logit per sample."""

    def __init__(self, config: DlrmConfig, *, tables: Callable = TableAFeature, interaction: Callable = PairwiseDots):
        """Build the model; `labkit.fast` has faster equivalents of `tables` and `interaction`."""
        super().__init__()
        self.config = config
        features = config.num_tables + 1
        self.bottom = _mlp(config.dense_dim, config.bottom_mlp, last_relu=True)
        self.tables = tables(config.num_rows, config.embedding_dim)
        self.interaction = interaction(features)
        self.top = _mlp(config.embedding_dim + features * (features - 1) // 2, config.top_mlp, last_relu=False)
        self._initialise()

    @torch.no_grad()
    def _initialise(self):
        # as in the reference DLRM: uniform ±1/sqrt(rows) tables, Glorot-normal MLPs
        for weight in self.tables.table_weights():
            weight.uniform_(-(len(weight) ** -0.5), len(weight) ** -0.5)
        for layer in [*self.bottom, *self.top]:
            if isinstance(layer, nn.Linear):
                fan_in, fan_out = layer.in_features, layer.out_features
                layer.weight.normal_(0.0, (2.0 / (fan_in + fan_out)) ** 0.5)
                layer.bias.normal_(0.0, (1.0 / fan_out) ** 0.5)

    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        """Return logits (B,) for dense float (B, dense_dim) and categorical int32 (B, F, L)."""
        bottom = self.bottom(dense)  # (B, D)
        embedded = self.tables(categorical)  # (B, F, D)
        together = torch.cat([bottom.unsqueeze(1), embedded.to(bottom.dtype)], dim=1)  # (B, N, D)
        crossed = torch.cat([bottom, self.interaction(together)], dim=1)  # (B, D + N (N − 1) / 2)
        return self.top(crossed).squeeze(1)


def _mlp(width: int, widths: tuple[int, ...], *, last_relu: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out in widths:
        layers += [nn.Linear(width, out), nn.ReLU(inplace=True)]
        width = out
    return nn.Sequential(*(layers if last_relu else layers[:-1]))


class RowwiseAdagrad(torch.optim.Optimizer):
    """Divides the step of each row of a table by the root of the mean squares of its gradients, summed over steps.

    The optimiser of tables in production DLRMs, with one number of state per row: EXACT_ROWWISE_ADAGRAD of FBGEMM and
    TorchRec; Mudigere et al., ISCA 2022 (arXiv 2104.05158), §4.1.4.
    """

    def __init__(self, params: Iterable[Tensor], lr: float):
        super().__init__(params, {"lr": lr, "eps": 1e-10})
        for group in self.param_groups:
            for table in group["params"]:  # (R, D)
                self.state[table]["sum"] = torch.zeros(len(table), device=table.device)  # (R,)

    @torch.no_grad()
    def step(self) -> None:
        """Update the rows that have a gradient, sparse or dense."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None:
                    continue
                gradient = table.grad.to_sparse(1) if not table.grad.is_sparse else table.grad.coalesce()
                rows, values = gradient.indices()[0], gradient.values()  # (U,), (U, D)
                squares = self.state[table]["sum"]
                squares.index_add_(0, rows, values.square().mean(1))
                scale = group["lr"] / (squares[rows].sqrt() + group["eps"])
                table.index_add_(0, rows, values * scale.unsqueeze(1), alpha=-1)


class CompressedTables(nn.Module):
    """Sums of embeddings, from tables with a share of the rows; tables with few rows are unchanged.

    Each larger table has M rows, the same M for all. With `hash`, category i has row i mod M, which it shares with all
    categories of this remainder. With `quotient-remainder`, it has the elementwise product of row i mod M and row
    i div M of a second table, a pair that no other category has (Shi et al., KDD 2020, arXiv 1909.02107).
    """

    def __init__(
        self, num_rows: Sequence[int], embedding_dim: int, *, method: str, share: float, tables: type = TableAFeature
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
