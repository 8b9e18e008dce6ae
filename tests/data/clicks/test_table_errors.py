"""Bad tables and bad schemas: the file, the line, the field and what to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labkit.data.clicks import load_clicks
from labkit.errors import DataError, UserError

SCHEMA = """
dense = ["price"]
categorical = ["city"]
label = { column = "clicked", positive = ["1"], negative = ["0"] }
"""
HEADER = "clicked,note,price,city"
ROWS = [f"{row % 2},n{row},{row}.5,city{row % 3}" for row in range(40)]


@pytest.fixture
def prepare(tmp_path):
    """Prepare lines of text, or bytes, with a schema."""

    def run(lines: list[str] | bytes, schema: str = SCHEMA, name: str = "a.csv", **options):
        path = tmp_path / name
        text = lines if isinstance(lines, bytes) else ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
        path.write_bytes(text)
        (tmp_path / "schema.toml").write_text(schema)
        places = {"schema": tmp_path / "schema.toml", "cache_dir": tmp_path / "cache"}
        return load_clicks(str(path), **places, **options)

    return run


def with_row(number: int, text: str) -> list[str]:
    """The good table with one data row, counted from 0, replaced."""
    return [HEADER, *ROWS[:number], text, *ROWS[number + 1 :]]


FAULTS = {
    "too few fields": ("1,n,3.5", None, "has 3 fields"),
    "too many fields": ("1,n,3.5,city1,more", None, "has 5 fields"),
    "a label that is neither": ("2,n,3.5,city1", "clicked", "'2' is none of '1', '0'"),
    "a missing label": (",n,3.5,city1", "clicked", "'' is none of"),
    "a word for a number": ("1,n,cheap,city1", "price", "'cheap' is not a finite number"),
    "an infinite number": ("1,n,inf,city1", "price", "'inf' is not a finite number"),
    "an undeclared marker": ("1,n,NA,city1", "price", "'NA' is not a finite number"),
    "an empty line": ("", "clicked", "'' is none of"),
    "not UTF-8": ("1,n,3.5,cit\udce9", "city", "not UTF-8"),
    "not UTF-8 and too few fields": ("1,n\udce9,3.5", None, "has 3 fields"),
    "a number that drowns the others": ("1,n,1e200,city1", "price", "'1e200' all others of the column"),
    "a number that drowns the others, squared or not": ("1,n,-1e15,city1", "price", "'-1e15' all others"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("row", [0, 20])
def test_a_bad_row_is_named_by_file_line_and_field(prepare, tmp_path, fault, row):
    text, field, words = FAULTS[fault]
    with pytest.raises(DataError) as caught:
        prepare(with_row(row, text))
    assert (caught.value.file, caught.value.line, caught.value.field) == (tmp_path / "a.csv", row + 2, field)
    assert words in str(caught.value) and "--on-bad-row skip" in str(caught.value)


def test_lines_are_right_after_a_quoted_line_end(prepare):
    lines = with_row(20, "1,n,cheap,city1")
    lines[5] = '1,"two\nlines",1.5,city1'
    with pytest.raises(DataError) as caught:
        prepare(lines)
    assert caught.value.line == 23


def test_the_first_bad_row_of_any_kind_is_the_one_reported(prepare):
    lines = with_row(5, "1,n,cheap,city1")
    lines[20] = "1,n"
    lines[30] = "7,n,1.5,city1"
    with pytest.raises(DataError) as caught:
        prepare(lines)
    assert caught.value.line == 7


def test_skipped_rows_are_counted_and_listed(prepare):
    lines = with_row(5, "1,n,cheap,city1")
    lines[20] = "1,n"
    lines[30] = "7,n,cheap,city1"  # two faults, one row
    log = prepare(lines, on_bad_row="skip")
    assert log.info["rows"] == 37
    listed = [(row["line"], row["field"]) for row in log.info["skipped"]["first"]]
    assert listed == [(7, "price"), (21, None), (31, "clicked")]
    assert log.info["skipped"]["rows"] == 3


def test_empty_lines_at_the_end_are_the_end(prepare):
    assert prepare([HEADER, *ROWS, "", "", ""]).info["rows"] == 40


def test_a_missing_column_is_named_with_near_ones(prepare, tmp_path):
    with pytest.raises(DataError, match="'city'") as caught:
        prepare([HEADER, *ROWS], SCHEMA.replace('"city"', '"citty"'))
    assert (caught.value.file, caught.value.field) == (tmp_path / "a.csv", "citty")


def test_a_repeated_column_is_named(prepare):
    with pytest.raises(DataError, match="'price' more than once") as caught:
        prepare(["clicked,price,price,city", *ROWS])
    assert caught.value.line == 1


def test_a_header_that_is_not_utf8_is_refused(prepare):
    with pytest.raises(DataError, match="iconv") as caught:
        prepare([HEADER.replace("note", "not\udce9"), *ROWS])
    assert caught.value.line == 1


def test_rows_that_are_not_utf8_are_skipped_and_others_lose_nothing(prepare):
    lines = with_row(20, "1,n,3.5,cit\udce9")
    lines[3] = "1,n\udce9,2.5,a\N{SUBSTITUTE}ü"  # only in a column that nobody asked for
    log = prepare(lines, on_bad_row="skip")
    assert [(row["line"], row["field"]) for row in log.info["skipped"]["first"]] == [(4, "city"), (22, "city")]
    lines[21] = ROWS[20]
    lines[3] = "1,n\udce9,2.5,aü"
    assert prepare(lines).info["rows"] == 40


def test_a_wide_spread_is_no_fault_where_its_logarithm_is_taken(prepare):
    assert prepare(with_row(20, "1,n,1e200,city1"), SCHEMA + 'log = ["price"]').info["rows"] == 40


def test_a_field_may_be_long_and_a_split_column_a_feature(prepare):
    split = 'split = { column = "city", test_values = ["city2"] }'
    lines = [f"{HEADER},{'x' * 200_000}", *(row + "," for row in ROWS)]
    assert (prepare(lines, SCHEMA + split).split("test").dense.shape) == (13, 1)


def test_no_rows_and_no_bytes_are_named(prepare):
    with pytest.raises(DataError, match="no usable row"):
        prepare([HEADER])
    with pytest.raises(DataError, match="empty"):
        prepare(b"")


def test_one_class_only_is_refused(prepare):
    with pytest.raises(DataError, match=r"have a negative label.*nothing to learn") as caught:
        prepare([HEADER, *("0" + row[1:] for row in ROWS)])
    assert caught.value.field == "clicked"


def test_a_split_without_rows_is_refused(prepare):
    with pytest.raises(DataError, match="leave a split empty"):
        prepare([HEADER, *ROWS[:4]])


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv"])
def test_a_truncated_gzip_file_is_named(prepare, name):
    packed = gzip.compress("\n".join([HEADER, *ROWS * 500]).encode())
    for damaged in (packed[: len(packed) // 2], packed[:-6] + bytes(6), packed + b"more"):
        with pytest.raises(DataError, match="cut short or damaged") as caught:
            prepare(damaged, name=name)
        assert caught.value.line > 1


def test_a_damaged_parquet_file_is_named(prepare, tmp_path):
    table = pa.table({"clicked": [0, 1] * 20, "price": range(40), "city": ["a", "b"] * 20})
    pq.write_table(table, tmp_path / "b.parquet", write_page_checksum=True)
    content = bytearray((tmp_path / "b.parquet").read_bytes())
    pages = pq.read_metadata(tmp_path / "b.parquet").row_group(0).column(1)
    content[pages.dictionary_page_offset + pages.total_compressed_size - 1] ^= 1
    for damaged in (b"PAR1" + bytes(100), bytes(content)):
        with pytest.raises(DataError, match="Parquet file is damaged"):
            prepare(damaged, name="a.parquet")


@pytest.mark.parametrize("values", [[["a"], ["b"]], [b"\xe9", b"b"]])
def test_a_parquet_column_of_neither_texts_nor_numbers_is_named(prepare, tmp_path, values):
    pq.write_table(pa.table({"clicked": [0, 1] * 20, "price": range(40), "city": values * 20}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="neither texts nor numbers") as caught:
        prepare((tmp_path / "b.parquet").read_bytes(), name="a.parquet")
    assert caught.value.field == "city"


def test_integers_beyond_a_float_are_standardised_as_well_as_it_goes(prepare, tmp_path):
    stamps = [1_760_000_000_000_000_001 + 10**9 * row for row in range(40)]  # nanoseconds
    pq.write_table(pa.table({"clicked": [0, 1] * 20, "price": stamps, "city": ["a", "b"] * 20}), tmp_path / "b.parquet")
    split = "split = { last_rows = 4 }"
    dense = prepare((tmp_path / "b.parquet").read_bytes(), SCHEMA + split, name="a.parquet").split("test").dense
    assert np.allclose(np.diff(dense[:, 0]), np.diff(dense[:, 0])[0], atol=1e-6) and dense[0, 0] > 1


def test_bad_values_in_parquet_are_named_by_their_row(prepare, tmp_path):
    table = pd.DataFrame({"clicked": [0, 1] * 20, "price": [float(row) for row in range(40)], "city": "x"})
    table.loc[7, "clicked"] = 3
    table.loc[8, "price"] = float("inf")
    table.to_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match="'3' is none of") as caught:
        prepare((tmp_path / "b.parquet").read_bytes(), name="a.parquet")
    assert caught.value.line == 8


def test_a_file_nobody_knows_is_answered_with_a_schema_to_start_from(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("\n".join([HEADER, *ROWS]))
    with pytest.raises(UserError, match=r"(?s)write a schema.*--schema.*label = \{ column"):
        load_clicks(str(path), cache_dir=tmp_path)


def test_an_unknown_name_is_answered_with_the_near_one(tmp_path):
    with pytest.raises(UserError, match="Did you mean 'synthetic-small'"):
        load_clicks("synthetic-smal", cache_dir=tmp_path)


SCHEMA_FAULTS = {
    "no TOML": ("dense = [", "is not a TOML file"),
    "an unknown key": (SCHEMA + "categorial = 1", "did you mean 'categorical'"),
    "an unknown key inside": (
        SCHEMA + "split = { last_row = 3 }",
        "'split.last_row' is unknown: did you mean",
    ),
    "no label": ('dense = ["a"]\ncategorical = ["b"]', "'label' is missing"),
    "no positive value": (
        'dense = ["a"]\ncategorical = ["b"]\nlabel = { column = "c" }',
        "'label.positive' is missing",
    ),
    "no dense column": (SCHEMA.replace('["price"]', "[]"), "names 0 dense"),
    "a number for a list": (SCHEMA + "missing = 3", "'missing' is 3, and must be a list"),
    "a text for a number": (SCHEMA + 'min_count = "3"', "'min_count' is '3', and must be a whole number"),
    "a column in two roles": (SCHEMA.replace('["city"]', '["city", "price"]'), "'price' more than once"),
    "a logarithm of a category": (SCHEMA + 'log = ["city"]', "'city', not listed under `dense`"),
    "one bucket": (SCHEMA + "bucketise = { price = 1 }", "fewer than 2 buckets"),
    "shares above 1": (SCHEMA + "split = { test = 0.6, validation = 0.6 }", "between 0 and 1"),
    "a split column without values": (SCHEMA + 'split = { column = "note" }', "split.test_values"),
    "an unknown layout": ('layout = "avro"', "layout is 'avro'"),
    "an unknown vocabulary": ('layout = "criteo"\nvocabulary = "all"', "vocabulary is 'all'"),
    "no positive values": (SCHEMA.replace('["1"]', "[]"), "label.positive is empty"),
    "a value of both classes": (SCHEMA.replace('["0"]', '["0", "1"]'), "both have '1'"),
    "a separator of two": (SCHEMA + 'separator = "||"', "`separator` is '||'"),
    "a separator that is no ASCII": (SCHEMA + 'separator = "§"', "`separator` is '§'"),
    "a table of one row": ('layout = "criteo"\nmax_rows_per_table = 1', "max_rows_per_table is 1"),
}


@pytest.mark.parametrize("fault", SCHEMA_FAULTS)
def test_a_bad_schema_is_named_with_what_is_wrong(prepare, tmp_path, fault):
    schema, words = SCHEMA_FAULTS[fault]
    with pytest.raises(UserError) as caught:
        prepare([HEADER, *ROWS], schema)
    assert str(tmp_path / "schema.toml") in str(caught.value) and words in str(caught.value)


def test_a_missing_schema_and_an_unknown_option_are_named(prepare, tmp_path):
    path = Path(tmp_path / "a.csv")
    path.write_text("x")
    with pytest.raises(UserError, match="no schema file"):
        load_clicks(str(path), schema=tmp_path / "none.toml", cache_dir=tmp_path)
    with pytest.raises(UserError, match="'min_cont' is unknown: did you mean 'min_count'"):
        prepare([HEADER, *ROWS], min_cont=3)


def test_a_table_that_does_not_fit_in_memory_is_refused(prepare, monkeypatch):
    monkeypatch.setattr("labkit.data.clicks.tabular.MEMORY_PER_BYTE", {"text": 10**12, "packed": 10**12})
    with pytest.raises(UserError, match="GiB of memory"):
        prepare([HEADER, *ROWS])
