"""A row or utterance that cannot be used: an error that stops, or a line in the list of skipped ones."""

from __future__ import annotations

from labkit.errors import DataError, UserError

LISTED = 100
FEW = 0.01
"""Share of the rows that the policy "few" leaves out, and one row at least"""
POLICIES = {
    "error": "stop at the first bad row",
    "few": f"leave out and list one, or 1 in {1 / FEW:.0f}, and stop at more",
    "skip": "leave out and list any number",
}
POLICY_WORDS = "; ".join(f"{name}: {words}" for name, words in POLICIES.items())

UNASKED = {"clicks": "error", "speech": "few"}
"""The policy of the commands: a row that cannot be read is of another table, and any folder of recordings has one."""


class BadRows:
    """Raises an error, or counts and lists bad rows, as one of `POLICIES` says."""

    def __init__(self, policy: str):
        if policy not in POLICIES:
            raise UserError(f"on_bad_row is {policy!r}: choose one of {', '.join(POLICIES)} ({POLICY_WORDS}).")
        self.policy = policy
        self.count = 0
        self.first: list[dict] = []
        self._rows: int | None = None
        self._error: DataError | None = None

    def expect(self, rows: int) -> None:
        """Say how many rows there are, those included that were bad so far."""
        self._rows = rows
        self._refuse_many()

    def add(self, error: DataError) -> None:
        """Report one."""
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
            many = f" {self.count:,} of {self._rows:,} are bad so far, and {FEW:.0%} is the most to be left out."
        fix = f"{error.fix}{many} Or pass --on-bad-row skip to leave such rows out; they are then counted and listed."
        raise DataError(error.what, fix=fix, file=error.file, line=error.line, field=error.field)

    def in_words(self) -> str:
        """The first, with its place."""
        return str(self._error)

    def info(self) -> dict:
        """`{"rows": how many, "first": the first 100}`"""
        return {"rows": self.count, "first": self.first}
