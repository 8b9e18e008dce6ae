"""What happens to a row or utterance that cannot be used: it is an error, or it is skipped and listed."""

from __future__ import annotations

from labkit import DataError, UserError

LISTED = 100
"""Most skipped rows that are listed"""
FEW = 0.01
"""Share of the rows that the policy "few" skips; one row is always allowed"""
POLICIES = {
    "error": "stop at the first bad row",
    "few": f"skip and list one, or 1 in {1 / FEW:.0f}, and stop at more",
    "skip": "skip and list any number",
}
POLICY_WORDS = "; ".join(f"{name}: {words}" for name, words in POLICIES.items())

UNASKED = {"clicks": "error", "speech": "few"}
"""Policies of the commands: a table with a bad row is often the wrong table; most folders of recordings have one."""


class BadRows:
    """Raises an error for bad rows, or counts and lists them, according to one of `POLICIES`."""

    def __init__(self, policy: str):
        if policy not in POLICIES:
            raise UserError(f"on_bad_row is {policy!r}: choose one of {', '.join(POLICIES)} ({POLICY_WORDS}).")
        self.policy = policy
        self.count = 0
        self.first: list[dict] = []
        self._rows: int | None = None
        self._error: DataError | None = None

    def expect(self, rows: int) -> None:
        """Set the total number of rows, including the bad ones so far."""
        self._rows = rows
        self._refuse_many()

    def add(self, error: DataError) -> None:
        """Report a bad row."""
        self._error = self._error or error
        self.count += 1
        self._refuse_many()
        if len(self.first) < LISTED:
            place = {"file": str(error.file), "line": error.line, "field": error.field}
            self.first.append({**place, "reason": f"{error.what} {error.fix}"})

    def _refuse_many(self) -> None:
        error, many = self._error, ""
        if error is None or self.policy == "skip":
            return
        if self.policy == "few":
            if self._rows is None or self.count <= max(1, FEW * self._rows):
                return
            many = f" {self.count:,} of {self._rows:,} are bad so far, and at most {FEW:.0%} are skipped."
        fix = f"{error.fix}{many} Or pass --on-bad-row skip to skip such rows; they are counted and listed."
        raise DataError(error.what, fix=fix, file=error.file, line=error.line, field=error.field)

    def in_words(self) -> str:
        """The first bad row, with its place."""
        return str(self._error)

    def info(self) -> dict:
        """`{"rows": number of bad rows, "first": the first 100}`"""
        return {"rows": self.count, "first": self.first}
