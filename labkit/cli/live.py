"""A display of lines that change on a terminal, and lines of a log elsewhere."""

from __future__ import annotations

from typing import Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from labkit.cli.console import Console


class LiveDisplay:
    """A context manager, within which a terminal has lines that change and vanish at its end."""

    def __init__(self, console: Console):
        self.console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._noticed: set[str] = set()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def update(self, *lines: str | Text) -> None:
        """Show these lines on a terminal, in place of those before."""
        if self.console.is_terminal:
            cut = {"no_wrap": True, "overflow": "ellipsis"}
            self._live.update(Group(*(Text(each, **cut) if isinstance(each, str) else each for each in lines)))

    def line(self, text: str) -> None:
        """Print a line where there is no terminal."""
        if not self.console.is_terminal:
            self.console.print(text, highlight=False, soft_wrap=True)

    def notice(self, text: str) -> None:
        """Print what a run wants known, once: several may say the same."""
        if text not in self._noticed:
            self._noticed.add(text)
            self.console.print(text, style="dim", highlight=False, soft_wrap=True)
