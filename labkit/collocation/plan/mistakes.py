"""All mistakes of a plan in one error, so that it is mended once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from labkit.errors import UserError

ALSO = " Also: "
"""Between the mistakes of one item"""


class Mistakes:
    """Collects what is wrong with the items of a plan, one line an item."""

    def __init__(self, plan: str):
        """Start with none.

        Args:
            plan: the whole that the items are of, for the first line of the error.
        """
        self.plan = plan
        self._of_item: dict[str, list[str]] = {}

    def add(self, item: str, what: str, *, within: str = "") -> None:
        """Note one.

        Args:
            item: the row, or the item of --jobs; its mistakes come on one line.
            what: what is wrong, and how it is mended.
            within: the place in the item, such as its field.
        """
        self._of_item.setdefault(item, []).append(f"{within}: {what}" if within else what)

    @contextmanager
    def noting(self, item: str, *, within: str = "") -> Iterator[None]:
        """Note a UserError that the block raises, and go on after the block."""
        try:
            yield
        except UserError as error:
            self.add(item, str(error), within=within)

    def of(self, item: str) -> bool:
        """Whether the item has any."""
        return item in self._of_item

    def raise_if_any(self) -> None:
        """End here unless there were none.

        Raises:
            UserError: with all of them.
        """
        lines = [self._line(item, whats) for item, whats in self._of_item.items()]
        if len(lines) == 1:
            raise UserError(lines[0])
        if lines:
            raise UserError(f"{self.plan}: {len(lines)} items need mending before any can start:\n" + "\n".join(lines))

    @staticmethod
    def _line(item: str, whats: list[str]) -> str:
        # the error of another part may have several lines, and may name the item itself
        told = ALSO.join(" ".join(what.removeprefix(f"{item}: ").split()) for what in whats)
        return f"{item}{', ' if told.startswith('field ') and ALSO not in told else ': '}{told}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word near this one, as a question, or all of them to choose from.

    >>> did_you_mean("dlmr", ("dlrm", "speech")), did_you_mean("x", ("dlrm", "speech"))
    ("did you mean 'dlrm'?", 'choose one of dlrm, speech.')
    """
    known = list(known)
    near = difflib.get_close_matches(word.lower(), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}."
