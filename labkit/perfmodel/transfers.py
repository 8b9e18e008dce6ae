"""What it takes to send bytes: a start, and so much a byte, between a CPU and a GPU or between processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Transfer:
    """Of one copy, or of one process' part in a collective."""

    start_s: float
    byte_s: float
    """For each byte that leaves"""

    def seconds(self, sent_bytes: float) -> float:
        return self.start_s + self.byte_s * sent_bytes


def bus_factor(collective: str, processes: int) -> float:
    """Bytes that leave a process for each byte of its tensor: of a ring's all-reduce, and of an all-to-all."""
    return (2 if collective == "all_reduce" else 1) * (processes - 1) / processes


def fit_transfer(sizes: Sequence[float], times_s: Sequence[float], factor: float = 1.0) -> Transfer:
    """The start and the cost of a byte, from tensors of these bytes; relative errors count.

    Args:
        sizes: bytes of each tensor.
        times_s: that each took.
        factor: bytes that left for each byte of a tensor.
    """
    from scipy.optimize import nnls

    sizes, times_s = np.array(sizes, float), np.array(times_s, float)
    parts = np.stack([np.ones_like(sizes), factor * sizes / sizes.max()], axis=1) / times_s[:, None]
    (start_s, largest_s), _ = nnls(parts, np.ones(len(sizes)))
    return Transfer(float(start_s), float(largest_s / sizes.max()))
