"""The one family of errors that a user can fix; everything else is our own bug."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can fix: the text says what happened, why, and the exact next step.

    The command line prints the text as one paragraph and exits with status 2.
    """

    def __init__(self, *words: str, field: str | None = None):
        super().__init__(*words)
        self.field = field
        """The setting that it is about"""


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
        what = what.encode("utf-8", "backslashreplace").decode()  # of a file that is not UTF-8, and yet to be printed
        self.what, self.fix, self.file, self.line = what, fix, file, line
        named = {"{}": file and os.fspath(file), "line {}": line, "field {!r}": field}
        place = ", ".join(words.format(value) for words, value in named.items() if value is not None)
        super().__init__(f"{place}: {what} {fix}" if place else f"{what} {fix}", field=field)


SYSTEM_REFUSALS = {
    errno.EACCES: "give yourself the permission, or choose another place",
    errno.EPERM: "give yourself the permission, or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.ENOSPC: "free some space, or choose another disk",
    errno.EDQUOT: "free some space, or choose another disk",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.EEXIST: "check the path: a file is where a folder should be",
    errno.EISDIR: "check the path: it is a folder",
}
"""What the operating system may refuse for reasons only the user can mend, and how."""


def refusal(error: Exception) -> UserError | None:
    """A refusal of the operating system as the user's error; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in SYSTEM_REFUSALS:
        return None
    place = f"{error.filename}: " if error.filename else ""
    return UserError(
        f"{place}the system refused ({error.strerror}): {SYSTEM_REFUSALS[error.errno]}. Runs go to --runs-dir, "
        "pages, notebooks and made data to --out, and prepared data to the folder that LABKIT_CACHE names."
    )


def with_flag(setting: str) -> str:
    """A setting by its name, as notebooks have it, and by its flag."""
    return f"{setting} (--{setting.replace('_', '-')})"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word near this one, as a question, or all of them to choose from.

    >>> did_you_mean("dlmr", ("dlrm", "speech")), did_you_mean("x", ("dlrm", "speech"))
    ("did you mean 'dlrm'?", 'choose one of dlrm, speech.')
    """
    known = list(known)
    near = difflib.get_close_matches(word.lower(), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}."
