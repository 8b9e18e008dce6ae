"""A small DLRM over any placement, trained on batches that repeat rows."""

import numpy as np
import torch

from labkit.jobs import OPTIMISERS
from labkit.jobs.dlrm import loss_of
from labkit.models import Dlrm, DlrmConfig
from labkit.placement import ahead, placed_tables
from labkit.placement.settings import Placement
from labkit.placement.tables import PlacedOptimiser

SMALL = DlrmConfig(4, (700, 3, 1300), 6, (8, 6), (8, 1))


def batches(count: int, *, size: int = 24, pooling: int = 2, seed: int = 0) -> list[tuple]:
    """dense (B, 4), categorical int32 (B, 3, L) with Zipf-like rows, label (B,)."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(count):
        columns = [rng.zipf(1.3, (size, 1, pooling)) % rows for rows in SMALL.num_rows]
        dense, label = rng.normal(size=(size, 4)), rng.random(size) < 0.4
        made.append(
            tuple(
                torch.from_numpy(part)
                for part in (dense.astype("f4"), np.concatenate(columns, 1).astype("i4"), label.astype("f4"))
            )
        )
    return made


class Training:
    """A model and its optimisers under a placement; its flags as keywords."""

    def __init__(self, folder, placement: str, *, optimiser: str = "adagrad", lr: float = 0.05, **flags):
        torch.manual_seed(1)
        self.model = Dlrm(SMALL, tables=placed_tables(Placement(placement, **flags), optimiser, folder=folder))
        dense = [*self.model.bottom.parameters(), *self.model.top.parameters()]
        kinds = OPTIMISERS[optimiser]
        self.dense, self.tables = kinds[0](dense, lr=lr), None
        if placement == "device":
            self.tables = kinds[1]([self.model.tables.weight], lr=lr)
        else:
            self.tables = PlacedOptimiser(self.model.tables, lr)

    def step(self, batch) -> float:
        loss = loss_of(self.model, batch)
        loss.backward()
        for optimiser in (self.dense, self.tables):
            optimiser.step()
            optimiser.zero_grad()
        return loss.item()

    def train(self, some, *, prefetches: bool = True, evaluates_on=None, every: int = 7) -> list[float]:
        """Losses of the steps, and every so often that of an evaluation."""
        losses = []
        for number, batch in enumerate(ahead(self.model.tables, some) if prefetches else some):
            losses.append(self.step(batch))
            if evaluates_on is not None and number % every == every - 1:
                losses.append(self.evaluate(evaluates_on))
        return losses

    @torch.inference_mode()
    def evaluate(self, batch) -> float:
        self.model.eval()
        loss = loss_of(self.model, batch).item()
        self.model.train()
        return loss

    def close(self) -> None:
        if hasattr(self.model.tables, "store"):
            self.model.tables.store.close()
