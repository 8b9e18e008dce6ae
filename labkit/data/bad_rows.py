"""A row or utterance that cannot be used: an error that stops, or a line in the list of skipped ones."""

from __future__ import annotations

from labkit.errors import DataError, UserError

LISTED = 100


class BadRows:
    """Raises the first error, or counts and lists them all."""

    def __init__(self, policy: str):
        if policy not in ("error", "skip"):
            raise UserError(f'on_bad_row is {policy!r}: choose "error" (stop at the first) or "skip" (list them).')
        self.policy = policy
        self.count = 0
        self.first: list[dict] = []

    def add(self, error: DataError) -> None:
        """Report one."""
        if self.policy == "error":
            fix = f"{error.fix} Or pass --on-bad-row skip to leave such rows out; they are then counted and listed."
            raise DataError(error.what, fix=fix, file=error.file, line=error.line, field=error.field)
        self.count += 1
        if len(self.first) < LISTED:
            place = {"file": str(error.file), "line": error.line, "field": error.field}
            self.first.append({**place, "reason": error.what})

    def info(self) -> dict:
        """`{"rows": how many, "first": the first 100}`"""
        return {"rows": self.count, "first": self.first}
