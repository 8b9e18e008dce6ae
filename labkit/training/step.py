"""One training step, and the kinds of it that lead to the same weights at different speeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labkit.training.config import TrainConfig
from labkit.training.job import Job
from labkit.training.optimisers import Optimisers
from labkit.training.phases import BACKWARD, FORWARD, OPTIMISER, phase


@dataclass(frozen=True)
class StepKind:
    """How a step computes."""

    precision: str
    """"fp32", or "bf16" (autocast)."""
    compiled_tables: bool = False
    """Whether embedding tables are updated by the kernels in `table_kernels`, or by torch."""

    def __str__(self) -> str:
        return self.precision + (" with compiled tables" if self.compiled_tables else "")

    def autocast(self, device: torch.device) -> torch.autocast:
        """The context in which a forward pass runs."""
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")


class TrainStep:
    """Forward, backward and update of one job."""

    def __init__(self, job: Job, config: TrainConfig, kind: StepKind, device: torch.device):
        self.job, self.kind, self.device = job, kind, device
        total_steps = job.num_batches(0) * config.max_epochs
        self.optimisers = Optimisers(
            job.model, job.sparse_parameters, config, total_steps, compiled_tables=kind.compiled_tables
        )

    def __call__(self, batch: Any, index: int) -> Tensor:
        """Take step number `index` (from 0) on a batch; return its loss (scalar)."""
        with phase(FORWARD), self.kind.autocast(self.device):
            loss = self.job.loss(batch)
        with phase(BACKWARD):
            loss.backward()
        with phase(OPTIMISER):
            self.optimisers.step(index)
        return loss.detach()
