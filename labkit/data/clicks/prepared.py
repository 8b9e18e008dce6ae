"""A prepared click log: three memory-mapped arrays and a `meta.json`, the same for every source.

    dense.npy        float32 (N, D)     standardised dense features
    categorical.npy  int32 (N, F, L)    row numbers in the embedding tables; row 0 is "unknown or rare"
    label.npy        uint8 (N,)         1 for a click

The rows of a split are contiguous. N rows, D dense features, F categorical features, L lookups per bag.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit import UserError
from labkit.data.store import read_json

FORMAT_VERSION = 3
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class ClickSplit:
    """The rows of one split, as views of the memory-mapped arrays."""

    dense: np.ndarray  # float32 (N, D)
    categorical: np.ndarray  # int32 (N, F, L)
    label: np.ndarray  # uint8 (N,), 1 for a click

    def __len__(self) -> int:
        return len(self.label)

    def spread(self, most: int) -> ClickSplit:
        """Every k-th row, such that there are at most `most` rows."""
        step = max(1, -(-len(self) // most))
        return ClickSplit(self.dense[::step], self.categorical[::step], self.label[::step])


class ClickLog:
    """A prepared click log, opened without reading its rows."""

    def __init__(self, folder: Path):
        self.folder = folder
        meta = read_json(folder / "meta.json")
        assert meta is not None  # `prepare_once` gives complete folders only
        self.name: str = meta["name"]
        self.dense_names: list[str] = meta["dense_names"]
        self.categorical_names: list[str] = meta["categorical_names"]
        self.table_rows: tuple[int, ...] = tuple(meta["table_rows"])
        """Rows of each embedding table, including row 0 (unknown or rare)"""
        self.pooling_factor: int = meta["pooling_factor"]
        self.fingerprint: str = meta["fingerprint"]
        self.info: dict = meta["info"]
        self._rows: dict[str, int] = meta["splits"]

    @functools.cached_property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(np.load(self.folder / f"{part}.npy", mmap_mode="r") for part in PARTS)

    def split(self, name: str) -> ClickSplit:
        """The split "train", "validation" or "test"."""
        start = sum(self._rows[before] for before in SPLITS[: SPLITS.index(name)])
        return ClickSplit(*(array[start : start + self._rows[name]] for array in self._arrays))

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {self._rows[name]:,}" for name in SPLITS)
        return (
            f"ClickLog({self.name!r}: {len(self.dense_names)} dense, {len(self.table_rows)} categorical "
            f"features, {sum(self.table_rows):,} table rows; {rows})"
        )


PARTS = ("dense", "categorical", "label")


class ClickWriter:
    """Appends rows to a click log that is being prepared.

    The number of rows is written into the headers of the .npy files at the end.
    """

    def __init__(self, folder: Path, dense_dim: int, num_tables: int, pooling_factor: int = 1):
        self.rows = 0
        self._kinds = ((np.float32, (dense_dim,)), (np.int32, (num_tables, pooling_factor)), (np.uint8, ()))
        self._files = [(folder / f"{part}.npy").open("wb") for part in PARTS]
        self._write_headers()

    def append(self, dense: np.ndarray, categorical: np.ndarray, label: np.ndarray) -> None:
        """Add rows: dense (n, D), categorical (n, F, L), label (n,)."""
        for file, (dtype, _), array in zip(self._files, self._kinds, (dense, categorical, label), strict=True):
            file.write(np.ascontiguousarray(array, dtype=dtype).data)
        self.rows += len(label)

    def __enter__(self) -> ClickWriter:
        return self

    def __exit__(self, *_) -> None:
        self._write_headers()
        for file in self._files:
            file.close()

    def _write_headers(self) -> None:
        for file, (dtype, shape) in zip(self._files, self._kinds, strict=True):
            file.seek(0)
            facts = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (self.rows, *shape)}
            np.lib.format.write_array_header_1_0(file, facts)


def click_metrics(label: np.ndarray, logit: np.ndarray) -> dict[str, float]:
    """AUC, log loss (nats), normalised entropy and accuracy of logits (N,) for labels 0 or 1 (N,).

    Normalised entropy is the log loss over the entropy of the base rate (He et al., ADKDD 2014, §3).

    >>> scores = click_metrics(np.array([0, 1, 1, 0]), np.array([-2.0, 1.0, 0.5, -1.0]))
    >>> scores["auc"], scores["accuracy"]
    (1.0, 1.0)
    """
    label, logit = (np.asarray(each, dtype=np.float64) for each in (label, logit))
    positives = label.sum()
    negatives = len(label) - positives
    if not positives or not negatives:
        raise UserError(
            f"this split has {int(positives)} positive and {int(negatives)} negative labels, so its AUC is "
            "undefined: use more rows, or check the positive values in the schema."
        )
    # log(1 + exp(-x)) for positives, log(1 + exp(x)) for negatives
    log_loss = np.logaddexp(0.0, np.where(label == 1, -logit, logit)).mean()
    rate = positives / len(label)
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    return {
        "auc": auc(label, logit),
        "log_loss": float(log_loss),
        "normalised_entropy": float(log_loss / entropy),
        "accuracy": float(((logit > 0) == (label == 1)).mean()),
    }


def auc(label: np.ndarray, score: np.ndarray) -> float:
    """The share of (positive, negative) pairs that the scores order correctly (Mann–Whitney); ties count half.

    Labels (N,) are 0 or 1. NaN if only one class is present, or if a score (N,) is NaN.

    >>> auc(np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.4]))
    0.875
    """
    positives = int((label == 1).sum())
    negatives = len(label) - positives
    if not positives or not negatives or np.isnan(score).any():
        return float("nan")
    # Each score's rank from 1, equal scores share the mean of theirs. Not scipy.stats, which takes a second to import.
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((rank[label == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))
