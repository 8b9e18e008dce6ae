"""Whether a budget does what it says: arithmetic and bandwidth under it, beside what cores or catalogue predict.

Run as a program, it enforces the budget named and prints what one process then measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from labkit.errors import UserError
from labkit.hardware.budget_names import parse_budget
from labkit.hardware.budgets import Budget
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.tiers import Tier, get_tier, match_tier


@dataclass(frozen=True)
class BudgetCheck:
    """Speeds under a budget, as shares of those of the whole device."""

    name: str
    arithmetic: float
    """Measured: fp32 matrix products"""
    bandwidth: float
    """Measured: copies that no cache holds"""
    predicted_arithmetic: float | None
    """By the number of cores, or by both FP32 peaks of the catalogue"""
    predicted_bandwidth: float | None
    """By both bandwidths of the catalogue"""


def check_budgets(names: list[str]) -> list[BudgetCheck]:
    """Measure each budget in a process of its own, and the whole device before; a few seconds each.

    Raises:
        UserError: a budget cannot be enforced here.
    """
    devices = get_devices()
    whole: dict[str, tuple[float, float]] = {}
    checks = []
    for name in names:
        budget = parse_budget(name, devices)
        base = "all-cores" if budget.torch_name == "cpu" else _gpu_name(budget, devices)
        if base not in whole:
            whole[base] = _measured(parse_budget(base, devices))
        arithmetic, bandwidth = _measured(budget)
        checks.append(
            BudgetCheck(name, arithmetic / whole[base][0], bandwidth / whole[base][1], *_predicted(budget, devices))
        )
    return checks


def _gpu_name(budget: Budget, devices: list[Device]) -> str:
    gpus = [device.torch_name for device in devices[1:] if device.torch_name]
    return "gpu" if len(gpus) == 1 else f"gpu:{gpus.index(budget.torch_name)}"


def _predicted(budget: Budget, devices: list[Device]) -> tuple[float | None, float | None]:
    """Shares of arithmetic and of bandwidth; None where nothing predicts them."""
    if budget.torch_name == "cpu":
        return budget.cores / devices[0].cores, None
    own = match_tier(next(device for device in devices[1:] if device.torch_name == budget.torch_name))
    stands_for = get_tier(budget.tier) if budget.tier else None
    if stands_for is None or own is None:
        return budget.gpu_percent / 100 if budget.gpu_percent else 1.0, None
    return _ratio(stands_for, own, "fp32_tflops"), _ratio(stands_for, own, "bandwidth_gb_s")


def _ratio(tier: Tier, own: Tier, figure: str) -> float | None:
    values = getattr(tier, figure), getattr(own, figure)
    return None if None in values else values[0] / values[1]


def _measured(budget: Budget) -> tuple[float, float]:
    """(GFLOP/s, GB/s) of a process under the budget."""
    child = subprocess.run(
        [sys.executable, "-m", "labkit.hardware.budget_check", budget.name],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | budget.environment(),
    )
    if child.returncode:
        said = child.stderr.strip().splitlines()
        raise UserError(f"The budget {budget.name!r} could not be checked: {said[-1] if said else 'no message'}")
    return tuple(json.loads(child.stdout.splitlines()[-1]))


def _main(name: str) -> None:
    budget = parse_budget(name)
    budget.enforce()
    budget.share_gpu()
    import torch

    from labkit.hardware.calibration import copy_gb_per_s, matmul_gflops

    if budget.cores is not None:
        torch.set_num_threads(budget.cores)
    device = torch.device(budget.torch_name)
    print(json.dumps([matmul_gflops(device, torch.float32), copy_gb_per_s(device, 2**27)]))


if __name__ == "__main__":
    _main(sys.argv[1])
