"""A trainer of a small DLRM with five bottlenecks, and what fixes each of them.

The first two are those of a well-known benchmark's random data: labels that have nothing to do with the features, made
one sample at a time in Python (facebookresearch/dlrm, `dlrm_data_pytorch.py`); and one lookup a table.

Shapes: B batch, F tables, D embedding dim.
"""

import random
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.tracking import BACKWARD, FORWARD, INPUT, OPTIMISER, phase

DENSE, TABLES, ROWS, DIM, HIDDEN = 13, 64, 500, 16, 512
Batch = tuple[Tensor, Tensor, Tensor]
"""dense float32 (B, DENSE), categorical int64 (B, F), label float32 (B,)."""


def batch_in_python(size: int, tables: int = TABLES) -> Batch:
    """Random samples, made one after the other."""
    samples = range(size)
    dense = [[random.random() for _ in range(DENSE)] for _ in samples]
    categorical = [[random.randrange(ROWS) for _ in range(tables)] for _ in samples]
    label = [float(random.random() < 0.25) for _ in samples]
    return torch.tensor(dense), torch.tensor(categorical), torch.tensor(label)


def look_up_one_by_one(tables: Tensor, categorical: Tensor) -> Tensor:
    """The embeddings (B, F, D) that indices (B, F) name in tables (F, ROWS, D): a call a table."""
    found = [F.embedding(categorical[:, number], table) for number, table in enumerate(tables.unbind(0))]
    return torch.stack(found, dim=1)


def hits_one_by_one(logit: Tensor, label: Tensor) -> float:
    """How many samples were called right, counted one after the other."""
    hits = 0
    for guessed, right in zip(logit, label, strict=True):
        hits += (guessed.item() > 0) == (right.item() > 0.5)
    return hits


class SlowTrainer:
    """Trains on random samples; each of the first five arguments is a place to look at."""

    def __init__(
        self,
        *,
        make_batch: Callable[[int, int], Batch] = batch_in_python,
        look_up: Callable[[Tensor, Tensor], Tensor] = look_up_one_by_one,
        count_hits: Callable[[Tensor, Tensor], float | Tensor] = hits_one_by_one,
        precision: str = "fp32",
        batch_size: int = 32,
        tables: int = TABLES,
        hidden: int = HIDDEN,
    ):
        torch.manual_seed(0)
        self.make_batch, self.look_up, self.count_hits = make_batch, look_up, count_hits
        self.precision, self.batch_size = precision, batch_size
        self.tables = nn.Parameter(torch.randn(tables, ROWS, DIM) * 0.05)
        self.bottom = nn.Sequential(nn.Linear(DENSE, DIM), nn.ReLU())
        widths = [(tables + 1) * DIM, hidden, hidden]
        layers = [part for sizes in pairwise(widths) for part in (nn.Linear(*sizes), nn.ReLU())]
        self.top = nn.Sequential(*layers, nn.Linear(hidden, 1))
        parameters = [self.tables, *self.bottom.parameters(), *self.top.parameters()]
        self.optimiser = torch.optim.SGD(parameters, lr=0.01, fused=True)
        self.hits: float | Tensor = 0

    def step(self) -> None:
        """Take one step."""
        with phase(INPUT):
            dense, categorical, label = self.make_batch(self.batch_size, len(self.tables))
        with phase(FORWARD), torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            embedded = self.look_up(self.tables, categorical)  # (B, F, D)
            together = torch.cat([self.bottom(dense), embedded.flatten(1)], dim=1)  # (B, (F + 1) D)
            logit = self.top(together).squeeze(1).float()
            loss = F.binary_cross_entropy_with_logits(logit, label)
        with phase(BACKWARD):
            loss.backward()
        with phase(OPTIMISER):
            self.optimiser.step()
            self.optimiser.zero_grad()
        self.hits = self.hits + self.count_hits(logit.detach(), label)
