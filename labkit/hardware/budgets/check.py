"""Whether a budget does what it says: arithmetic and bandwidth under it, beside what cores or catalogue predict.

Run as a program, it enforces the budget named and prints what one process then measures, or overdraws its memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from labkit.errors import UserError
from labkit.hardware.budgets import memory_watch
from labkit.hardware.budgets.budget import Budget, too_much
from labkit.hardware.budgets.names import offered_budgets, parse_budget
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.tiers import get_tier, match_tier

if TYPE_CHECKING:
    import pandas as pd

REFUSED, STOPPED = 2, 3
"""Exit status of a process that its budget does not allow, and of one that it stopped"""


class _Speeds(NamedTuple):
    gflops: float
    gb_per_s: float
    cores_used: float


@dataclass(frozen=True)
class BudgetCheck:
    """Speeds under a budget, as shares of those of the whole device."""

    name: str
    cores: int | None
    """That the budget allows; None where it does not limit the CPU"""
    cores_used: float
    """Measured: CPU seconds a second while matrices are multiplied"""
    arithmetic: float
    """Measured: fp32 matrix products"""
    bandwidth: float
    """Measured: copies that no cache holds"""
    predicted_arithmetic: float | None
    """By the number of cores, or by both FP32 peaks of the catalogue; None for a board, whose cores are others"""
    predicted_bandwidth: float | None
    """By both bandwidths of the catalogue; for a board at most, by its peak over what was measured here"""
    memory_binds: bool | None
    """Whether a process that took all of the budget's memory, beside what it had, was stopped; None without a cap"""
    provenance: str
    """Of what was measured: "emulated" under a budget that makes the machine smaller, else "measured\""""


def check_budgets(names: Sequence[str], *, repeats: int = 7) -> list[BudgetCheck]:
    """Measure each budget in a process of its own, and the whole device before; a few seconds each.

    Of so many repeats the best counts. Raises UserError where a budget cannot be enforced here.
    """
    devices, checks = get_devices(), []
    wholes = {budget.torch_name: budget for budget in offered_budgets(devices)}  # of a CPU, all cores come last
    measure_whole = cache(lambda torch_name: _measured(wholes[torch_name], repeats))
    for name in names:
        budget = parse_budget(name, devices)
        whole, found = measure_whole(budget.torch_name), _measured(budget, repeats)
        shares = found.gflops / whole.gflops, found.gb_per_s / whole.gb_per_s
        predicted = _predicted(budget, devices, whole.gb_per_s)
        binds = None if budget.memory_bytes is None else overdraw(name, budget.memory_bytes)[0]
        kind = "emulated" if budget.emulated else "measured"
        checks.append(BudgetCheck(name, budget.cores, found.cores_used, *shares, *predicted, binds, kind))
    return checks


def budget_shares(checks: Sequence[BudgetCheck]) -> pd.DataFrame:
    """Measured and predicted shares, one a row, without what nothing predicts.

    Returns:
        Columns budget, quantity ("arithmetic" or "bandwidth"), share (%) and provenance.
    """
    import pandas as pd

    rows = [
        (check.name, quantity, 100 * share, provenance)
        for check in checks
        for quantity in ("arithmetic", "bandwidth")
        for provenance, field in ((check.provenance, quantity), ("predicted", f"predicted_{quantity}"))
        if (share := asdict(check)[field]) is not None
    ]
    return pd.DataFrame(rows, columns=["budget", "quantity", "share", "provenance"])


def _predicted(budget: Budget, devices: list[Device], gb_per_s: float) -> tuple[float | None, float | None]:
    """Shares of arithmetic and of the bandwidth `gb_per_s` that the whole has; None where nothing predicts them."""
    stands_for = get_tier(budget.tier) if budget.tier else None
    if budget.torch_name == "cpu":
        if stands_for is None or stands_for.kind != "edge":
            return budget.cores / devices[0].cores, None
        return None, stands_for.bandwidth_gb_s / gb_per_s if stands_for.bandwidth_gb_s else None
    own = match_tier(next(device for device in devices[1:] if device.torch_name == budget.torch_name))
    if stands_for is None or own is None:
        return budget.gpu_percent / 100 if budget.gpu_percent else 1.0, None
    figures = [(getattr(stands_for, name), getattr(own, name)) for name in ("fp32_tflops", "bandwidth_gb_s")]
    return tuple(None if None in pair else pair[0] / pair[1] for pair in figures)


def _measured(budget: Budget, repeats: int) -> _Speeds:
    stopped, said = _under(budget.name, "speeds", repeats)
    if stopped:
        raise UserError(f"The check of {budget.name!r} failed: {said}")
    return _Speeds(**json.loads(said.splitlines()[-1]))


def overdraw(budget: str, size_bytes: int) -> tuple[bool, str]:
    """Let a process of its own take so many bytes, beside what Python needs, under a budget, as `--budget` takes it.

    Returns:
        Whether it was stopped, and the error that stopped it or what this system cannot enforce.

    Raises:
        UserError: the budget cannot be enforced here.
    """
    return _under(budget, "memory", size_bytes)


def _under(budget: str, what: str, count: int) -> tuple[bool, str]:
    """Whether a process of its own was stopped by its budget, and what it said."""
    command = [sys.executable, "-m", "labkit.hardware.budgets.check", budget, what, str(count)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    said = child.stdout.strip() or child.stderr.strip() or "no message"
    if child.returncode not in (0, STOPPED, -9):  # -9 by the watch, which says why
        raise UserError(said.splitlines()[-1])
    return child.returncode != 0, said


def _take(budget: Budget, size_bytes: int) -> None:
    notes = budget.enforce()
    taken = bytearray(size_bytes)
    time.sleep(8 * memory_watch.LONGEST_S)  # the watch sees what is held, and other programs may hold it up
    del taken
    print("\n".join(["Nothing stopped the process.", *notes]))


def _measure(budget: Budget, repeats: int) -> None:
    budget.enforce()
    budget.bind_torch()
    import torch

    from labkit.hardware.calibration import copy_gb_per_s, matmul_gflops

    device = torch.device(budget.torch_name)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    gflops = matmul_gflops(device, torch.float32, repeats=repeats)
    cores_used = (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
    print(json.dumps(_Speeds(gflops, copy_gb_per_s(device, 2**28, repeats=repeats), cores_used)._asdict()))


def _main(name: str, what: str, count: str) -> int:
    try:
        budget = parse_budget(name)
        {"speeds": _measure, "memory": _take}[what](budget, int(count))
    except UserError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except MemoryError:
        print(f"{too_much(budget)}.")
        return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
