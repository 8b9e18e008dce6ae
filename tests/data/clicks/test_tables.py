"""CSV, TSV and Parquet with a schema: the worked example, splits, missing values, buckets, and what is bad."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labkit.data import store
from labkit.data.clicks import load_clicks
from labkit.data.clicks.generate import signed_log
from labkit.errors import DataError, UserError

SPLITS = ("train", "validation", "test")
SCHEMA = """
dense = ["price", "age"]
categorical = ["city"]
min_count = 1
missing = ["?"]
label = { column = "clicked", positive = ["yes"], negative = ["no"] }
"""
HEADER = "clicked,unused,price,age,city"
ROWS = [f"{'yes' if row % 2 else 'no'},n{row},{row}.5,{row % 7},city{row % 3}" for row in range(40)]


def frame(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "clicked": rng.choice(["yes", "no"], rows),
            "unused": [f'with "quotes", {row}' for row in range(rows)],
            "price": rng.integers(0, 1000, rows).astype(str),
            "age": rng.random(rows).round(3).astype(str),
            "city": rng.choice(["Rome", "Oslo", "Lima"], rows),
        }
    )


@pytest.fixture
def prepare(tmp_path):
    """Prepare a frame, lines of text, bytes, or with None what is there, with a schema."""

    def run(content, schema: str = SCHEMA, name: str = "a.csv", **options):
        path = tmp_path / name
        if isinstance(content, pd.DataFrame):
            content.to_csv(path, index=False)
        elif isinstance(content, list):
            path.write_bytes(("\n".join(content) + "\n").encode("utf-8", "surrogateescape"))
        elif content is not None:
            path.write_bytes(content)
        (tmp_path / "schema.toml").write_text(schema)
        return load_clicks(str(path), schema=tmp_path / "schema.toml", cache_dir=tmp_path / "cache", **options)

    return run


def everything(log) -> list[np.ndarray]:
    return [np.array(part) for name in SPLITS for part in vars(log.split(name)).values()]


def assert_same(one, other) -> None:
    for first, second in zip(everything(one), everything(other), strict=True):
        np.testing.assert_array_equal(first, second)


def sizes(log) -> list[int]:
    return [len(log.split(name)) for name in SPLITS]


def test_adult_is_known_by_its_header_and_split_as_published(shared_data, tmp_path):
    path = shared_data / "adult" / "adult.csv"
    log = load_clicks(str(path), cache_dir=tmp_path)
    train, validation, test = (log.split(name) for name in SPLITS)
    assert len(test) == 16_281 and len(train) + len(validation) == 32_561
    table = pd.read_csv(path, sep=", ", engine="python")
    np.testing.assert_array_equal(test.label, table["income"][32_561:].isin([">50K."]))
    assert int(train.label.sum() + validation.label.sum()) == int((table["income"] == ">50K").sum())
    hours = test.dense[:, log.dense_names.index("hours-per-week")]
    assert np.corrcoef(table["hours-per-week"][32_561:], hours)[0, 1] == pytest.approx(1, abs=1e-6)
    # "?" is a category of its own, not one more value of the same row as rare ones.
    work = test.categorical[:, log.categorical_names.index("workclass"), 0]
    assert len(set(work[(table["workclass"][32_561:] == "?").to_numpy()])) == 1
    np.testing.assert_allclose(train.dense.mean(0, dtype=float), 0, atol=1e-4)
    np.testing.assert_allclose(train.dense.std(0, dtype=float), 1, atol=1e-4)


def test_text_of_every_kind_and_parquet_prepare_to_the_same(prepare, tmp_path):
    table = frame()
    first = prepare(table)
    content = (tmp_path / "a.csv").read_bytes()
    table.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    table.astype({"price": int, "age": float}).to_parquet(tmp_path / "d.parquet")
    (tmp_path / "c.csv").write_bytes(gzip.compress(content))
    (tmp_path / "e.csv").write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"))
    (tmp_path / "f.csv").write_bytes(content.replace(b"\n", b"\r"))
    for name in ("b.tsv", "c.csv", "d.parquet", "e.csv", "f.csv"):
        assert_same(first, prepare(None, name=name))
    headless = b"\xef\xbb\xbf" + content.partition(b"\n")[2]
    assert_same(first, prepare(headless, f"names = {list(table.columns)}\n" + SCHEMA, name="g.csv"))


def test_missing_values_are_the_mean_and_a_category(prepare):
    table = frame()
    table.loc[:20, "price"] = "?"
    table.loc[:20, "city"] = ""
    log = prepare(table)
    assert log.table_rows == (5,)  # unknown, three cities, missing
    assert sum((log.split(name).dense[:, 0] == 0).sum() for name in SPLITS) == 21


def test_the_last_rows_a_column_or_the_seed_say_the_split(prepare):
    table = frame()
    table["fold"] = np.resize(["a", "b", "b", "c"], 200)
    clicked = table["clicked"] == "yes"
    last = prepare(table, SCHEMA + "split = { last_rows = 50, validation = 0.2 }")
    assert sizes(last) == [120, 30, 50]
    np.testing.assert_array_equal(last.split("test").label, clicked[150:])
    said = prepare(None, SCHEMA + 'split = { column = "fold", validation_values = ["a"], test_values = ["c"] }')
    np.testing.assert_array_equal(said.split("test").label, clicked[table["fold"] == "c"])
    np.testing.assert_array_equal(said.split("validation").label, clicked[table["fold"] == "a"])
    drawn = [prepare(None, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0].folder == drawn[1].folder != drawn[2].folder
    assert sizes(drawn[0]) == [162, 18, 20]
    assert (drawn[0].split("test").dense != drawn[2].split("test").dense).any()


def test_vocabulary_means_and_buckets_come_from_the_training_rows(prepare):
    changed = frame()
    changed.loc[150:, "city"] = "Mars"
    changed.loc[150:, "price"] = "1000000"
    schema = SCHEMA + "split = { last_rows = 50 }\nbucketise = { price = 4 }"
    logs = [prepare(frame(), schema), prepare(changed, schema, name="b.csv")]
    for one, other in zip(*(vars(log.split("train")).values() for log in logs), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (logs[1].split("test").categorical[:, 0] == 0).all()
    assert (logs[1].split("test").categorical[:, 1] == 4).all()


def test_buckets_hold_equal_numbers_of_rows_and_row_0_the_missing(prepare):
    table = frame(2000)
    table.loc[:99, "price"] = ""
    log = prepare(table, SCHEMA + "bucketise = { price = 5 }")
    assert log.categorical_names == ["city", "price (bucket)"] and log.table_rows[1] == 6
    counts = np.bincount(log.split("train").categorical[:, 1, 0], minlength=6)
    assert counts[1:] == pytest.approx(counts[1:].mean(), rel=0.03)  # ties on whole numbers
    assert 0 < counts[0] <= 100


def test_a_column_with_a_long_tail_can_be_a_logarithm(prepare):
    table = frame()
    found = prepare(table, SCHEMA + 'log = ["price"]\nsplit = { last_rows = 50 }').split("test").dense[:, 0]
    assert np.corrcoef(found, signed_log(table["price"][150:].astype(float)))[0, 1] == pytest.approx(1, abs=1e-6)
    rows = with_row(20, "yes,n,1e200,1,city1")  # a wide spread is then no fault
    assert prepare(rows, SCHEMA + 'log = ["price"]').info["rows"] == 40


def test_the_second_start_reads_nothing_and_a_changed_source_is_noticed(prepare, tmp_path, monkeypatch):
    path, then = tmp_path / "a.csv", time.time() - 60
    frame().to_csv(path, index=False)
    os.utime(path, (then, then))
    first = prepare(None)
    with monkeypatch.context() as patch:
        patch.setattr("labkit.data.clicks.load.prepare_table", lambda *_, **__: pytest.fail("prepared again"))
        read, plain = [], store.hash_file
        patch.setattr(store, "hash_file", lambda file, size: read.append(file) or plain(file, size))
        assert prepare(None).fingerprint == first.fingerprint
        assert path.resolve() not in read
    os.utime(path)  # only touched: read, and found to be the same
    assert prepare(None).folder == first.folder
    path.write_text(path.read_text().replace("Rome", "Bonn"))  # the same size
    assert prepare(None).folder != first.folder
    assert prepare(None, SCHEMA + 'log = ["price"]').fingerprint != first.fingerprint
    assert prepare(None, min_count=10**6).table_rows == (1,)  # an option replaces what the schema says


def with_row(number: int, text: str) -> list[str]:
    """The good table with one data row, counted from 0, replaced."""
    return [HEADER, *ROWS[:number], text, *ROWS[number + 1 :]]


FAULTS = {
    "too few fields": ("yes,n,3.5,1", None, "has 4 fields"),
    "too many fields": ("yes,n,3.5,1,city1,more", None, "has 6 fields"),
    "a label that is neither": ("2,n,3.5,1,city1", "clicked", "'2' is none of 'yes', 'no'"),
    "a missing label": (",n,3.5,1,city1", "clicked", "'' is none of"),
    "a word for a number": ("yes,n,cheap,1,city1", "price", "'cheap' is not a finite number"),
    "an infinite number": ("yes,n,inf,1,city1", "price", "'inf' is not a finite number"),
    "an undeclared marker": ("yes,n,NA,1,city1", "price", "'NA' is not a finite number"),
    "an empty line": ("", None, "is empty"),
    "not UTF-8": ("yes,n,3.5,1,cit\udce9", "city", "not UTF-8"),
    "not UTF-8 and too few fields": ("yes,n\udce9,3.5", None, "has 3 fields"),
    "a number that drowns the others": ("yes,n,1e200,1,city1", "price", "'1e200' all others of the column"),
    "a number that drowns the others, squared or not": ("yes,n,-1e15,1,city1", "price", "'-1e15' all others"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("row", [0, 20])
def test_a_bad_row_is_named_by_file_line_and_field(prepare, tmp_path, fault, row):
    text, field, words = FAULTS[fault]
    with pytest.raises(DataError) as caught:
        prepare(with_row(row, text))
    assert (caught.value.file, caught.value.line, caught.value.field) == (tmp_path / "a.csv", row + 2, field)
    assert words in str(caught.value) and "--on-bad-row skip" in str(caught.value)


def test_the_first_bad_row_is_reported_and_skipped_rows_are_counted_and_listed(prepare):
    lines = with_row(5, "yes,n,cheap,1,city1")
    lines[20] = "yes,n"
    lines[30] = "maybe,n,cheap,1,city1"  # two faults, one row
    with pytest.raises(DataError) as caught:
        prepare(lines)
    assert caught.value.line == 7
    lines[3] = 'yes,"two\nlines",1.5,1,city1'  # after it, lines and rows are no longer one to one
    log = prepare(lines, on_bad_row="skip")
    assert log.info["rows"] == 37 and log.info["skipped"]["rows"] == 3
    listed = [(row["line"], row["field"]) for row in log.info["skipped"]["first"]]
    assert listed == [(8, "price"), (22, None), (32, "clicked")]


def test_rows_that_are_not_utf8_are_skipped_and_others_lose_nothing(prepare):
    lines = with_row(20, "yes,n,3.5,1,cit\udce9")
    lines[3] = "yes,n\udce9,2.5,1,ü"  # only in a column that nobody asked for
    log = prepare(lines, on_bad_row="skip")
    assert [(row["line"], row["field"]) for row in log.info["skipped"]["first"]] == [(22, "city")]


def test_odd_tables_that_are_good(prepare):
    assert prepare([HEADER, *ROWS, "", "", ""]).info["rows"] == 40  # empty lines at the end are the end
    lines = [f"{HEADER},{'x' * 200_000}", *(row + "," for row in ROWS)]
    split = 'split = { column = "city", test_values = ["city2"] }'
    assert (prepare(lines, SCHEMA + split).split("test").dense.shape) == (13, 2)  # a long field; a feature that splits


PACKED = gzip.compress("\n".join([HEADER, *ROWS * 500]).encode())
TABLES = {
    "a missing column, with near ones": ([HEADER.replace("city", "citty"), *ROWS], "city", None, "'citty' is meant"),
    "a repeated column": ([HEADER.replace("age", "price"), *ROWS], None, 1, "'price' more than once"),
    "a header that is not UTF-8": ([HEADER.replace("unused", "not\udce9"), *ROWS], None, 1, "iconv"),
    "no rows": ([HEADER], None, None, "no usable row"),
    "no bytes": (b"", None, None, "empty"),
    "one class only": ([HEADER, *(row.replace("yes", "no") for row in ROWS)], "clicked", None, "nothing to learn"),
    "a split without rows": ([HEADER, *ROWS[:4]], None, None, "leave a split empty"),
    "half a gzip file": (PACKED[: len(PACKED) // 2], None, ..., "cut short or damaged"),
    "a gzip file with a wrong sum": (PACKED[:-6] + bytes(6), None, ..., "cut short or damaged"),
    "a gzip file with more behind it": (PACKED + b"more", None, ..., "cut short or damaged"),
}


@pytest.mark.parametrize("fault", TABLES)
def test_a_table_that_cannot_be_used_is_named(prepare, tmp_path, fault):
    content, field, line, words = TABLES[fault]
    with pytest.raises(DataError, match=words) as caught:
        prepare(content)
    assert (caught.value.file, caught.value.field) == (tmp_path / "a.csv", field)
    assert caught.value.line > 1 if line is ... else caught.value.line == line


def parquet(tmp_path: Path, **changes) -> bytes:
    columns = {"clicked": ["no", "yes"] * 20, "price": range(40), "age": range(40), "city": ["a", "b"] * 20} | changes
    pq.write_table(pa.table(columns), tmp_path / "made.parquet", write_page_checksum=True)
    return (tmp_path / "made.parquet").read_bytes()


@pytest.mark.parametrize(
    ("changes", "field", "line", "words"),
    [
        ({"city": [["a"], ["b"]] * 20}, "city", None, "neither texts nor numbers"),
        ({"city": [b"\xe9", b"b"] * 20}, "city", None, "neither texts nor numbers"),
        ({"clicked": ["no", "yes"] * 3 + ["no", "maybe"] + ["yes"] * 32}, "clicked", 8, "'maybe' is none of"),
        ({"price": [1.0] * 8 + [float("inf")] * 32}, "price", 9, "not a finite number"),
    ],
)
def test_bad_values_in_parquet_are_named_by_column_and_row(prepare, tmp_path, changes, field, line, words):
    with pytest.raises(DataError, match=words) as caught:
        prepare(parquet(tmp_path, **changes), name="a.parquet")
    assert (caught.value.field, caught.value.line) == (field, line)


def test_a_damaged_parquet_file_is_named(prepare, tmp_path):
    content = bytearray(parquet(tmp_path))
    pages = pq.read_metadata(tmp_path / "made.parquet").row_group(0).column(1)
    content[pages.dictionary_page_offset + pages.total_compressed_size - 1] ^= 1
    for damaged in (b"PAR1" + bytes(100), bytes(content)):
        with pytest.raises(DataError, match="Parquet file is damaged"):
            prepare(damaged, name="a.parquet")


def test_integers_beyond_a_float_are_standardised_as_well_as_it_goes(prepare, tmp_path):
    stamps = [1_760_000_000_000_000_001 + 10**9 * row for row in range(40)]  # nanoseconds
    content = parquet(tmp_path, price=stamps)
    dense = prepare(content, SCHEMA + "split = { last_rows = 4 }", name="a.parquet").split("test").dense
    assert np.allclose(np.diff(dense[:, 0]), np.diff(dense[:, 0])[0], atol=1e-6) and dense[0, 0] > 1


SCHEMA_FAULTS = {
    "no TOML": ("dense = [", "is not a TOML file"),
    "an unknown key": (SCHEMA + "categorial = 1", "did you mean 'categorical'"),
    "an unknown key inside": (SCHEMA + "split = { last_row = 3 }", "'split.last_row' is unknown: did you mean"),
    "no label": ('dense = ["a"]\ncategorical = ["b"]', "'label' is missing"),
    "no positive value": ('dense = ["a"]\nlabel = { column = "c" }', "'label.positive' is missing"),
    "no dense column": (SCHEMA.replace('["price", "age"]', "[]"), "names 0 dense"),
    "a number for a list": (SCHEMA.replace('["?"]', "3"), "'missing' is 3, and must be a list"),
    "a text for a number": (SCHEMA.replace("min_count = 1", 'min_count = "3"'), "must be a whole number"),
    "a column in two roles": (SCHEMA.replace('["city"]', '["city", "price"]'), "'price' more than once"),
    "a logarithm of a category": (SCHEMA + 'log = ["city"]', "'city', not listed under `dense`"),
    "one bucket": (SCHEMA + "bucketise = { price = 1 }", "fewer than 2 buckets"),
    "shares above 1": (SCHEMA + "split = { test = 0.6, validation = 0.6 }", "between 0 and 1"),
    "a split column without values": (SCHEMA + 'split = { column = "note" }', "split.test_values"),
    "an unknown layout": ('layout = "avro"', "layout is 'avro'"),
    "an unknown vocabulary": ('layout = "criteo"\nvocabulary = "all"', "vocabulary is 'all'"),
    "no positive values": (SCHEMA.replace('["yes"]', "[]"), "label.positive is empty"),
    "a value of both classes": (SCHEMA.replace('["no"]', '["no", "yes"]'), "both have 'yes'"),
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


def test_other_refusals_say_what_to_do(prepare, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="'min_cont' is unknown: did you mean 'min_count'"):
        prepare([HEADER, *ROWS], min_cont=3)
    path = str(tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"(?s)write a schema.*--schema.*label = \{ column"):
        load_clicks(path, cache_dir=tmp_path)
    with pytest.raises(UserError, match="no schema file"):
        load_clicks(path, schema=tmp_path / "none.toml", cache_dir=tmp_path)
    with pytest.raises(UserError, match="Did you mean 'synthetic-small'"):
        load_clicks("synthetic-smal", cache_dir=tmp_path)
    monkeypatch.setattr("labkit.data.clicks.tabular.MEMORY_PER_BYTE", {"text": 10**12, "packed": 10**12})
    with pytest.raises(UserError, match="GiB of memory"):
        prepare(None)
