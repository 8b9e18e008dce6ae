"""What benchmarks of a DLRM's step share: its shapes, batches, the step of the job, and the least it could take."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from measuring import in_turn

from labkit.fast import autocast
from labkit.hardware import matmul_gflops
from labkit.jobs import build_optimizers
from labkit.jobs.dlrm import build_model, loss_of
from labkit.models import Dlrm, DlrmConfig

CPU = torch.device("cpu")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LR = 0.01
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Shape:
    """A model and what a bag holds."""

    model: DlrmConfig
    pooling_factor: int = 1


SHAPES = {
    "small": Shape(
        DlrmConfig(
            dense_dim=13,
            num_rows=tuple(int(rows) for rows in np.geomspace(10_000, 100_000, 26)),
            embedding_dim=16,
            bottom_mlp=(512, 256, 64, 16),
            top_mlp=(512, 256, 1),
        )
    ),
    "benchmark": Shape(
        DlrmConfig(
            dense_dim=512,
            num_rows=(1_000_000,) * 8,
            embedding_dim=64,
            bottom_mlp=(512, 64),
            top_mlp=(1024, 1024, 1024, 1),
        ),
        pooling_factor=100,
    ),
}


def made_up_batch(shape: Shape, batch_size: int) -> Batch:
    """dense (B, dense_dim), categorical int32 (B, F, L), label (B,); uniform rows are the hardest on caches."""
    columns = [torch.randint(rows, (batch_size, 1, shape.pooling_factor)) for rows in shape.model.num_rows]
    dense = torch.randn(batch_size, shape.model.dense_dim)
    return dense, torch.cat(columns, 1).int(), (torch.rand(batch_size) < 0.25).float()


def stepper(
    config: DlrmConfig, optimiser: str = "sgd", *, kernels: str = "fast", lr: float = LR
) -> tuple[Dlrm, Callable[..., torch.Tensor]]:
    """A model, and the training step of the job on it: of a batch and a precision, it returns the loss."""
    model = build_model(config, kernels)
    optimizers = build_optimizers(model, optimiser, lr, kernels)

    def step(batch: Batch, precision: str = "fp32") -> torch.Tensor:
        with autocast(precision, CPU):
            loss = loss_of(model, batch)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return model, step


def precisions() -> list[str]:
    """fp32, and bf16 where its products are not slower here."""
    fp32, bf16 = (matmul_gflops(CPU, dtype) for dtype in DTYPES.values())
    return ["fp32", "bf16"] if bf16 >= fp32 else ["fp32"]


def step_flops(config: DlrmConfig, batch_size: int) -> float:
    """Floating-point operations of a step: two for each weight and sample forward, twice as many backward."""
    widths = [config.dense_dim, *config.bottom_mlp]
    features = config.num_tables + 1
    pairs = features * (features - 1) // 2
    top = [config.embedding_dim + pairs, *config.top_mlp]
    weights = sum(a * b for layers in (widths, top) for a, b in pairwise(layers))
    return 6.0 * batch_size * (weights + features * features * config.embedding_dim)


def lookups(shape: Shape, batch_size: int) -> int:
    """Table rows that a step names."""
    return batch_size * shape.model.num_tables * shape.pooling_factor


def rows_ms(shape: Shape, batch_size: int, table: torch.Tensor) -> float:
    """Milliseconds at least for the rows of a step: all from the table, and twice more from what they were."""
    named = lookups(shape, batch_size)
    gigabytes = 4e-9 * shape.model.embedding_dim * named
    return 1000 * gigabytes * (1 / gather_gb_per_s(table) + 2 / gather_gb_per_s(table[:named]))


def gather_gb_per_s(table: torch.Tensor) -> float:
    """Bytes a second, in 1e9, at which sums over random rows of a table are taken; the best of several."""
    bags = torch.randint(len(table), (4096, 100), dtype=torch.int32)
    taken = in_turn({"gather": lambda: F.embedding_bag(bags, table, mode="sum")}, turns=7)["gather"]
    return bags.numel() * table.shape[1] * 4 / min(taken) / 1e9
