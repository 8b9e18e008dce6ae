"""What a machine can do by the size of what it does: products, copies, and rows gathered from a table.

One number for each, as `labkit.hardware.calibration.Calibration` has it, is the machine at its best. A step of a DLRM
has small products and tables that no cache holds, and is limited by what these reach.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from labkit.hardware import launch_us, read_cpu

if TYPE_CHECKING:
    import pandas as pd

PRODUCT_SIZES = (8, 16, 32, 64, 128, 256, 1024)
COPY_BYTES = tuple(2**power for power in range(14, 27, 2))
TABLE_BYTES = tuple(2**power for power in range(16, 31, 2))
"""64 KiB to 1 GiB: from the second-level cache to memory, and there beyond what its pages' addresses are cached for"""
ROW_BYTES = (32, 256, 1024)
ENOUGH_S = 0.01
"""Of one round of a measurement"""


@dataclass(frozen=True)
class Curve:
    """A speed by size, measured at some sizes; a line on logarithmic axes between them, and level beyond."""

    sizes: tuple[float, ...]
    speeds: tuple[float, ...]

    def __call__(self, size: float) -> float:
        return float(np.exp(np.interp(np.log(max(size, 1)), np.log(self.sizes), np.log(self.speeds))))


@dataclass(frozen=True)
class Limits:
    """What was measured, on what, with how many threads, and when."""

    device: str
    threads: int
    when: str
    product_gflops: Curve
    """Billions of operations a second in fp32, by the smallest of a product's three sizes"""
    copy_gb_per_s: Curve
    """Bytes read and written a second, in 1e9, by how many they are"""
    gather_gb_per_s: tuple[tuple[int, Curve], ...]
    """Bytes of random rows read a second, by the bytes of their table: a curve for each size of row"""
    launch_us: float
    """Of asking for one operation"""

    def gather(self, table_bytes: float, row_bytes: int) -> float:
        """GB/s of random rows; between the sizes of row that were measured as between the sizes of tables."""
        rows = tuple(size for size, _ in self.gather_gb_per_s)
        return Curve(rows, tuple(curve(table_bytes) for _, curve in self.gather_gb_per_s))(row_bytes)

    def speeds(self) -> pd.DataFrame:
        """What bytes reach, for a figure.

        Columns of ("copies", or "rows of N bytes"), size_mib, speed_gb_per_s, provenance.
        """
        import pandas as pd

        curves = {"copies": self.copy_gb_per_s} | {f"rows of {row} bytes": curve for row, curve in self.gather_gb_per_s}
        tables = [
            pd.DataFrame(
                {"of": name, "size_mib": [size / 2**20 for size in curve.sizes], "speed_gb_per_s": curve.speeds}
            )
            for name, curve in curves.items()
        ]
        return pd.concat(tables, ignore_index=True).assign(provenance="measured")


def measure_limits(*, largest_bytes: int = TABLE_BYTES[-1], rounds: int = 5) -> Limits:
    """Measure this CPU in a few seconds, with as many threads as torch has; the median of some rounds each.

    Args:
        largest_bytes: of memory that is used; what is larger counts as that.
        rounds: of each measurement.
    """
    tables = [size for size in TABLE_BYTES if size <= largest_bytes]
    copies = [size for size in COPY_BYTES if size <= largest_bytes]
    return Limits(
        device=read_cpu().model,
        threads=torch.get_num_threads(),
        when=time.strftime("%Y-%m-%d"),
        product_gflops=Curve(PRODUCT_SIZES, tuple(_product_gflops(size, rounds) for size in PRODUCT_SIZES)),
        copy_gb_per_s=Curve(tuple(2 * size for size in copies), tuple(_copy_gb_per_s(each, rounds) for each in copies)),
        gather_gb_per_s=tuple((row, _gather(tables, row, rounds)) for row in ROW_BYTES),
        launch_us=launch_us(torch.device("cpu")),
    )


def _product_gflops(size: int, rounds: int) -> float:
    """Of many small products that follow each other in one call, or of one large."""
    count = max(1, 2**18 // size**2)
    left, right = (torch.randn(count, size, size) for _ in range(2))
    out = torch.empty(count, size, size)
    return 2 * count * size**3 / _seconds(lambda: torch.bmm(left, right, out=out), rounds) / 1e9


def _copy_gb_per_s(size_bytes: int, rounds: int) -> float:
    source = torch.ones(size_bytes // 4)
    target = torch.empty_like(source)
    return 2 * size_bytes / _seconds(lambda: target.copy_(source), rounds) / 1e9


def _gather(table_sizes: Sequence[int], row_bytes: int, rounds: int) -> Curve:
    speeds = []
    whole = torch.ones(max(table_sizes) // row_bytes, row_bytes // 4)
    for size in table_sizes:
        table = whole[: size // row_bytes]
        bags = torch.randint(len(table), (2**20 // row_bytes, 16), dtype=torch.int32)
        seconds = _seconds(lambda bags=bags, table=table: F.embedding_bag(bags, table, mode="sum"), rounds)
        speeds.append(bags.numel() * row_bytes / seconds / 1e9)
    return Curve(tuple(table_sizes), tuple(speeds))


def _seconds(work: Callable[[], object], rounds: int) -> float:
    """Of one call: the median of rounds that each take long enough to be timed."""
    work()
    began = time.perf_counter()
    work()
    calls = max(1, round(ENOUGH_S / max(time.perf_counter() - began, 1e-9)))
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        times.append((time.perf_counter() - began) / calls)
    return statistics.median(times)
