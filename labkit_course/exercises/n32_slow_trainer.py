"""What students write in 32_profile_top_down to mend a trainer: reference, what both are asked, usual mistakes.

Shapes: B batch, F tables, R rows of a table, D embedding dim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from labkit_course.apparatus import hits_one_by_one, look_up_one_by_one
from labkit_course.written import Case, WrittenExercise


class _Calls(TorchFunctionMode):
    """Counts what torch is asked for."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        self.count += 1
        return function(*args, **(named or {}))


def calls(code: Callable[..., Any], *arguments: Any) -> int:
    """How many calls of torch it takes."""
    with _Calls() as counted:
        code(*arguments)
    return counted.count


# --- one lookup for all tables


def look_up(tables: Tensor, categorical: Tensor) -> Tensor:
    starts = tables.shape[1] * torch.arange(len(tables))
    return F.embedding(categorical + starts, tables.flatten(0, 1))


def _tables(count: int, rows: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, rows, 4, generator=generator), torch.randint(rows, (5, count), generator=generator)


def _gradient_of_lookup(code: Any) -> Tensor:
    tables, categorical = _tables(3)
    found = code(tables.requires_grad_(), categorical)
    (found * torch.arange(1.0, found.numel() + 1).view_as(found)).sum().backward()
    return tables.grad


LOOKUP = WrittenExercise(
    look_up,
    module="step",
    cases=(
        Case("three tables of 7 rows", lambda code: code(*_tables(3))),
        Case("64 tables of 500 rows", lambda code: code(*_tables(64, 500))),
        Case("the gradient of the tables", _gradient_of_lookup),
        Case(
            "as many calls of torch for 64 tables as for 4",
            lambda code: calls(code, *_tables(64)) == calls(code, *_tables(4)),
        ),
    ),
    mistakes={
        look_up_one_by_one: "Right, but with a call a table: number the rows over all tables, and call once.",
        (" + starts", ""): "All columns look into the first table: add to each the row at which its own begins.",
        ("tables.shape[1] * ", ""): "Table f begins at row f × R, with R rows a table, not at row f.",
        ("tables.flatten(0, 1))", "tables.flatten(0, 1)).flatten(1)"): "Keep the shape (B, F, D).",
        ("tables.flatten", "tables.detach().flatten"): "No gradient comes back to the tables: do not detach them.",
    },
    hint="Index 3 of table 2 is row 2 × R + 3 of tables.flatten(0, 1). Add to each column the row at which its table "
    "begins, and call F.embedding once.",
    explanation="One call does the work of 64.",
)

# --- a batch that can be learned from


def make_batch(size: int, tables: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
    dense = torch.rand(size, 13, generator=generator)
    categorical = torch.randint(500, (size, tables), generator=generator)
    odds = 4 * (dense[:, 0] - dense[:, 1]) - 1
    label = (torch.rand(size, generator=generator) < odds.sigmoid()).float()
    return dense, categorical, label


def _sample_by_sample(size: int, tables: int, generator: torch.Generator | None = None) -> tuple:
    samples = zip(*(make_batch(1, tables, generator) for _ in range(size)), strict=True)
    return tuple(map(torch.cat, samples))


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def _outside(code: Any) -> dict[str, Any]:
    dense, categorical, label = code(512, 8, _seeded())
    return {
        "shapes": [list(each.shape) for each in (dense, categorical, label)],
        "types": [str(each.dtype) for each in (dense, categorical, label)],
        "lowest and highest index": [int(categorical.min()) >= 0, int(categorical.max()) < 500],
        "labels": sorted(set(label.tolist())),
    }


def _likely(code: Any) -> dict[str, Any]:
    dense, categorical, label = code(50_000, 2, _seeded())
    taste = dense[:, 0] - dense[:, 1]
    return {
        "mean of the dense features": dense.mean(0),
        "share of clicks": label.mean(),
        "share of clicks where odds are high": label[taste > 0.5].mean(),
        "mean index": categorical.float().mean(0),
    }


BATCH = WrittenExercise(
    make_batch,
    module="step",
    cases=(
        Case("512 samples of 8 tables", _outside),
        Case(
            "a generator of the same seed, twice",
            lambda code: [
                bool((a == b).all()) for a, b in zip(code(9, 3, _seeded()), code(9, 3, _seeded()), strict=True)
            ],
        ),
        Case(
            "as many calls of torch for 64 samples as for 8",
            lambda code: calls(code, 64, 3, _seeded()) == calls(code, 8, 3, _seeded()),
        ),
        Case("50,000 samples of 2 tables", _likely, relative=0.03),
    ),
    mistakes={
        ("return dense, categorical, label", "return dense, categorical, label[torch.randperm(size)]"): (
            "The labels have nothing to do with the features: draw each with the probability that its odds give."
        ),
        _sample_by_sample: "Right, but a sample at a time: draw the whole batch in four calls.",
        ("torch.rand(size, generator=generator) < odds.sigmoid()", "odds > 0"): (
            "Odds are a probability's logarithm, not a verdict: draw the label, torch.rand(size) < odds.sigmoid()."
        ),
        lambda size, tables, generator=None: make_batch(size, tables): (
            "Hand the generator to each draw: without it, a seed does not repeat the batch."
        ),
        (".float()", ""): "The loss wants labels as float32, 0.0 or 1.0: .float().",
    },
    hint="torch.rand for the dense features and for the draw of the label, torch.randint(500, ...) for the indices, "
    "each of the whole batch and with the generator.",
    explanation="Four draws a batch, whatever its size; and there is something to learn.",
)

# --- counting hits


def hits(logit: Tensor, label: Tensor) -> Tensor:
    return ((logit > 0) == (label > 0.5)).sum()


def _logits(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, generator=generator), torch.rand(size, generator=generator).round()


HITS = WrittenExercise(
    hits,
    module="step",
    cases=(
        Case("512 logits", lambda code: code(*_logits(512))),
        Case(
            "four logits, two of them 0",
            lambda code: code(torch.tensor([0.0, 0.0, 0.2, -3.0]), torch.tensor([0.0, 0.0, 1.0, 0.0])),
        ),
        Case(
            "as many calls of torch for 64 logits as for 8",
            lambda code: calls(code, *_logits(64)) == calls(code, *_logits(8)),
        ),
        Case("of what type the sum is", lambda code: type(code(*_logits(8))).__name__),
    ),
    mistakes={
        (".sum()", ".sum().item()"): "int() and .item() read a number, and wait for it: return the sum as a tensor.",
        hits_one_by_one: "That reads each number by itself: compare whole tensors, and sum what is equal.",
        ("logit > 0)", "logit > 0.5)"): "A logit above 0, not above 0.5, means a probability above one half.",
        (".sum()", ".float().mean()"): "The number of hits, not their share.",
        ("logit > 0)", "logit >= 0)"): "A logit of exactly 0 is not above 0.",
    },
    hint="(logit > 0) and (label > 0.5) are tensors of truth values. Where are they equal? Sum, and leave it a tensor.",
    explanation="Nothing is read from the tensors until somebody wants the sum.",
)

EXERCISES = {"32.lookup": LOOKUP, "32.make_batch": BATCH, "32.hits": HITS}
