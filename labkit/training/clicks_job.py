"""The DLRM job: rows of a click log, binary cross-entropy, AUC and its kin."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.data.clicks.order import EpochOrder
from labkit.data.clicks.prepared import ClickLog, ClickSplit
from labkit.fast.models import fast_dlrm
from labkit.models.dlrm import DlrmConfig
from labkit.training.metrics import CLICK_METRICS, click_metrics
from labkit.training.phases import TO_DEVICE, phase

# Rows a forward pass of an evaluation: large enough to keep the device busy, small beside 2 GB of memory.
EVALUATION_ROWS = 8192

ClickBatch = tuple[Tensor, Tensor, Tensor]
"""dense float32 (B, dense_dim), categorical int32 (B, F, L), label float32 (B,)."""


class ClicksJob:
    """Trains a DLRM on a prepared click log."""

    name = "dlrm"
    sparse_parameters = ("tables.weight",)
    metrics = CLICK_METRICS

    def __init__(self, log: ClickLog, model: DlrmConfig, *, batch_size: int, seed: int, device: torch.device):
        self.log, self.batch_size, self.seed, self.device = log, batch_size, seed, device
        self.model: nn.Module = fast_dlrm(model).to(device)
        self._train = log.split("train")
        self.train_samples = len(self._train.label)

    def describe(self) -> str:
        config = self.model.config
        return (
            f"{config.dense_dim}-{'-'.join(map(str, config.bottom_mlp))} / {'-'.join(map(str, config.top_mlp))}, "
            f"dot, {self._tables()}, {self.log.pooling_factor} lookups, batch {self.batch_size}"
        )

    def _tables(self) -> str:
        sizes = self.model.config.num_rows
        if len(set(sizes)) == 1:
            return f"{len(sizes)} tables of {sizes[0]:,} rows"
        mark = hashlib.blake2s(str(sizes).encode(), digest_size=3).hexdigest()
        return f"{len(sizes)} tables of {min(sizes):,} to {max(sizes):,} rows ({mark})"

    def num_batches(self, epoch: int) -> int:
        return -(-self.train_samples // self.batch_size)

    def batches(self, epoch: int, start: int) -> Iterator[tuple[ClickBatch, int]]:
        order = EpochOrder(self.train_samples, self.seed, epoch)
        for index in range(start, self.num_batches(epoch)):
            rows = order.rows(index * self.batch_size, (index + 1) * self.batch_size)
            yield self._load(self._train, rows), len(rows)

    def loss(self, batch: ClickBatch) -> Tensor:
        dense, categorical, label = batch
        logit = self.model(dense, categorical)
        return F.binary_cross_entropy_with_logits(logit.float(), label)

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        rows = self.log.split(split)
        logits = []
        for start in range(0, len(rows.label), EVALUATION_ROWS):
            dense, categorical, _ = self._load(rows, slice(start, start + EVALUATION_ROWS))
            logits.append(model(dense, categorical).float().cpu())
        return click_metrics(np.asarray(rows.label), torch.cat(logits).numpy())

    def _load(self, split: ClickSplit, rows: np.ndarray | slice) -> ClickBatch:
        # np.array copies a slice of the memory map, which is read-only, into memory torch may own
        arrays = np.array(split.dense[rows]), np.array(split.categorical[rows]), np.array(split.label[rows], np.float32)
        with phase(TO_DEVICE):
            dense, categorical, label = (torch.from_numpy(a).to(self.device, non_blocking=True) for a in arrays)
        return dense, categorical, label
