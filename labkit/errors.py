"""The one family of errors that a user can mend; everything else is our own bug."""

from __future__ import annotations

import os


class UserError(ValueError):
    """Something the user can mend: the text says what happened, why, and the exact next step.

    The command line prints the text as one paragraph and exits with status 2.
    """


class DataError(UserError):
    """Bad input data, located by file, line and field where these are known."""

    def __init__(
        self,
        what: str,
        *,
        fix: str,
        file: str | os.PathLike | None = None,
        line: int | None = None,
        field: str | None = None,
    ):
        self.what, self.fix, self.file, self.line, self.field = what, fix, file, line, field
        place = "".join(
            [
                f"{os.fspath(file)}" if file is not None else "",
                f", line {line}" if line is not None else "",
                f", field {field!r}" if field is not None else "",
            ]
        ).lstrip(", ")
        super().__init__(f"{place}: {what} {fix}" if place else f"{what} {fix}")
