"""What students write in 10_train_dlrm of the model.

Shapes: B batch, D embedding dim, F tables, L lookups a bag, V = F + 1 vectors that meet, P = V (V − 1) / 2 pairs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.models import Dlrm, DlrmConfig
from labkit_course.written import Case, WrittenExercise

# --- the interaction


def interaction(vectors):
    products = torch.bmm(vectors, vectors.transpose(1, 2))  # (B, V, V)
    first, second = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)
    return products[:, first, second]


def drawn_vectors(batch: int, count: int, width: int) -> Tensor:
    return torch.randn(batch, count, width, generator=torch.Generator().manual_seed(count))


def gradient(code: Any, given: Tensor) -> Tensor:
    """Of a weighted sum of what code gives, by what it is given."""
    out = code(given.requires_grad_())
    (out * torch.arange(1.0, out.numel() + 1).view_as(out)).sum().backward()
    return given.grad


INTERACTION = WrittenExercise(
    interaction,
    module="dlrm",
    cases=(
        Case("2 rows of 4 vectors", lambda code: code(drawn_vectors(2, 4, 3))),
        Case("27 vectors a row, as the click log gives", lambda code: code(drawn_vectors(5, 27, 16))),
        Case("a single table", lambda code: code(drawn_vectors(3, 2, 8))),
        Case("the gradient of the vectors", lambda code: gradient(code, drawn_vectors(2, 4, 3))),
    ),
    mistakes={
        ("offset=-1", "offset=0"): "A vector does not meet itself: leave the diagonal out.",
        ("[:, first, second]", ".flatten(1)"): (
            "All V² products are there; each pair counts once, and none with itself."
        ),
        lambda vectors: interaction(vectors.flip(1)).flip(1): (  # the pairs above the diagonal, row by row
            "These are the right products in another order: take the pairs below the diagonal, row by row "
            "(torch.tril_indices with offset=-1), so that weights can be copied from model to model."
        ),
        ("[:, first, second]", "[:, first, second] / vectors.shape[2] ** 0.5"): (
            "A DLRM does not divide by the square root of the width; attention does."
        ),
        lambda vectors: interaction(F.normalize(vectors, dim=2)): "A dot product, not the cosine of the angle.",
        lambda vectors: interaction(vectors.detach()).requires_grad_(): (
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


SMALL = DlrmConfig(5, (7, 11, 4), 6, (8, 6), (9, 1))
ONE_TABLE = DlrmConfig(3, (10,), 4, (4,), (1,))
LARGE = DlrmConfig(3, (9_000, 16_000), 8, (8,), (1,))


def _shapes(code: Any) -> dict[str, list[str]]:
    model = code(SMALL)
    return {
        part: [str(tuple(each.shape)) for each in getattr(model, part).parameters()]
        for part in ("bottom", "tables", "top")
    }


def _logits(code: Any, config: DlrmConfig, lookups: int, *, batch: int = 6, of_gradients: bool = False) -> Any:
    """Logits of the student's model with the weights of the kit's, or which of its weights got a gradient."""
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    kit, model = Dlrm(config), code(config)
    with torch.no_grad():
        for ours, theirs in zip(_weights(kit), _weights(model), strict=True):
            theirs.copy_(ours)
    dense = torch.randn(batch, config.dense_dim, generator=generator)
    most = torch.tensor(config.num_rows)[:, None]
    categorical = (torch.rand(batch, len(most), lookups, generator=generator) * most).int()
    logits = model(dense, categorical)
    if not of_gradients:
        return logits
    logits.sum().backward()
    return [bool(weight.grad is not None) for weight in _weights(model)]


def _first_weights(code: Any) -> Tensor:
    """Of two tables least, quartiles and largest of the first values times √rows: -1, -0.5, 0, 0.5, 1 but for luck."""
    torch.manual_seed(0)
    scaled = [table.weight.detach() * len(table.weight) ** 0.5 for table in code(LARGE).tables]
    return torch.stack([each.quantile(torch.linspace(0, 1, 5)) for each in scaled])  # (2, 5)


def _weights(model: nn.Module) -> list[Tensor]:
    return [*model.bottom.parameters(), *model.tables.parameters(), *model.top.parameters()]


MODEL = WrittenExercise(
    MyDlrm,
    module="dlrm",
    cases=(
        Case("the shapes of the weights", _shapes),
        Case("three tables and the weights of labkit's model", lambda code: _logits(code, SMALL, 1)),
        Case("bags of three lookups", lambda code: _logits(code, SMALL, 3)),
        Case("one row, a single table and MLPs of one layer", lambda code: _logits(code, ONE_TABLE, 1, batch=1)),
        Case("which weights get a gradient", lambda code: _logits(code, SMALL, 1, of_gradients=True)),
        # luck is a fifth of it, of the medians of two draws of 72,000 values
        Case("the first values of two tables, their quartiles times √rows", _first_weights, relative=0.03),
    ),
    mistakes={
        ("config.top_mlp)[:-1]", "config.top_mlp)"): (
            "The last layer of the top MLP gives the logit, which may be negative: no ReLU after it."
        ),
        (".squeeze(1)", ".squeeze(1).sigmoid()"): (
            "Return logits: the loss, binary_cross_entropy_with_logits, applies the sigmoid itself."
        ),
        (".squeeze(1)", ""): "Return one logit a row, of shape (B,): squeeze the last dimension.",
        (".squeeze(1)", ".squeeze()"): "Say which dimension to squeeze: a batch of one row loses its own, too.",
        ("config.bottom_mlp)", "config.bottom_mlp)[:-1]"): "The bottom MLP keeps its last ReLU; only the top has none.",
        ("[bottom, interaction(vectors)]", "[interaction(vectors), bottom]"): (
            "For the top MLP the bottom's vector comes first, then the pairs."
        ),
        (', mode="sum"', ""): (
            'A bag of several lookups is summed here: nn.EmbeddingBag averages unless mode is "sum".'
        ),
        ("nn.init.uniform_(table.weight, -bound, bound)", "pass"): (
            "nn.EmbeddingBag starts from N(0, 1): far too large, and learning first has to undo it. Draw each table "
            "from ±1/√rows (nn.init.uniform_)."
        ),
        ("-bound, bound", "0, bound"): "All first weights are positive: draw them from −1/√rows to 1/√rows.",
        (
            "bound = len(table.weight)",
            "bound = config.num_rows[0]",
        ): "Each table has a bound of its own: ±1/√(its rows).",
        ("[bottom, *sums]", "[*sums, bottom]"): "The bottom MLP's vector comes first, then the tables in their order.",
    },
    hint="bottom, tables (an nn.ModuleList) and top are attributes; stack the bottom's vector and the F sums to "
    "(B, V, D); the top MLP reads the bottom's vector and the pairs, concatenated.",
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


OVERFIT = WrittenExercise(
    overfit,
    module="dlrm",
    cases=(
        Case("12 steps on one batch of 8 rows", lambda code: _by_heart(code, 12, 0.5)),
        Case("4 smaller ones", lambda code: _by_heart(code, 4, 0.1)),
    ),
    mistakes={
        ("optimizer.zero_grad()", "pass"): (
            "Gradients add up from step to step: clear them (zero_grad) before each backward."
        ),
        ("optimizer.step()", "pass"): "The loss stays: no optimiser steps.",
        ("loss.item()", "loss"): "Keep loss.item(), a number: a tensor keeps its whole graph in memory.",
        ("loss.item()", "F.binary_cross_entropy_with_logits(model(dense, categorical), label).item()"): (
            "Keep the loss that the step was computed from; a second forward pass is not needed."
        ),
        lambda model, optimizers, *rest: overfit(model, optimizers[:1], *rest): (
            "Step all optimisers, not the first alone."
        ),
    },
    hint="`steps` times: the loss of the batch, clear the gradients, backward, step all optimisers, keep the loss.",
    explanation="If this does not go to zero on 64 rows, nothing will be learnt from the whole log either.",
)

EXERCISES = {
    "10.interaction": INTERACTION,
    "10.model": MODEL,
    "10.overfit": OVERFIT,
}
