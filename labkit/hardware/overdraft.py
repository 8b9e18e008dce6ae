"""What becomes of a process that takes more memory than its budget. Run as a program, this is that process."""

from __future__ import annotations

import subprocess
import sys

from labkit.errors import UserError
from labkit.hardware.budget_names import parse_budget
from labkit.hardware.devices import cpu_device


def overdraw(budget: str, size_bytes: int) -> str:
    """Let a process of its own take so many bytes under a budget.

    Args:
        budget: as `--budget` takes it.
        size_bytes: what it takes beside what Python needs.

    Returns:
        The error that stopped it, or that nothing did.

    Raises:
        UserError: the budget cannot be enforced here.
    """
    parse_budget(budget)
    command = [sys.executable, "-m", "labkit.hardware.overdraft", budget, str(size_bytes)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _main(name: str, size_bytes: str) -> None:
    budget = parse_budget(name)
    budget.enforce()
    try:
        with budget.memory_guard(cpu_device(), 1):
            bytearray(int(size_bytes))
    except UserError as error:
        print(error)
    else:
        print(f"Nothing stopped a process that took {int(size_bytes):,} bytes under the budget {name!r}.")


if __name__ == "__main__":
    _main(*sys.argv[1:])
