"""What becomes of a process that takes more memory than its budget. Run as a program, this is that process."""

from __future__ import annotations

import subprocess
import sys

from labkit.errors import UserError
from labkit.hardware.budgets.budget import too_much
from labkit.hardware.budgets.names import parse_budget

STOPPED = 3
"""Exit status of the process that its budget stopped."""


def overdraw(budget: str, size_bytes: int) -> tuple[bool, str]:
    """Let a process of its own take so many bytes under a budget.

    Args:
        budget: as `--budget` takes it.
        size_bytes: what it takes beside what Python needs.

    Returns:
        Whether it was stopped, and the error that stopped it or what this system cannot enforce.

    Raises:
        UserError: the budget cannot be enforced here.
    """
    parse_budget(budget)
    command = [sys.executable, "-m", "labkit.hardware.budgets.overdraft", budget, str(size_bytes)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (process.stdout.strip() or process.stderr.strip()).splitlines()
    if process.returncode not in (0, STOPPED, -9):  # -9 by the watch or the kernel, and the watch says why
        raise UserError(said[-1] if said else f"The budget {budget!r} could not be tried: no message.")
    return process.returncode != 0, "\n".join(said)


def _main(name: str, size_bytes: str) -> int:
    budget = parse_budget(name)
    notes = budget.enforce()
    try:
        bytearray(int(size_bytes))
    except MemoryError:
        print(f"{too_much(budget)}.")
        return STOPPED
    print("\n".join(["Nothing stopped the process.", *notes]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(_main(*sys.argv[1:]))
    except UserError as error:
        sys.exit(str(error))
