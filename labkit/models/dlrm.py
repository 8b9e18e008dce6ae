"""The deep learning recommendation model (Naumov et al., arXiv 1906.00091) in textbook form.

Shapes: B batch, D embedding dim, F categorical features (tables), L pooling factor, N = F + 1 features that meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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
        first, second = torch.tril_indices(count, count, offset=-1)
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return (B, N (N − 1) / 2) for (B, N, D)."""
        products = torch.bmm(features, features.transpose(1, 2))  # (B, N, N)
        return products[:, self.first, self.second]


class Dlrm(nn.Module):
    """Bottom MLP and embeddings, their interaction, top MLP; returns one logit per sample."""

    def __init__(
        self,
        config: DlrmConfig,
        *,
        tables: Callable = TableAFeature,
        interaction: Callable[[int], nn.Module] = PairwiseDots,
    ):
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
