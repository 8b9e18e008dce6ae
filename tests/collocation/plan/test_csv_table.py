"""Random files in CSV's forms: what is not meant to change does not, to the byte."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.collocation.plan.csv_table import CsvTable
from labkit.errors import UserError

# what a spreadsheet, pandas and an editor leave: quotes, commas, line ends in cells, letters beyond ASCII
CELLS = st.text(alphabet='ab é,"\n \t-', max_size=6)
MANY = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@st.composite
def files(draw):
    """Text of a file with three columns, and the cells that it was written from."""
    rows = draw(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=5))
    ends = draw(st.sampled_from(["\n", "\r\n"]))
    out = io.StringIO(newline="")
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    csv.writer(out, lineterminator=ends, quoting=quoting).writerows([["Note", "Status", "Run"], *rows])
    text = draw(st.sampled_from(["", "\ufeff"])) + out.getvalue()
    if draw(st.booleans()):
        text = text.removesuffix(ends)
    return text


def parsed(text: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), skipinitialspace=True)
    return [row for row in reader if "".join(row).strip() or len(row) > 1]


def table_of(folder, text: str) -> CsvTable:
    path = folder / "plan.csv"
    path.write_bytes(text.encode())
    return CsvTable(path)


@MANY
@given(files())
def test_cells_hold_what_pythons_reader_finds(tmp_path, text):
    table = table_of(tmp_path, text)
    # white space before a cell is passed over, tabs too, which Python's reader keeps
    found = [[cell.lstrip(" \t") for cell in row.values] for row in (table.header, *table.rows)]
    expected = [[cell.lstrip(" \t") for cell in row] for row in parsed(text)]
    assert found == expected


@MANY
@given(files())
def test_reading_and_writing_nothing_changes_no_byte(tmp_path, text):
    table = table_of(tmp_path, text)
    table.change({})
    assert table.path.read_bytes() == text.encode()


@MANY
@given(files(), st.data())
def test_only_the_cells_that_are_named_change(tmp_path, text, data):
    table = table_of(tmp_path, text)
    before = [(row.line, row.raw) for row in table.rows]
    chosen = data.draw(st.sets(st.sampled_from([line for line, _ in before]))) if before else set()
    status = data.draw(st.sampled_from(["FINISHED", 'FAILED, "no memory"', "", "two words"]))
    for line in chosen:  # one after the other, as jobs end
        table.change({line: {"Status": status, "Run": "r1"}})

    after = CsvTable(table.path)
    for row, (line, raw) in zip(after.rows, before, strict=True):
        assert row.raw[0] == raw[0]
        if line in chosen:
            assert (after.value(row, "Status"), after.value(row, "Run")) == (status, "r1")
        else:
            assert row.raw == raw
    # and what is between the cells: the same text once the rows are taken out of it
    assert remainder(after) == remainder(table_of(tmp_path, text))


def remainder(table: CsvTable) -> str:
    text = table.text
    for row in reversed(table.rows):
        text = text[: row.begin] + text[row.begin + len(row.text) :]
    return text


def test_a_short_row_is_made_long_enough(tmp_path):
    table = table_of(tmp_path, "Note,Status,Run\r\na\r\nb,,\r\n")
    table.change({2: {"Status": "FINISHED", "Run": "r"}})
    assert table.path.read_bytes() == b"Note,Status,Run\r\na,FINISHED,r\r\nb,,\r\n"


def test_a_status_with_line_ends_keeps_every_row_in_its_line(tmp_path):
    table = table_of(tmp_path, "Status,Run\n,\n,\n")
    table.change({2: {"Status": "FAILED\nlate"}})
    table.change({3: {"Status": "FINISHED"}})
    assert table.path.read_text() == "Status,Run\nFAILED late,\nFINISHED,\n"


def test_a_file_that_somebody_else_changed_is_left_alone(tmp_path):
    table = table_of(tmp_path, "Status,Run\n,\n")
    table.path.write_text("Status,Run\n,\n,\n")
    with pytest.raises(UserError, match=r"somebody else changed it since labkit read it.*their change stays"):
        table.change({2: {"Status": "FINISHED"}})
    assert table.path.read_text() == "Status,Run\n,\n,\n"


def test_a_link_stays_a_link(tmp_path):
    table_of(tmp_path, "Status,Run\n,\n")
    link = tmp_path / "link.csv"
    link.symlink_to("plan.csv")
    CsvTable(link).change({2: {"Status": "FINISHED"}})
    assert link.is_symlink() and (tmp_path / "plan.csv").read_text() == "Status,Run\nFINISHED,\n"


def test_a_quote_that_is_not_closed_is_told_by_its_line(tmp_path):
    with pytest.raises(UserError, match=r"plan\.csv, line 3: a quote is opened and not closed\."):
        table_of(tmp_path, 'Status,Run\n"a\n",b\n"c,d\n'.replace('"a\n"', "a"))
