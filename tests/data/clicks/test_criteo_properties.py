"""Random rows in Criteo's layout: whatever is written is read back, and whatever is spoilt is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.compiled import why_not_compiled
from labkit.data.bad_rows import BadRows
from labkit.data.clicks.criteo import Lines
from labkit.data.clicks.criteo_rows import GOOD_LINE, CriteoRows, parse_with_pyarrow, read_block
from labkit.data.clicks.generate import signed_log

INTEGERS = st.none() | st.integers(-(10**9), 10**9)
CATEGORIES = st.none() | st.integers(0, 2**32 - 1)
if why_not_compiled() is None:
    from labkit.data.clicks.criteo_kernel import read_lines

ROWS = st.tuples(
    st.integers(0, 1),
    st.lists(INTEGERS, min_size=13, max_size=13),
    st.lists(CATEGORIES, min_size=26, max_size=26),
)
HERE = Path("file")


def written(row: tuple) -> bytes:
    label, integers, categories = row
    fields = [
        str(label),
        *("" if value is None else str(value) for value in integers),
        *("" if value is None else f"{value:08x}" for value in categories),
    ]
    return "\t".join(fields).encode()


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=20), st.sampled_from([b"\n", b"\r\n"]))
def test_rows_are_read_back_as_they_were_written(rows, line_end):
    text = line_end.join(map(written, rows)) + line_end
    found = read_block(Lines(text, 1, len(rows)), file=HERE, bad=BadRows("error"))
    assert found.label.tolist() == [row[0] for row in rows]
    integers = np.array([row[1] for row in rows], dtype=float)  # None becomes NaN
    np.testing.assert_allclose(found.dense, signed_log(integers), rtol=1e-6)
    assert found.categorical.tolist() == [[value or 0 for value in row[2]] for row in rows]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=8),
    st.data(),
    st.binary(max_size=12).filter(lambda junk: b"\n" not in junk and b"\r" not in junk),
)
def test_a_spoilt_field_is_found_at_its_line_or_was_none(rows, data, junk):
    lines = [written(row) for row in rows]
    place = data.draw(st.integers(0, len(lines) - 1))
    fields = lines[place].split(b"\t")
    fields[data.draw(st.integers(0, 39))] = junk
    lines[place] = b"\t".join(fields)
    bad = BadRows("skip")
    read_block(Lines(b"\n".join(lines) + b"\n", 10, len(lines)), file=HERE, bad=bad)
    # The rule for a line, and the parser that works a block at a time, agree.
    if GOOD_LINE.fullmatch(lines[place]):
        assert bad.count == 0
    else:
        assert [row["line"] for row in bad.first] == [10 + place]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_whatever_crash_the_parser(text):
    bad = BadRows("skip")
    text = text.rstrip(b"\n")
    lines = text.count(b"\n") + 1
    found = read_block(Lines(text, 1, lines), file=HERE, bad=bad)
    assert found is None and bad.count == lines


@pytest.mark.compiled
@settings(max_examples=300, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=8), st.data(), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_what_the_compiled_reader_reads_pyarrow_reads_too(rows, data, line_end, ended):
    lines = [written(row) for row in rows]
    if data.draw(st.booleans()):  # spoil a field, or perhaps not
        place, field = data.draw(st.integers(0, len(lines) - 1)), data.draw(st.integers(0, 39))
        fields = lines[place].split(b"\t")
        fields[field] = data.draw(st.text("0123456789abcdefABCDEFg-+ .\t\r\x00", max_size=20)).encode()
        lines[place] = b"\t".join(fields)
    text = line_end.join(lines) + line_end * ended
    found = read_lines(text if ended else text + b"\n", len(lines), 13, 26)
    if found is None:
        # it may give up on any byte, but not on lines that follow the rule
        assert not all(GOOD_LINE.fullmatch(line.removesuffix(b"\r")) for line in lines)
        return
    compiled, plain = CriteoRows(*found), parse_with_pyarrow(text)
    np.testing.assert_array_equal(compiled.label, plain.label)
    np.testing.assert_allclose(compiled.dense, plain.dense, rtol=3e-7)  # a logarithm may round the other way
    np.testing.assert_array_equal(np.signbit(compiled.dense), np.signbit(plain.dense))
    np.testing.assert_array_equal(compiled.categorical, plain.categorical)
