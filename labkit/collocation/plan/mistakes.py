"""All mistakes of a plan in one error, so that it is mended once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from labkit.errors import UserError


class Mistakes:
    """Collects what is wrong with a plan, one line a mistake."""

    def __init__(self, plan: str):
        self.plan = plan
        self.lines: list[str] = []

    def add(self, place: str, what: str) -> None:
        """Note what is wrong, and how it is mended, with the file and line, or item of --jobs; several a line each."""
        for line in what.splitlines():
            line = line.removeprefix(f"{place}: ")  # another part may have named it already
            self.lines.append(f"{place}{', ' if line.startswith('field ') else ': '}{line}")

    @contextmanager
    def noting(self, place: str) -> Iterator[None]:
        """Note a UserError that the block raises, and go on after the block."""
        try:
            yield
        except UserError as error:
            self.add(place, str(error))

    def raise_if_any(self) -> None:
        """End here with all of them as a UserError, unless there were none."""
        lines = list(dict.fromkeys(self.lines))
        if len(lines) > 1:
            lines.insert(0, f"{self.plan}: {len(lines)} mistakes to mend before anything can start:")
        if lines:
            raise UserError("\n".join(lines))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word near this one, as a question, or all of them to choose from.

    >>> did_you_mean("dlmr", ("dlrm", "speech")), did_you_mean("x", ("dlrm", "speech"))
    ("did you mean 'dlrm'?", 'choose one of dlrm, speech.')
    """
    known = list(known)
    near = difflib.get_close_matches(word.lower(), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}."
