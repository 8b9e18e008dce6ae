"""The parts of a model that students write in 33_make_it_fast: reference, what both are asked, usual mistakes.

Shapes: B batch, F tables, L lookups a bag, D embedding dim, R rows of all tables, V vectors that meet, P pairs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit_course.exercises.n10_model import drawn_vectors, gradient
from labkit_course.exercises.n33_make_it_fast import adam_rows, gather, sum_rows
from labkit_course.written import Case, WrittenExercise

# --- the interaction's backward pass


class Pairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vectors):
        ctx.save_for_backward(vectors)
        batch, count, _ = vectors.shape
        first, second = torch.tril_indices(count, count, offset=-1)  # (P,) each
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # (B, V V)
        return products.gather(1, (first * count + second).expand(batch, -1))

    @staticmethod
    def backward(ctx, gradient):
        (vectors,) = ctx.saved_tensors
        batch, count, _ = vectors.shape
        first, second = torch.tril_indices(count, count, offset=-1)
        place = torch.full((count, count), len(first))  # of the diagonal: the zero after the last pair
        place[first, second] = place[second, first] = torch.arange(len(first))
        both = F.pad(gradient, (0, 1)).gather(1, place.flatten().expand(batch, -1))
        return torch.bmm(both.view(batch, count, count), vectors)


PAIRS = WrittenExercise(
    Pairs,
    module="fast",
    cases=(
        Case("2 rows of 4 vectors", lambda code: code.apply(drawn_vectors(2, 4, 3))),
        Case("27 vectors a row", lambda code: code.apply(drawn_vectors(5, 27, 16))),
        Case("the gradient of 4 vectors", lambda code: gradient(code.apply, drawn_vectors(2, 4, 3))),
        Case("the gradient of a single pair", lambda code: gradient(code.apply, drawn_vectors(3, 2, 8))),
        Case(
            "its gradient beside finite differences, in double precision (gradcheck)",
            lambda code: torch.autograd.gradcheck(code.apply, drawn_vectors(2, 5, 3).double().requires_grad_()),
        ),
    ),
    mistakes={
        ("offset=-1)  # (P,) each", "offset=0)"): "A vector does not meet itself: leave the diagonal out.",
        ("tril_indices(count, count, offset=-1)  # (P,) each", "triu_indices(count, count, offset=1)"): (
            "The same products in another order: take pairs row by row *below* the diagonal."
        ),
        ("place[first, second] = place[second, first] =", "place[first, second] ="): (
            "A pair's gradient goes to *both* of its vectors: the matrix has it below and above the diagonal."
        ),
        ("both.view(batch, count, count), vectors)", "both.view(batch, count, count), vectors) / 2"): (
            "Each of the two gets the whole gradient times the other: do not halve it."
        ),
        (
            "torch.bmm(both.view(batch, count, count), vectors)",
            "both.view(batch, count, count).sum(2, keepdim=True) * vectors",
        ): "What a vector gets is the *other* vector times the pair's gradient: a matrix product.",
    },
    hint="If G is symmetric, has each pair's gradient at both of its places and 0 on the diagonal, the gradient of the "
    "vectors is G times the vectors: one gather that makes G, one torch.bmm.",
    explanation="Autograd would scatter the gradient number by number, and multiply twice.",
)

# --- the model


class FastDlrm(nn.Module):
    def __init__(self, model, interaction, bf16=False):
        super().__init__()
        self.bottom, self.top, self.interaction, self.bf16 = model.bottom, model.top, interaction, bf16
        self.weight = torch.cat([table.weight.detach() for table in model.tables])  # (R, D), no parameter
        lengths = torch.tensor([len(table.weight) for table in model.tables])
        self.starts = lengths.cumsum(0) - lengths  # (F,)

    def forward(self, dense, categorical):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            bottom = self.bottom(dense)  # (B, D)
            self.rows, self.found = gather(self.weight, self.starts, categorical)  # (B, F, L), (B, F, L, D)
            sums = self.found.sum(2).to(bottom.dtype)  # (B, F, D)
            pairs = self.interaction(torch.cat([bottom.unsqueeze(1), sums], dim=1))  # (B, P)
            logit = self.top(torch.cat([bottom, pairs], dim=1)).squeeze(1)
        return logit.float()


class _Plain(nn.Module):
    """What a `MyDlrm` has, with three small tables."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.bottom = nn.Sequential(nn.Linear(5, 4), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, 4, mode="sum") for rows in (3, 5, 2))
        self.top = nn.Sequential(nn.Linear(10, 1))


def _batch(lookups: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(lookups)
    most = torch.tensor([3, 5, 2]).unsqueeze(1)
    return torch.randn(6, 5, generator=generator), (torch.rand(6, 3, lookups, generator=generator) * most).int()


def _of_model(code: Any, lookups: int = 1) -> dict[str, Any]:
    """Logits, and what a step leaves for the optimiser."""
    given: list[tuple[int, ...]] = []

    def interaction(vectors: Tensor) -> Tensor:
        given.append(tuple(vectors.shape))
        return Pairs.apply(vectors)

    model = code(_Plain(), interaction)
    logit = model(*_batch(lookups))
    logit.sum().backward()
    return {
        "vectors that interaction was given": given,
        "logits": logit,
        "parameters, without the tables": sum(each.numel() for each in model.parameters()),
        "rows": getattr(model, "rows", None),
        "gradient of found": model.found.grad if hasattr(model, "found") else None,
    }


def _in_bf16(code: Any) -> dict[str, Any]:
    seen: list[str] = []

    def interaction(vectors: Tensor) -> Tensor:
        seen.append(str(vectors.dtype))
        return Pairs.apply(vectors)

    logit = code(_Plain(), interaction, True)(*_batch(1))
    return {"the interaction computes in": seen, "logits are": str(logit.dtype)}


MODEL = WrittenExercise(
    FastDlrm,
    module="fast",
    cases=(
        Case("three tables, one lookup a bag", _of_model),
        Case("two lookups a bag", lambda code: _of_model(code, 2)),
        Case("bf16=True", _in_bf16),
    ),
    mistakes={
        ("lengths.cumsum(0) - lengths", "lengths.cumsum(0)"): (
            "The first table begins at row 0, the second where the first ends: cumsum − lengths."
        ),
        ("lengths = ", "self.weight = nn.Parameter(self.weight)\n        lengths = "): (
            "The parameters are those of bottom and top: keep neither the model nor its tables, and weight as a tensor."
        ),
        ("logit = self.top(", "del self.rows, self.found\n            logit = self.top("): (
            "Keep rows and found as attributes: the optimiser needs them after backward."
        ),
        ("enabled=self.bf16", "enabled=False"): (
            "Where bf16 is True, compute within torch.autocast, and make the sums of its type."
        ),
        ("return logit.float()", "return logit"): (
            "Give the logit back as float32, logit.float(): the loss is computed in it."
        ),
    },
    hint="Take bottom and top over, concatenate the tables' detached weights; forward calls gather, sums the bags over "
    "dim 2, and goes on as MyDlrm does.",
    explanation="The same logits, from one table of all rows.",
)

# --- its optimiser


class RowAdam:
    def __init__(self, model, lr):
        self.model, self.lr, self.steps = model, lr, 0
        self.moments = torch.zeros_like(model.weight), torch.zeros_like(model.weight)

    @torch.no_grad()
    def step(self):
        self.steps += 1
        rows, sums = sum_rows(self.model.rows, self.model.found.grad)
        adam_rows(self.model.weight, self.moments, rows, sums, self.steps, self.lr)

    def zero_grad(self):
        pass  # the next forward pass makes a new leaf


def _three_steps(code: Any) -> list[Tensor]:
    model = FastDlrm(_Plain(), Pairs.apply)
    optimizer = code(model, 0.05)
    for lookups in (1, 2, 3):
        model(*_batch(lookups)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [model.weight, model(*_batch(4))]


ROW_ADAM = WrittenExercise(
    RowAdam,
    module="fast",
    cases=(Case("three steps", _three_steps),),
    mistakes={
        ("self.steps += 1", "self.steps = 1"): "Count the steps: the correction of the moments grows weaker with each.",
        ("torch.zeros_like(model.weight), torch.zeros_like(model.weight)", "2 * (torch.zeros_like(model.weight),)"): (
            "Two moments, two tensors of zeros: with one, each overwrites the other."
        ),
        ("pass  #", "self.model.weight.zero_()  #"): (
            "zero_grad has nothing to do here: the next forward pass makes a new leaf without a gradient."
        ),
    },
    hint="step counts, sums model.found.grad by model.rows, and calls adam_rows; zero_grad does nothing.",
    explanation="It steps as torch's optimisers do, so your loop takes it as it is.",
)

EXERCISES = {"33.pairs": PAIRS, "33.model": MODEL, "33.optimiser": ROW_ADAM}
