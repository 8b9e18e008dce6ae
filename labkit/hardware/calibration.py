"""Measured speeds of this machine, and of the budgets that make it smaller.

Run as a program, this enforces the named budget, then prints measured speeds or tries to exceed its memory.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from labkit import UserError, errors
from labkit.hardware import memory_watch
from labkit.hardware.budgets import Budget, offered_budgets, parse_budget
from labkit.hardware.cpu import read_cpu
from labkit.hardware.devices import Device, get_devices
from labkit.hardware.tiers import get_tier, match_tier

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


def cache_curve(device: str = "cpu", *, sizes_bytes: Sequence[int] = CACHE_SIZES_BYTES) -> pd.DataFrame:
    """Copy speed by the size of the array; it drops at the end of each cache.

    On a GPU, copies below a few MiB show the cost of starting them. A CPU copies on one thread: with several, torch
    splits only the large copies, which would look like a cache. Columns: size_bytes (read and written), gb_per_s.
    """
    import pandas as pd
    import torch

    with one_thread():
        rows = [(2 * size, copy_gb_per_s(torch.device(device), size, repeats=5)) for size in sizes_bytes]
    return pd.DataFrame(rows, columns=["size_bytes", "gb_per_s"])


def launch_us(device: torch.device, *, calls: int = 2000) -> float:
    """Microseconds per addition to a single number, in a loop; the median of several rounds."""
    import torch

    number = torch.zeros(1, device=device)

    def ask() -> None:
        for _ in range(calls):
            number.add_(1)

    ask()
    return statistics.median(_once_s(ask, device) for _ in range(7)) / calls * 1e6


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


REFUSED, STOPPED = 2, 3
"""Exit status of a process whose budget cannot be enforced here, and of one that its budget stopped."""


@dataclass(frozen=True)
class BudgetCheck:
    """Speeds under a budget, as shares of those of the whole device."""

    name: str
    cores: int | None
    """Cores that the budget allows; None where it does not limit the CPU."""
    cores_used: float
    """Measured CPU seconds per second during matrix products."""
    arithmetic: float
    """Measured share in fp32 matrix products."""
    bandwidth: float
    """Measured share in copies too large for any cache."""
    predicted_arithmetic: float | None
    """Ratio of cores, or of FP32 peaks in the catalogue; None for a board, whose cores are of another kind."""
    predicted_bandwidth: float | None
    """Ratio of bandwidths in the catalogue; for a board an upper bound, its peak over the speed measured here."""
    memory_binds: bool | None
    """Whether a process that tried to use more than the budget's memory was stopped; None without a limit."""
    provenance: str
    """"emulated" under a budget that makes the machine smaller, else "measured"."""


def check_budgets(names: Sequence[str], *, repeats: int = 7) -> list[BudgetCheck]:
    """Measure each budget in a process of its own, after the whole device; a few seconds each.

    The best of the repeats counts. Raises UserError if a budget cannot be enforced here.
    """
    devices, checks = get_devices(), []
    wholes = {budget.torch_name: budget for budget in offered_budgets(devices)}  # of a CPU, all cores come last
    measure_whole = cache(lambda torch_name: _measured(wholes[torch_name], repeats))
    for name in names:
        budget = parse_budget(name, devices)
        (*whole, _), (*found, cores_used) = measure_whole(budget.torch_name), _measured(budget, repeats)
        shares = (own / all_of_it for own, all_of_it in zip(found, whole, strict=True))
        predicted = _predicted(budget, devices, whole[1])
        binds = None if budget.memory_bytes is None else run_under(name, "memory", budget.memory_bytes)[0]
        kind = "emulated" if budget.emulated else "measured"
        checks.append(BudgetCheck(name, budget.cores, cores_used, *shares, *predicted, binds, kind))
    return checks


def _predicted(budget: Budget, devices: list[Device], gb_per_s: float) -> tuple[float | None, float | None]:
    """Predicted shares of arithmetic and of bandwidth, of which the whole device has `gb_per_s`; None if unknown."""
    stands_for = get_tier(budget.tier) if budget.tier else None
    if budget.torch_name == "cpu":
        if stands_for is None or stands_for.kind != "edge":
            return errors.certain(budget.cores) / errors.certain(devices[0].cores), None
        return None, stands_for.bandwidth_gb_s / gb_per_s if stands_for.bandwidth_gb_s else None
    own = match_tier(next(device for device in devices[1:] if device.torch_name == budget.torch_name))
    if stands_for is None or own is None:
        return budget.gpu_percent / 100 if budget.gpu_percent else 1.0, None
    figures = [(getattr(stands_for, name), getattr(own, name)) for name in ("fp32_tflops", "bandwidth_gb_s")]
    arithmetic, bandwidth = (None if None in pair else pair[0] / pair[1] for pair in figures)
    return arithmetic, bandwidth


def _measured(budget: Budget, repeats: int) -> list[float]:
    """GFLOP/s, GB/s, and the cores that the first took."""
    stopped, said = run_under(budget.name, "speeds", repeats)
    if stopped:
        raise UserError(f"The check of {budget.name!r} failed: {said}")
    return json.loads(said.splitlines()[-1])


def run_under(budget: str, what: str, count: int) -> tuple[bool, str]:
    """Run a new process under a budget: measure "speeds" `count` times, or allocate `count` bytes of "memory".

    Returns:
        Whether the budget stopped it, and what it printed: speeds, the error that stopped it, or the notes on what this
        system cannot enforce.

    Raises:
        UserError: the budget cannot be enforced here.
    """
    command = [sys.executable, "-m", "labkit.hardware.calibration", budget, what, str(count)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    said = child.stdout.strip() or child.stderr.strip() or "no message"
    if child.returncode not in (0, STOPPED, -9):  # -9 is the memory watch, which prints why
        raise UserError(said.splitlines()[-1])
    return child.returncode != 0, said


def _speeds(budget: Budget, repeats: int) -> list[float]:
    budget.bind_torch()
    import torch

    device = torch.device(budget.torch_name)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    gflops = matmul_gflops(device, torch.float32, repeats=repeats)
    cores_used = (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
    return [gflops, copy_gb_per_s(device, 2**28, repeats=repeats), cores_used]


def _main(name: str, what: str, count: str) -> int:
    try:
        budget = parse_budget(name)
        notes = budget.enforce()
        if what == "speeds":
            print(json.dumps(_speeds(budget, int(count))))
        else:
            taken = bytearray(int(count))
            time.sleep(8 * memory_watch.LONGEST_S)  # long enough for the watch to look, even on a busy machine
            del taken
            print("\n".join(["Nothing stopped the process.", *notes]))
    except UserError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except MemoryError:
        print(f"{memory_watch.too_much(budget)}.")
        return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
