"""The console of all commands, which also works if its reader leaves early."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TextIO

import rich.console
from rich import box
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pandas as pd

WIDTH_FOR_PROGRAMS = 200
"""Width of a table in characters if there is no terminal, so that `grep` finds whole lines."""
LONGEST_LABEL = 40
"""Longest cell of the first column, in characters, that is never wrapped."""
# C0 and C1 control characters except tab and line end, each as its picture in Unicode or a question mark
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}
_PICTURES |= dict.fromkeys(range(128, 160), ord("?"))
_NUMBER = re.compile(r"[-+≤≥~]?\.?\d|[-–]$|inf")


class Console(rich.console.Console):
    """A rich console for names, paths and messages from users and other programs, which are printed as they are.

    [Brackets] in them are not markup (use `marked` for that), and control characters are shown as pictures. If its
    reader leaves (`labkit train dlrm | head`), it prints nothing more, and the command goes on.
    """

    def __init__(self, *, markup: bool = False, emoji: bool = False, **options: Any):
        super().__init__(markup=markup, emoji=emoji, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(harmless(text), **options)  # before its width is measured

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        write_nowhere(self.file)


def harmless(text: str) -> str:
    r"""The text with pictures in place of characters that control a terminal.

    >>> harmless("a\x1b[2Jb")
    'a␛[2Jb'
    """
    return text.translate(_PICTURES)


def marked(template: str, *values: object) -> Text:
    """A template with rich's markup, whose values are inserted as plain text."""
    return Text.from_markup(template.format(*(escape(harmless(str(value))) for value in values)), emoji=False)


def print_frame(console: Console, table: pd.DataFrame | Sequence[dict[str, Any]], title: str | None = None) -> None:
    """Print a `frame_table` in the width of the terminal, or `WIDTH_FOR_PROGRAMS` without one."""
    width = console.width
    console.width = width if console.is_terminal else max(width, WIDTH_FOR_PROGRAMS)
    console.print(frame_table(table, title))
    console.width = width


def frame_table(table: pd.DataFrame | Sequence[dict[str, Any]], title: str | None = None) -> Table:
    """A frame, or a list of rows, as a table for a terminal: numbers are aligned right, missing cells are empty.

    A cell is a number (for other digits, pass text), a text, which is wrapped if it is long, or a `rich.text.Text` with
    its own colour. A column of texts that all begin with a number (`2.5 s`) is also aligned right. The first column
    names the rows.
    """
    shown = Table(box=box.SIMPLE, title=title, title_justify="left")
    rows = list(table) if isinstance(table, Sequence) else table.to_dict("records")
    names = list(rows[0] if rows else ()) if isinstance(table, Sequence) else list(table)
    cells = [[_cell(row[name]) for name in names] for row in rows]
    for place, name in enumerate(names):
        said = [str(row[place]) for row in cells if str(row[place])]
        right = place > 0 and bool(said) and all(_NUMBER.match(cell) for cell in said)
        short = place == 0 and max(map(len, said), default=0) <= LONGEST_LABEL
        shown.add_column(str(name), justify="right" if right else "left", no_wrap=short, overflow="fold")
    for row in cells:
        shown.add_row(*row)
    return shown


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as JSON: what is not a number is null."""
    return json.loads(frame.to_json(orient="records", double_precision=6))


def _cell(value: Any) -> str | Text:
    if isinstance(value, Text):
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return "" if value is None or value != value else str(value)  # pandas' missing values differ from themselves
    if value != value:
        return ""
    return f"{value:,.0f}" if isinstance(value, Integral) or abs(value) >= 100 else f"{value:.3g}"


def say(line: object, *, to_stderr: bool = False) -> None:
    """Print a line, with control characters as pictures."""
    print(harmless(str(line)), file=sys.stderr if to_stderr else sys.stdout)


def write_nowhere(stream: TextIO = sys.stdout) -> None:
    """Discard everything that is still written to a stream whose reader has left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_last(line: str) -> None:
    """Print the last line of a command, even if its reader has left."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        write_nowhere()
