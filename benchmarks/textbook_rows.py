"""A Criteo file read as a tutorial reads one: parsed line by line in Python, samples collated one by one.

Nothing here is slowed down on purpose: it is how the reference implementation and most tutorials are written.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset


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


def collate(samples: list[tuple[np.ndarray, list[int], int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Samples side by side: dense (B, 13), categorical (B, 26, 1), label (B,)."""
    dense, categorical, labels = zip(*samples, strict=True)
    return torch.tensor(np.stack(dense)), torch.tensor(categorical).unsqueeze(2), torch.tensor(labels).float()


def loader(rows: TextbookRows, indices: Sequence[int], batch_size: int, *, shuffle: bool) -> DataLoader:
    """Batches of these rows."""
    return DataLoader(Subset(rows, indices), batch_size=batch_size, shuffle=shuffle, collate_fn=collate)
