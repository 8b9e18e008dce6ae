"""A DLRM and its pipeline as a textbook has them: what the fast path is measured against.

An `nn.EmbeddingBag` for each table with sparse gradients, a triangle of dot products taken by index, one optimiser for
all; rows parsed line by line in Python, samples collated one by one. Nothing here is slowed down on purpose: it is how
the reference implementation and most tutorials are written.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from labkit.models.dlrm import Dlrm, DlrmConfig
from labkit.models.rowwise_adagrad import RowwiseAdagrad


class TextbookDlrm(nn.Module):
    """The model of Naumov et al. (arXiv 1906.00091)."""

    def __init__(self, config: DlrmConfig):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, config.embedding_dim, mode="sum", sparse=True) for rows in config.num_rows
        )
        self.bottom = _mlp(config.dense_dim, config.bottom_mlp, last_relu=True)
        features = config.num_tables + 1
        self.first = torch.tensor([i for i in range(features) for j in range(i)])
        self.second = torch.tensor([j for i in range(features) for j in range(i)])
        self.top = _mlp(config.embedding_dim + len(self.first), config.top_mlp, last_relu=False)

    def forward(self, dense: Tensor, categorical: Sequence[Tensor]) -> Tensor:
        """Return logits (B,) for dense (B, dense_dim) and, for each table, int64 (B, L)."""
        bottom = self.bottom(dense)
        embedded = [table(bags) for table, bags in zip(self.tables, categorical, strict=True)]
        together = torch.cat([bottom, *embedded], dim=1).view(len(dense), -1, bottom.shape[1])
        products = torch.bmm(together, together.transpose(1, 2))[:, self.first, self.second]
        return self.top(torch.cat([bottom, products], dim=1)).squeeze(1)

    def take_weights(self, model: Dlrm) -> None:
        """Begin where our model begins."""
        with torch.no_grad():
            parts = model.tables.weight.split(model.config.num_rows)
            for table, part in zip(self.tables, parts, strict=True):
                table.weight.copy_(part)
            for ours, theirs in ((model.bottom, self.bottom), (model.top, self.top)):
                theirs.load_state_dict(ours.state_dict())


def _mlp(width: int, widths: Iterable[int], *, last_relu: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out in widths:
        layers += [nn.Linear(width, out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers if last_relu else layers[:-1])


def textbook_optimiser(model: TextbookDlrm, name: str, lr: float) -> list[torch.optim.Optimizer]:
    """The optimisers of a model; torch has no rowwise Adagrad, so that one is written plainly."""
    kinds = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
    if name in kinds:
        return [kinds[name](model.parameters(), lr=lr)]
    dense, tables = [*model.bottom.parameters(), *model.top.parameters()], list(model.tables.parameters())
    if name == "adam":
        return [torch.optim.Adam(dense, lr=lr), torch.optim.SparseAdam(tables, lr=lr)]
    return [torch.optim.Adagrad(dense, lr=lr), RowwiseAdagrad(tables, lr=lr)]


def textbook_step(model: TextbookDlrm, optimisers: list[torch.optim.Optimizer], batch: tuple) -> Tensor:
    """One step on (dense, categorical of each table, label)."""
    dense, categorical, label = batch
    for optimiser in optimisers:
        optimiser.zero_grad()
    loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
    loss.backward()
    for optimiser in optimisers:
        optimiser.step()
    return loss.detach()


class TextbookRows(Dataset):
    """Rows of a Criteo file, parsed line by line; values seen less than `min_count` times in training share row 0."""

    def __init__(self, path: Path, *, train_share: float, min_count: int):
        labels, dense, categorical = [], [], []
        with path.open(encoding="ascii") as file:
            for line in file:
                fields = line.rstrip("\n").split("\t")
                labels.append(int(fields[0]))
                dense.append([_log(field) for field in fields[1:14]])
                categorical.append([int(field or "0", 16) for field in fields[14:]])
        self.train_rows = round(len(labels) * train_share)
        counts = [Counter(column) for column in zip(*categorical[: self.train_rows], strict=True)]
        tables = [{value: row for row, (value, _) in enumerate(_frequent(count, min_count), 1)} for count in counts]
        self.num_rows = tuple(len(table) + 1 for table in tables)
        self.categorical = [
            [table.get(value, 0) for table, value in zip(tables, row, strict=True)] for row in categorical
        ]
        values = np.array(dense, dtype=np.float32)
        mean, deviation = np.nanmean(values[: self.train_rows], 0), np.nanstd(values[: self.train_rows], 0)
        self.dense = np.nan_to_num((values - mean) / deviation)
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, list[int], int]:
        return self.dense[index], self.categorical[index], self.labels[index]


def _log(field: str) -> float:
    value = float(field) if field else math.nan
    return math.copysign(math.log1p(abs(value)), value)


def _frequent(counts: Counter, min_count: int) -> list[tuple[int, int]]:
    return [(value, count) for value, count in counts.most_common() if count >= min_count]


def collate(samples: list[tuple[np.ndarray, list[int], int]]) -> tuple[Tensor, list[Tensor], Tensor]:
    """Samples side by side, as the reference DLRM's `collate_wrapper_criteo_offset` puts them."""
    dense, categorical, labels = zip(*samples, strict=True)
    columns = torch.tensor(categorical, dtype=torch.long).T
    return torch.tensor(np.stack(dense)), [column.unsqueeze(1) for column in columns], torch.tensor(labels).float()


def loader(rows: TextbookRows, indices: Sequence[int], batch_size: int, *, shuffle: bool) -> DataLoader:
    """Batches of these rows."""
    chosen = torch.utils.data.Subset(rows, indices)
    return DataLoader(chosen, batch_size=batch_size, shuffle=shuffle, collate_fn=collate)
