"""A CSV file that is changed cell by cell: every other byte of it stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.errors import DataError, UserError
from labkit.runs.atomic import replace_text

# white space before a cell is passed over, as radT has pandas do it; a quote within quotes is written twice
CELL = re.compile(r'[ \t]*(?:"(?P<quoted>(?:[^"]|"")*)"(?P<after>[^,\r\n]*)|(?P<plain>[^,\r\n]*))')
LINE_END = re.compile(r"\r\n|\n|\r")
BOM = "\ufeff"


@dataclass(frozen=True)
class CsvRow:
    """One row, as it stands in the file."""

    line: int
    """That it began in, from 1, when the file was read; names the row from then on"""
    begin: int
    """Of its text in the file's, in characters"""
    raw: tuple[str, ...]
    """Its cells with their quotes and the white space before them"""
    values: tuple[str, ...]
    """What the cells hold"""

    @property
    def text(self) -> str:
        """As it stands in the file, without its line end."""
        return ",".join(self.raw)


class CsvTable:
    """A file with a header line, and what it held when this process last read or wrote it."""

    def __init__(self, path: Path):
        """Read it.

        Raises:
            UserError: it cannot be read, or a quote is not closed.
        """
        self.path = path
        self.text = _read(path)
        self.header, *self.rows = _rows(self.text, path) or [CsvRow(1, 0, (), ())]
        self.columns = [name.strip() for name in self.header.values]

    def value(self, row: CsvRow, column: str) -> str:
        """A cell's value without white space round it; empty where the row, or the table, is too short for it."""
        place = self.columns.index(column) if column in self.columns else len(row.values)
        return row.values[place].strip() if place < len(row.values) else ""

    def change(self, cells: Mapping[int, Mapping[str, str]]) -> None:
        """Write cells, in one step.

        Args:
            cells: a row's line → column → value; line ends in a value become spaces.

        Raises:
            UserError: somebody else changed the file since it was read; it is left as it is.
        """
        if _read(self.path) != self.text:
            raise UserError(
                f"{self.path}: somebody else changed it since labkit read it, so what became of the rows is not "
                "written to it, and their change stays. The run folders hold every result: write the statuses in by "
                "hand, or run the plan again."
            )
        text = self.text
        # from the end, so that what comes before keeps its place
        for row in reversed(self.rows):
            if row.line in cells:
                new = self._changed(row, cells[row.line])
                text = text[: row.begin] + new + text[row.begin + len(row.text) :]
        if text != self.text:
            # through a link to the file that it leads to
            replace_text(self.path.resolve(), text)
            self.text = text
            # a value with line ends, which is gone now, moves what comes after it up
            _, *rows = _rows(text, self.path)
            self.rows = [replace(row, line=old.line) for row, old in zip(rows, self.rows, strict=True)]

    def _changed(self, row: CsvRow, values: Mapping[str, str]) -> str:
        raw = list(row.raw)
        for column, value in values.items():
            place = self.columns.index(column)
            raw += [""] * (place + 1 - len(raw))
            raw[place] = _written(" ".join(value.split()), raw[place])
        return ",".join(raw)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"There is no file {path}: check the path.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8.") from None


def _rows(text: str, path: Path) -> list[CsvRow]:
    """The rows of a file, without empty lines."""
    rows, place, line = [], len(BOM) if text.startswith(BOM) else 0, 1
    while place < len(text):
        begin, raw, values = place, [], []
        while True:
            cell = CELL.match(text, place)
            if cell["quoted"] is None and cell["plain"].startswith('"'):
                raise DataError(
                    "a quote is opened and not closed.", fix="Close it, or write it twice.", file=path, line=line
                )
            raw.append(cell[0])
            quoted = cell["quoted"]
            values.append(cell["plain"] if quoted is None else quoted.replace('""', '"') + cell["after"])
            place = cell.end()
            if text[place : place + 1] != ",":
                break
            place += 1
        if len(values) > 1 or values[0]:
            rows.append(CsvRow(line, begin, tuple(raw), tuple(values)))
        end = LINE_END.match(text, place)
        place = end.end() if end else place
        line += len(LINE_END.findall(text, begin, place))
    return rows


def _written(value: str, old: str) -> str:
    """A cell with another value: quoted where the old one was, or where it must be."""
    space = old[: len(old) - len(old.lstrip(" \t"))] if old.strip() else ""
    if old.lstrip().startswith('"') or any(char in value for char in ',"'):
        value = '"' + value.replace('"', '""') + '"'
    return space + value
