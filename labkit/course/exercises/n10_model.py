"""What students write in 10_train_dlrm of the model.

Shapes: B batch, D embedding dim, F tables, L lookups a bag, V = F + 1 vectors that meet, P = V (V − 1) / 2 pairs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.course.written import Case, WrittenExercise
from labkit.models.dlrm import Dlrm, DlrmConfig

# --- the interaction


def interaction(vectors):
    products = torch.bmm(vectors, vectors.transpose(1, 2))  # (B, V, V)
    first, second = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)
    return products[:, first, second]


def _products(vectors: Tensor, *, offset: int = -1, upper: bool = False) -> Tensor:
    indices = torch.triu_indices if upper else torch.tril_indices
    first, second = indices(vectors.shape[1], vectors.shape[1], offset=offset)
    return torch.bmm(vectors, vectors.transpose(1, 2))[:, first, second]


def _vectors(batch: int, count: int, width: int) -> Tensor:
    return torch.randn(batch, count, width, generator=torch.Generator().manual_seed(count))


def _gradient_of_interaction(code: Any) -> Tensor:
    vectors = _vectors(2, 4, 3).requires_grad_()
    out = code(vectors)
    (out * torch.arange(1.0, out.numel() + 1).view_as(out)).sum().backward()
    return vectors.grad


INTERACTION = WrittenExercise(
    interaction,
    module="dlrm",
    cases=(
        Case("2 rows of 4 vectors", lambda code: code(_vectors(2, 4, 3))),
        Case("27 vectors a row, as the click log gives", lambda code: code(_vectors(5, 27, 16))),
        Case("a single table", lambda code: code(_vectors(3, 2, 8))),
        Case("the gradient of the vectors", _gradient_of_interaction),
    ),
    mistakes={
        (lambda vectors: _products(vectors, offset=0)): ("A vector does not meet itself: leave the diagonal out."),
        (lambda vectors: torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)): (
            "All V² products are there; each pair counts once, and none with itself."
        ),
        (lambda vectors: _products(vectors, offset=1, upper=True)): (
            "These are the right products in another order: take the pairs below the diagonal, row by row "
            "(torch.tril_indices with offset=-1), so that weights can be copied from model to model."
        ),
        (lambda vectors: interaction(vectors) / vectors.shape[2] ** 0.5): (
            "A DLRM does not divide by the square root of the width; attention does."
        ),
        (lambda vectors: interaction(F.normalize(vectors, dim=2))): ("A dot product, not the cosine of the angle."),
        (lambda vectors: interaction(vectors.detach()).requires_grad_()): (
            "No gradient comes back to the vectors: neither detach them nor leave torch."
        ),
    },
    hint="`torch.bmm` of the vectors and their transpose gives all V × V products; keep the pairs below the diagonal.",
    explanation="27 vectors make 351 pairs, and the product computes 729: which of the two you count matters later.",
)

# --- the model


def mlp(width, widths):
    layers = []
    for out in widths:
        layers += [nn.Linear(width, out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers)


class MyDlrm(nn.Module):
    def __init__(self, config):
        super().__init__()
        vectors = config.num_tables + 1
        self.bottom = mlp(config.dense_dim, config.bottom_mlp)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, config.embedding_dim, mode="sum") for rows in config.num_rows)
        for table in self.tables:
            bound = len(table.weight) ** -0.5
            nn.init.uniform_(table.weight, -bound, bound)
        self.top = mlp(config.embedding_dim + vectors * (vectors - 1) // 2, config.top_mlp)[:-1]

    def forward(self, dense, categorical):
        bottom = self.bottom(dense)  # (B, D)
        sums = [table(categorical[:, f]) for f, table in enumerate(self.tables)]  # F of (B, D)
        vectors = torch.stack([bottom, *sums], dim=1)  # (B, V, D)
        return self.top(torch.cat([bottom, interaction(vectors)], dim=1)).squeeze(1)


class _ReluAtTheEnd(MyDlrm):
    def __init__(self, config: DlrmConfig):
        super().__init__(config)
        self.top.append(nn.ReLU())


class _Sigmoid(MyDlrm):
    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        return super().forward(dense, categorical).sigmoid()


class _Column(MyDlrm):
    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        return super().forward(dense, categorical).unsqueeze(1)


class _MeanOfBags(MyDlrm):
    def __init__(self, config: DlrmConfig):
        super().__init__(config)
        for table in self.tables:
            table.mode = "mean"


class _BottomLast(MyDlrm):
    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        sums = [table(categorical[:, f]) for f, table in enumerate(self.tables)]
        return self.top(torch.cat([bottom, interaction(torch.stack([*sums, bottom], dim=1))], dim=1)).squeeze(1)


class _DefaultTables(MyDlrm):
    def __init__(self, config: DlrmConfig):
        super().__init__(config)
        for table in self.tables:
            table.reset_parameters()


SMALL = DlrmConfig(5, (7, 11, 4), 6, (8, 6), (9, 1))
ONE_TABLE = DlrmConfig(3, (10,), 4, (4,), (1,))
ALIKE = DlrmConfig(3, (900, 900), 8, (8,), (1,))


def _logits(code: Any, config: DlrmConfig, lookups: int, *, of_gradients: bool = False) -> Any:
    """Logits of the student's model with the weights of the kit's, or which of its weights got a gradient."""
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    kit, model = Dlrm(config), code(config)
    with torch.no_grad():
        for ours, theirs in zip(_weights(kit), _weights(model), strict=True):
            theirs.copy_(ours)
    dense = torch.randn(6, config.dense_dim, generator=generator)
    most = torch.tensor(config.num_rows)[:, None]
    categorical = (torch.rand(6, len(most), lookups, generator=generator) * most).int()
    logits = model(dense, categorical)
    if not of_gradients:
        return logits
    logits.sum().backward()
    return [bool(weight.grad is not None) for weight in _weights(model)]


def _first_weights(code: Any) -> dict[str, bool]:
    torch.manual_seed(0)
    largest = [float(table.weight.detach().abs().max()) * 900**0.5 for table in code(ALIKE).tables]
    return {"within ±1/√rows": max(largest) <= 1, "up to the bounds": min(largest) > 0.98}


def _weights(model: nn.Module) -> list[Tensor]:
    return [*model.bottom.parameters(), *model.tables.parameters(), *model.top.parameters()]


MODEL = WrittenExercise(
    MyDlrm,
    module="dlrm",
    cases=(
        Case("three tables and the weights of labkit's model", lambda code: _logits(code, SMALL, 1)),
        Case("bags of three lookups", lambda code: _logits(code, SMALL, 3)),
        Case("a single table and MLPs of one layer", lambda code: _logits(code, ONE_TABLE, 1)),
        Case("which weights get a gradient", lambda code: _logits(code, SMALL, 1, of_gradients=True)),
        Case("the first values of two tables of 900 rows", _first_weights),
    ),
    mistakes={
        (_ReluAtTheEnd): ("The last layer of the top MLP gives the logit, which may be negative: no ReLU after it."),
        (_Sigmoid): ("Return logits: the loss, binary_cross_entropy_with_logits, applies the sigmoid itself."),
        (_Column): ("Return one logit a row, of shape (B,): squeeze the last dimension."),
        (_MeanOfBags): ('A bag of several lookups is summed here: nn.EmbeddingBag averages unless mode is "sum".'),
        (_DefaultTables): (
            "nn.EmbeddingBag starts from N(0, 1): far too large, and learning first has to undo it. Draw each table "
            "from ±1/√rows (nn.init.uniform_)."
        ),
        (_BottomLast): ("The bottom MLP's vector comes first, then the tables in their order."),
    },
    hint="bottom, tables and top are attributes; stack the bottom's vector and the F sums to (B, V, D); the top MLP "
    "reads the bottom's vector and the pairs, concatenated.",
    explanation="With the same weights your model gives the same logits as labkit's.",
)

# --- a sanity check: 64 rows by heart


def overfit(model, optimizers, batch, steps):
    dense, categorical, label = batch
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def _by_heart(code: Any, steps: int, lr: float) -> dict[str, Any]:
    torch.manual_seed(0)
    model, generator = MyDlrm(ONE_TABLE), torch.Generator().manual_seed(5)
    batch = torch.randn(8, 3, generator=generator), torch.arange(8).view(8, 1, 1), torch.arange(8) % 2.0
    halves = model.tables.parameters(), [*model.bottom.parameters(), *model.top.parameters()]
    losses = code(model, [torch.optim.SGD(part, lr=lr) for part in halves], batch, steps)
    return {"losses": losses, "plain numbers": all(isinstance(each, float) for each in losses)}


def _steps(*, clean: bool = True, step: bool = True, plain: bool = True, after: bool = False) -> Any:
    def code(model: nn.Module, optimizers: list, batch: tuple, steps: int) -> list:
        dense, categorical, label = batch
        losses = []
        for _ in range(steps):
            loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
            for optimizer in optimizers if clean else ():
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers if step else ():
                optimizer.step()
            if after:
                loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
            losses.append(loss.item() if plain else loss)
        return losses

    return code


def _first_alone(model: nn.Module, optimizers: list, batch: tuple, steps: int) -> list:
    return overfit(model, optimizers[:1], batch, steps)


OVERFIT = WrittenExercise(
    overfit,
    module="dlrm",
    cases=(
        Case("12 steps on one batch of 8 rows", lambda code: _by_heart(code, 12, 0.5)),
        Case("4 smaller ones", lambda code: _by_heart(code, 4, 0.1)),
    ),
    mistakes={
        (_steps(clean=False)): ("Gradients add up from step to step: clear them (zero_grad) before each backward."),
        (_steps(step=False)): ("The loss stays: no optimiser steps."),
        (_steps(plain=False)): ("Keep loss.item(), a number: a tensor keeps its whole graph in memory."),
        (_steps(after=True)): ("Keep the loss that the step was computed from; a second forward pass is not needed."),
        (_first_alone): ("Step all optimisers, not the first alone."),
    },
    hint="`steps` times: the loss of the batch, clear the gradients, backward, step all optimisers, keep the loss.",
    explanation="If this does not go to zero on 64 rows, nothing will be learnt from 50,000 either.",
)

EXERCISES = {
    "10.interaction": INTERACTION,
    "10.model": MODEL,
    "10.overfit": OVERFIT,
}
