"""Checks budgets: arithmetic and bandwidth measured under each, compared with a prediction.

Run as a program, this enforces the named budget, then prints measured speeds or tries to exceed its memory.
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

from labkit import UserError
from labkit.hardware.budgets import memory_watch
from labkit.hardware.budgets.budget import Budget, too_much
from labkit.hardware.budgets.names import offered_budgets, parse_budget
from labkit.hardware.devices import Device, get_devices
from labkit.hardware.tiers import get_tier, match_tier

if TYPE_CHECKING:
    import pandas as pd

REFUSED, STOPPED = 2, 3
"""Exit status of a process whose budget cannot be enforced here, and of one that its budget stopped."""


class _Speeds(NamedTuple):
    gflops: float
    gb_per_s: float
    cores_used: float


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
        whole, found = measure_whole(budget.torch_name), _measured(budget, repeats)
        shares = found.gflops / whole.gflops, found.gb_per_s / whole.gb_per_s
        predicted = _predicted(budget, devices, whole.gb_per_s)
        binds = None if budget.memory_bytes is None else overdraw(name, budget.memory_bytes)[0]
        kind = "emulated" if budget.emulated else "measured"
        checks.append(BudgetCheck(name, budget.cores, found.cores_used, *shares, *predicted, binds, kind))
    return checks


def budget_shares(checks: Sequence[BudgetCheck]) -> pd.DataFrame:
    """Measured and predicted shares, one per row; what cannot be predicted has no row.

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
    """Predicted shares of arithmetic and of bandwidth, of which the whole device has `gb_per_s`; None if unknown."""
    stands_for = get_tier(budget.tier) if budget.tier else None
    if budget.torch_name == "cpu":
        if stands_for is None or stands_for.kind != "edge":
            return budget.cores / devices[0].cores, None
        return None, stands_for.bandwidth_gb_s / gb_per_s if stands_for.bandwidth_gb_s else None
    own = match_tier(next(device for device in devices[1:] if device.torch_name == budget.torch_name))
    if stands_for is None or own is None:
        return budget.gpu_percent / 100 if budget.gpu_percent else 1.0, None
    figures = [(getattr(stands_for, name), getattr(own, name)) for name in ("fp32_tflops", "bandwidth_gb_s")]
    arithmetic, bandwidth = (None if None in pair else pair[0] / pair[1] for pair in figures)
    return arithmetic, bandwidth


def _measured(budget: Budget, repeats: int) -> _Speeds:
    stopped, said = _under(budget.name, "speeds", repeats)
    if stopped:
        raise UserError(f"The check of {budget.name!r} failed: {said}")
    return _Speeds(**json.loads(said.splitlines()[-1]))


def overdraw(budget: str, size_bytes: int) -> tuple[bool, str]:
    """Let a new process under a budget, named as for `--budget`, allocate that many bytes.

    Returns:
        Whether it was stopped, and the error that stopped it or the notes on what this system cannot enforce.

    Raises:
        UserError: the budget cannot be enforced here.
    """
    return _under(budget, "memory", size_bytes)


def _under(budget: str, what: str, count: int) -> tuple[bool, str]:
    """Whether a new process was stopped by its budget, and what it printed."""
    command = [sys.executable, "-m", "labkit.hardware.budgets.check", budget, what, str(count)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    said = child.stdout.strip() or child.stderr.strip() or "no message"
    if child.returncode not in (0, STOPPED, -9):  # -9 is the memory watch, which prints why
        raise UserError(said.splitlines()[-1])
    return child.returncode != 0, said


def _take(budget: Budget, size_bytes: int) -> None:
    notes = budget.enforce()
    taken = bytearray(size_bytes)
    time.sleep(8 * memory_watch.LONGEST_S)  # long enough for the watch to look, even on a busy machine
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
