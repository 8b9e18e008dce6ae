"""The deep learning recommendation model (Naumov et al., arXiv 1906.00091) with three interactions.

Shapes: B batch, D embedding dim, F categorical features (tables), L pooling factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.errors import UserError
from labkit.models.dropout import ByteDropout
from labkit.models.interaction import PairwiseProducts
from labkit.models.tables import EmbeddingTables

INTERACTIONS = ("dot", "cat", "dcnv2")


@dataclass(frozen=True)
class DlrmConfig:
    """The shape of one DLRM."""

    dense_dim: int
    """Number of dense (continuous) features."""
    num_rows: tuple[int, ...]
    """Rows of each embedding table."""
    embedding_dim: int
    """Width of an embedding and of the bottom MLP's output."""
    bottom_mlp: tuple[int, ...]
    """Widths of the bottom MLP, input excluded; the last equals `embedding_dim`."""
    top_mlp: tuple[int, ...]
    """Widths of the top MLP, input excluded; the last is 1, the logit."""
    interaction: str = "dot"
    """How features meet: "dot" (pairwise dot products), "cat" (side by side), "dcnv2" (low-rank cross layers)."""
    cross_layers: int = 3
    """Layers of the cross network; "dcnv2" only."""
    cross_rank: int = 64
    """Rank of each cross layer's weight; "dcnv2" only."""
    dropout: float = 0.0
    """Dropout in the top MLP's hidden layers, as a probability."""

    def __post_init__(self):
        if self.interaction not in INTERACTIONS:
            raise UserError(f"interaction {self.interaction!r} is unknown: choose one of {', '.join(INTERACTIONS)}.")
        if self.bottom_mlp[-1] != self.embedding_dim:
            raise UserError(
                f"bottom_mlp ends in {self.bottom_mlp[-1]} but embedding_dim is {self.embedding_dim}: "
                "the bottom MLP's output meets the embeddings, so make its last width equal to embedding_dim."
            )
        if self.top_mlp[-1] != 1:
            raise UserError(f"top_mlp ends in {self.top_mlp[-1]}: its last width must be 1, the click's logit.")

    @property
    def num_tables(self) -> int:
        return len(self.num_rows)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the embedding tables in fp32, the part of a DLRM that outgrows memory."""
        return 4 * sum(self.num_rows) * self.embedding_dim


class Dlrm(nn.Module):
    """Bottom MLP and embeddings, their interaction, top MLP; returns one logit a sample."""

    def __init__(self, config: DlrmConfig, *, sparse: bool = True):
        """Build the model; `sparse` makes the tables' gradients sparse, as training at scale needs."""
        super().__init__()
        self.config = config
        features = config.num_tables + 1
        self.bottom = _mlp(config.dense_dim, config.bottom_mlp, last_relu=True)
        self.tables = EmbeddingTables(config.num_rows, config.embedding_dim, sparse=sparse)
        width = features * config.embedding_dim
        if config.interaction == "dot":
            self.products = PairwiseProducts(features)
            width = config.embedding_dim + features * (features - 1) // 2
        elif config.interaction == "dcnv2":
            self.cross = nn.ModuleList(CrossLayer(width, config.cross_rank) for _ in range(config.cross_layers))
        self.top = _mlp(width, config.top_mlp, last_relu=False, dropout=config.dropout)
        self._initialise()

    def _initialise(self):
        # As in the reference DLRM: uniform ±1/sqrt(rows) tables, Glorot-normal MLPs.
        with torch.no_grad():
            for part, rows in zip(self.tables.weight.split(self.config.num_rows), self.config.num_rows, strict=True):
                part.uniform_(-(rows**-0.5), rows**-0.5)
            for layer in [*self.bottom, *self.top]:
                if isinstance(layer, nn.Linear):
                    fan_in, fan_out = layer.in_features, layer.out_features
                    layer.weight.normal_(0.0, (2.0 / (fan_in + fan_out)) ** 0.5)
                    layer.bias.normal_(0.0, (1.0 / fan_out) ** 0.5)

    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        """Return logits (B,) for dense float (B, dense_dim) and categorical int32 (B, F, L)."""
        config = self.config
        bottom = self.bottom(dense)  # (B, D)
        embedded = self.tables(categorical)  # (B, F, D)
        together = torch.cat([bottom.unsqueeze(1), embedded.to(bottom.dtype)], dim=1)  # (B, F+1, D)
        if config.interaction == "dot":
            crossed = torch.cat([bottom, self.products(together)], dim=1)  # (B, D + F (F+1) / 2)
        else:
            crossed = together.flatten(1)
            if config.interaction == "dcnv2":
                first = crossed
                for layer in self.cross:
                    crossed = layer(first, crossed)
        return self.top(crossed).squeeze(1)


class CrossLayer(nn.Module):
    """One low-rank cross layer of DCN-V2 (Wang et al., WWW 2021, §3.4): x0 ⊙ (U Vᵀ x + b) + x."""

    def __init__(self, width: int, rank: int):
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        return first * self.up(self.down(x)) + x


def _mlp(width: int, widths: tuple[int, ...], *, last_relu: bool, dropout: float = 0.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index, out in enumerate(widths):
        layers.append(nn.Linear(width, out))
        last = index == len(widths) - 1
        if not last or last_relu:
            layers.append(nn.ReLU(inplace=True))
        if dropout and not last:
            layers.append(ByteDropout(dropout))
        width = out
    return nn.Sequential(*layers)
