"""Errors that a user can fix. Every other error is a bug in labkit."""

import contextlib
import difflib
import errno
import os
from collections.abc import Generator, Iterable
from typing import TypeVar

try:
    import resource
except ImportError:  # Windows
    resource = None


class UserError(ValueError):
    """Something that the user can fix. The text says what is wrong and what to do.

    The command line prints the text and exits with status 2.
    """

    def __init__(self, *words: str, field: str | None = None):
        super().__init__(*words)
        self.field = field
        """Setting that caused the error."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback, which names no fix."""
        return [f"{type(self).__name__}: {self}"]


T = TypeVar("T")


def certain(value: T | None) -> T:
    """The value, where a None was ruled out elsewhere, such as the cores of a CPU, which only a GPU lacks."""
    assert value is not None
    return value


class DataError(UserError):
    """Bad input data, located by file, line and field if these are known."""

    def __init__(
        self,
        what: str,
        *,
        fix: str,
        file: str | os.PathLike | None = None,
        line: int | None = None,
        field: str | None = None,
    ):
        what = what.encode("utf-8", "backslashreplace").decode()  # text from a file that is not UTF-8 can be printed
        self.what, self.fix, self.file, self.line = what, fix, file, line
        named = {"{}": file and os.fspath(file), "line {}": line, "field {!r}": field}
        place = ", ".join(words.format(value) for words, value in named.items() if value is not None)
        super().__init__(f"{place}: {what} {fix}" if place else f"{what} {fix}", field=field)


SYSTEM_REFUSALS = dict.fromkeys((errno.EACCES, errno.EPERM), "get permission, or choose another path")
SYSTEM_REFUSALS |= dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or choose another disk")
SYSTEM_REFUSALS |= {
    errno.EROFS: "choose a path that is not read-only",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.EEXIST: "check the path: a file is where a folder should be",
    errno.EISDIR: "check the path: it is a folder",
}
"""Fixes for errors of the operating system that only the user can fix."""
LIMITS = {
    errno.EFBIG: "no file of this process may grow beyond a limit: raise it (`ulimit -f unlimited`)",
    errno.EAGAIN: "this user may start no more processes or threads: end some, or raise the limit (`ulimit -u`)",
    errno.EMFILE: "this process may open no more files: raise the limit (`ulimit -n`)",
}
"""Fixes for the limits of a process"""
MISTAKES = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
"""Refusals that a mistake in a script causes, too"""


def refused_number(error: BaseException) -> int | None:
    """The number (errno) of what the operating system refused; None for any other error."""
    if isinstance(error, OSError):
        is_ours = error.errno != errno.EAGAIN or error.strerror == os.strerror(errno.EAGAIN)  # not of a full pipe
        return error.errno if is_ours and error.errno in SYSTEM_REFUSALS | LIMITS else None
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return errno.EAGAIN
    if isinstance(error, RuntimeError) and "inline_container" in str(error) and "unexpected pos" in str(error):
        if isinstance(error.__context__, OSError):
            return refused_number(error.__context__)
        # torch.save does not say why the file is not whole
        is_limited = resource is not None and resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
        return errno.EFBIG if is_limited else errno.ENOSPC
    return None


def refusal(error: BaseException, *, but: Iterable[int] = ()) -> UserError | None:
    """The error as a UserError if the operating system refused something, other than the numbers `but`; else None."""
    number = refused_number(error)
    if number is None or number in but:
        return None
    place = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    said = f"{place}the system refused this ({os.strerror(number)}): "
    if number in LIMITS:
        return UserError(f"{said}{LIMITS[number]}.")
    return UserError(
        f"{said}{SYSTEM_REFUSALS[number]}. --runs-dir sets the folder for runs, --out that for pages, notebooks and "
        "generated data, --table-dir that for tables on disk, and LABKIT_CACHE that for prepared data."
    )


@contextlib.contextmanager
def refusals() -> Generator[None]:
    """Turn what the operating system refuses inside the block into a UserError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if (refused := refusal(error)) is None:
            raise
        raise refused from error


def with_flag(setting: str) -> str:
    """The name of a setting, as in notebooks, with its flag."""
    return f"{setting} (--{setting.replace('_', '-')})"


def wrong_value(setting: str, value: object, fix: str) -> UserError:
    """The error for the value of a setting; `fix` says which values it can have."""
    return UserError(f"{with_flag(setting)} is {value}: {fix}", field=setting)


def nearest(word: str, known: Iterable[str]) -> str:
    """Up to three similar known words as a question with a space after it, such as "Did you mean dlrm? "; or ""."""
    near = difflib.get_close_matches(word, known, 3, 0.4)
    return f"Did you mean {' or '.join(near)}? " if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The most similar known word as a question, or all known words to choose from.

    >>> did_you_mean("dlmr", ("dlrm", "speech")), did_you_mean("x", ("dlrm", "speech"))
    ("did you mean 'dlrm'?", 'choose one of dlrm, speech.')
    """
    known = list(known)
    near = difflib.get_close_matches(word.lower(), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}."
