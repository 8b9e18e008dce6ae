"""What a machine's GPUs do, for its card: arithmetic, bandwidth, launches, copies from and to them, collectives."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from labkit.hardware import Calibration, calibrate
from labkit.perfmodel.sharding import SIZES, time_collectives
from labkit.perfmodel.transfers import Transfer, bus_factor, fit_transfer

COPY_BYTES = tuple(2**power for power in range(10, 27, 2))
ROUNDS = 15


@dataclass(frozen=True)
class Accelerator:
    """One GPU."""

    limits: Calibration
    """Its launch_us is the cost of one launch, T4 of Lin et al., arXiv 2201.07821"""
    to_device: Transfer
    """From pinned memory of the host"""
    from_device: Transfer


def measure_accelerators() -> dict[str, Any]:
    """The GPUs that torch sees, and what collectives take between them, as a card keeps it; empty without any."""
    count = torch.cuda.device_count()
    if not count:
        return {}
    devices = [asdict(measure_accelerator(torch.device("cuda", number))) for number in range(count)]
    return {"devices": devices, "collectives": measure_collectives(count, "nccl") if count > 1 else {}}


def measure_accelerator(device: torch.device) -> Accelerator:
    """Measure one device in some seconds."""
    to_s, from_s = [], []
    for size in COPY_BYTES:
        host, own = torch.ones(size // 4, pin_memory=device.type == "cuda"), torch.ones(size // 4, device=device)
        to_s.append(_median_s(own, host, device))
        from_s.append(_median_s(host, own, device))
    return Accelerator(calibrate(str(device)), fit_transfer(COPY_BYTES, to_s), fit_transfer(COPY_BYTES, from_s))


def measure_collectives(processes: int, backend: str) -> dict[str, Any]:
    """What a start and a byte take in each collective between as many processes, with their bus factors."""
    times = time_collectives(processes, SIZES, backend)
    return {name: asdict(fit_transfer(SIZES, times_s, bus_factor(name, processes))) for name, times_s in times.items()}


def _median_s(target: Tensor, source: Tensor, device: torch.device) -> float:
    times = []
    for _ in range(ROUNDS):
        _wait(device)
        began = time.perf_counter()
        target.copy_(source, non_blocking=True)
        _wait(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
