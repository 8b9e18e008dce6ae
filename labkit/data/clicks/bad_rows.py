"""What happens to a row that cannot be used: an error that stops, or a line in the list of skipped rows."""

from __future__ import annotations

from pathlib import Path

from labkit.errors import DataError, UserError

LISTED = 100
FIX = "Mend the row, or pass --on-bad-row skip to leave such rows out; they are then counted and listed."


class BadRows:
    """Counts and lists bad rows, or raises at the first one."""

    def __init__(self, policy: str):
        if policy not in ("error", "skip"):
            raise UserError(f'on_bad_row is {policy!r}: choose "error" (stop at the first) or "skip" (list them).')
        self.policy = policy
        self.count = 0
        self.first: list[dict] = []

    def add(self, file: Path, line: int, reason: str, field: str | None = None) -> None:
        """Report one bad row; lines and fields count from 1.

        Raises:
            DataError: the policy is "error".
        """
        if self.policy == "error":
            raise DataError(reason, fix=FIX, file=file, line=line, field=field)
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append({"file": str(file), "line": line, "field": field, "reason": reason})

    def info(self) -> dict:
        return {"rows": self.count, "first": self.first}
