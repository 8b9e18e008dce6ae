"""The machine's card: what this machine really achieves, measured in a few seconds."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.hardware.cpu import read_cpu

if TYPE_CHECKING:
    import pandas as pd
    import torch

CACHE_SIZES_BYTES = tuple(2**power for power in range(14, 29))
"""16 KiB to 256 MiB: from the first-level cache to main memory, on every machine of the catalogue."""


@dataclass(frozen=True)
class Calibration:
    """Measured speeds of one device."""

    device: str
    threads: int
    """CPU threads that torch used."""
    fp32_gflops: float
    """Billions of floating-point operations per second in a matrix product (1024 × 1024 on a CPU)."""
    bf16_gflops: float
    bandwidth_gb_per_s: float
    """GB (1e9 bytes) read and written per second, in a copy too large for any cache."""
    launch_us: float
    """Microseconds per operation on a single number: the fixed cost of one call."""
    when: str
    """ISO 8601 date."""

    @property
    def ridge_flop_per_byte(self) -> float:
        """Operations per byte above which arithmetic, not memory, is the limit (Williams et al., CACM 2009)."""
        return self.fp32_gflops / self.bandwidth_gb_per_s

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")  # `labkit.runs.replace_text` is not below this room
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)


def calibrate(device: str = "cpu", *, repeats: int = 7, copy_bytes: int = 2**28) -> Calibration:
    """Measure a device, named as torch names it, in a few seconds.

    The best of the repeats counts, because other programs can only slow it down. The bandwidth is measured by copying
    an array of `copy_bytes`, which is more than the caches hold.
    """
    import torch

    on = torch.device(device)
    return Calibration(
        device=torch.cuda.get_device_name(on) if on.type == "cuda" else read_cpu().model,
        threads=torch.get_num_threads(),
        fp32_gflops=matmul_gflops(on, torch.float32, repeats=repeats),
        bf16_gflops=matmul_gflops(on, torch.bfloat16, repeats=repeats),
        bandwidth_gb_per_s=copy_gb_per_s(on, copy_bytes, repeats=repeats),
        launch_us=launch_us(on),
        when=time.strftime("%Y-%m-%d"),
    )


def matmul_gflops(device: torch.device, dtype: torch.dtype, *, size: int | None = None, repeats: int = 7) -> float:
    """Billions of operations per second in a square matrix product, which takes 2·size³; the best of the repeats.

    `size` is the number of rows and columns. None is 1024 on a CPU, and 8192 on a GPU, which smaller ones do not fill.
    """
    import torch

    size = size or (1024 if device.type == "cpu" else 8192)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / _best_s(lambda: a @ b, device, repeats) / 1e9


def copy_gb_per_s(device: torch.device, size_bytes: int, *, repeats: int = 7) -> float:
    """GB (1e9 bytes) read and written per second, in copies of an array of `size_bytes`."""
    import torch

    source = torch.ones(size_bytes // 4, device=device)
    target = torch.empty_like(source)
    # enough copies, or the call itself would be what is timed
    copies = max(1, 2**24 // size_bytes)

    def copy() -> None:
        for _ in range(copies):
            target.copy_(source)

    return 2 * size_bytes * copies / _best_s(copy, device, repeats) / 1e9


def cache_curve(
    device: str = "cpu", *, sizes_bytes: Sequence[int] = CACHE_SIZES_BYTES, repeats: int = 5
) -> pd.DataFrame:
    """Copy speed by the size of the array; it drops at the end of each cache.

    On a GPU, copies below a few MiB show the cost of starting them. A CPU copies on one thread: with several, torch
    splits only the large copies, which would look like a cache. Columns: size_bytes (read and written), gb_per_s.
    """
    import pandas as pd
    import torch

    with one_thread():
        rows = [(2 * size, copy_gb_per_s(torch.device(device), size, repeats=repeats)) for size in sizes_bytes]
    return pd.DataFrame(rows, columns=["size_bytes", "gb_per_s"])


def launch_us(device: torch.device, *, calls: int = 2000, repeats: int = 7) -> float:
    """Microseconds per addition to a single number, in a loop; the median of several rounds."""
    import torch

    number = torch.zeros(1, device=device)

    def ask() -> None:
        for _ in range(calls):
            number.add_(1)

    ask()
    return statistics.median(_once_s(ask, device) for _ in range(repeats)) / calls * 1e6


@contextlib.contextmanager
def one_thread() -> Generator[None]:
    """Let torch compute on one thread during the block.

    On busy cores several threads wait for each other, and small operations take longer.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _best_s(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    work()  # the first sets up kernels and touches memory
    return min(_once_s(work, device) for _ in range(repeats))


def _once_s(work: Callable[[], object], device: torch.device) -> float:
    import torch

    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began
