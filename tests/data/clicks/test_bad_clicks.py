"""Bad tables, bad files in Criteo's layout and bad schemas: each is named with its place, and rows can be skipped."""

import bz2
import gzip
import io
import lzma
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labkit.data.clicks import columns, load_clicks
from labkit.errors import DataError, UserError

HEADER = "clicked,unused,price,age,city"
TABLE = [HEADER, *(f"{'yes' if row % 2 else 'no'},n{row},{row}.5,{row % 7},city{row % 3}" for row in range(40))]
CRITEO = 'layout = "criteo"'


def with_line(lines: list[str], number: int, line: str) -> list[str]:
    return [*lines[: number - 1], line, *lines[number:]]


@pytest.fixture(scope="module")
def criteo(generated) -> list[str]:
    """500 good lines."""
    return generated.read_text().splitlines()[:500]


def spoil(line: str, field: int, value: str) -> str:
    values = line.split("\t")
    values[field] = value
    return "\t".join(values)


# the bad row of a table, or the field and value that are bad in a row of Criteo's; the field of the error
FAULTS = {
    "too many fields": ("yes,n,3.5,1,city1,more", None),
    "a label that is neither": ("2,n,3.5,1,city1", "clicked"),
    "a missing label": (",n,3.5,1,city1", "clicked"),
    "a word for a number": ("yes,n,cheap,1,city1", "price"),
    "an undeclared marker": ("yes,n,NA,1,city1", "price"),
    "not UTF-8": ("yes,n,3.5,1,cit\udce9", "city"),
    "not UTF-8 and too few fields": ("yes,n\udce9,3.5", None),
    "a number that drowns the others, squared or not": ("yes,n,-1e15,1,city1", "price"),
    "criteo: 41 fields": ((39, "1\t"), None),
    "criteo: a fraction for an integer": ((13, "1.5"), "I13"),
    "criteo: an integer too long": ((1, "9" * 19), "I1"),
    "criteo: too many digits": ((39, "123456789"), "C26"),
    "criteo: not UTF-8": ((20, "\udcff"), "C7"),
    "criteo: a quote": ((20, '"'), "C7"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_row_is_named_by_file_line_and_field(prepare, criteo, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(columns, "BLOCK_BYTES", 8000)  # some lines, so that the line may lie in a later block
    spoilt, field = FAULTS[fault]
    is_table = isinstance(spoilt, str)
    lines, more = (TABLE, {}) if is_table else (criteo, {"schema": CRITEO})
    for line in (2, len(lines)):
        bad = with_line(lines, line, spoilt if is_table else spoil(lines[line - 1], *spoilt))
        with pytest.raises(DataError) as caught:
            prepare(bad, **more)
        assert (caught.value.file, caught.value.line, caught.value.field) == (tmp_path / "a.csv", line, field)
        assert "--on-bad-row skip" in str(caught.value)


def test_the_first_bad_row_is_reported_and_skipped_rows_are_counted_and_listed(prepare, monkeypatch):
    lines = with_line(TABLE, 7, "yes,n,cheap,1,city1")
    lines[20] = "yes,n"
    lines[30] = "maybe,n,cheap,1,city1"  # two faults, one row
    lines[35] = "yes,n\udce9,2.5,1,ü"  # not UTF-8, but in a column that nobody asked for
    with pytest.raises(DataError) as caught:
        prepare(lines)
    assert caught.value.line == 7 and "The value 'cheap' is not a finite number such as 3.14" in str(caught.value)
    assert "under `missing`" in str(caught.value)
    lines[2] = 'yes,5" nail,1.5,1,"city1"'  # a quote that opens nothing
    lines[3] = 'yes,"two\n\nlines",1.5,1,city1'  # after it, lines and rows are no longer one to one
    monkeypatch.setattr(columns, "BLOCK_BYTES", 100)
    monkeypatch.setattr(columns, "LONGEST_BYTES", 400)
    log = prepare(lines, on_bad_row="skip")
    assert log.info["rows"] == 37 and log.info["skipped"]["rows"] == 3
    listed = [(row["line"], row["field"]) for row in log.info["skipped"]["first"]]
    assert listed == [(9, "price"), (23, None), (33, "clicked")]


def test_skipped_rows_have_their_lines_in_every_block_and_a_policy_has_its_own_data(prepare, criteo, monkeypatch):
    monkeypatch.setattr(columns, "BLOCK_BYTES", 6000)
    bad_lines = [1, 2, 100, 101, 102, 333, 500]
    lines = [spoil(line, 0, "x") if number in bad_lines else line for number, line in enumerate(criteo, 1)]
    log = prepare([*lines, *["bad"] * 150], schema=CRITEO, on_bad_row="skip")
    assert log.info["rows"] == 493 and log.info["skipped"]["rows"] == 157
    listed = [row["line"] for row in log.info["skipped"]["first"]]
    assert listed[:7] == bad_lines and len(listed) == 100
    for policy, words in (("error", "line 1,"), ("ignore", "on_bad_row is 'ignore'")):
        with pytest.raises(UserError, match=words):
            prepare(None, schema=CRITEO, on_bad_row=policy)


def test_odd_tables_that_are_good(prepare):
    assert prepare(["", "", *TABLE[:10], "", *TABLE[10:], "", ""]).info["rows"] == 40  # empty lines
    lines = [f"{HEADER},{'x' * 200_000}", *(row + "," for row in TABLE[1:])]
    split = 'split = { column = "city", test_values = ["city2"] }'
    assert (prepare(lines, split).split("test").dense.shape) == (13, 2)  # a long field; a feature that splits


STRAY = {
    "two texts that begin with a quote, far apart": ({9: '"new', 30: '"old'}, [9, 30]),
    "in neighbouring rows": ({9: '"new', 10: '"old'}, [9, 10]),
    "one that is never closed": ({9: '"new'}, [9]),
    "one in the last row, which it ends with": ({40: '"new'}, []),
    "one that an inch mark closes": ({9: '"new', 30: 'a 6" pipe'}, [9]),
    "a quoted word": ({9: '"new" town'}, []),
    "a text over lines that look like no row": ({9: '"new, \nnot, a, row\n\ntown"'}, []),
}


@pytest.mark.parametrize("fault", STRAY)
@pytest.mark.parametrize("block_bytes", [2**22, 150])
def test_a_stray_quote_costs_its_line_and_no_other(prepare, monkeypatch, fault, block_bytes):
    monkeypatch.setattr(columns, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(columns, "LONGEST_BYTES", 2**10)
    texts, lost = STRAY[fault]
    rows = [f"{row},{texts.get(number, 'x')}" for number, row in enumerate(TABLE[1:], 1)]
    info = prepare([HEADER + ",text", *rows], on_bad_row="skip").info
    # lines of the file, whose first is the header
    assert [each["line"] for each in info["skipped"]["first"]] == [number + 1 for number in lost]
    assert info["rows"] == 40 - len(lost)
    if lost:
        with pytest.raises(DataError, match="quotes = false") as caught:
            prepare([HEADER + ",text", *rows])
        assert caught.value.line == lost[0] + 1
    assert any("several lines: 1; the longest has 4" in notice for notice in info["notices"]) == ("look like" in fault)


def test_quotes_can_be_switched_off_or_told_to_be_right(prepare):
    rows = [f"{row},{'a' if number % 7 else chr(34)}" for number, row in enumerate(TABLE[1:], 1)]
    assert prepare([HEADER + ",text", *rows], "quotes = false").info["rows"] == 40
    log = prepare([HEADER + ",text", *rows], "quotes = true", on_bad_row="skip")
    assert log.info["rows"] < 40 and log.info["notices"][0].endswith("write quotes = false in the schema.")


PACKED = gzip.compress("\n".join([HEADER, *TABLE[1:] * 500]).encode())
FILES = {
    "a missing column, with near ones": ([HEADER.replace("city", "citty"), *TABLE[1:]], "city", None, "mean 'citty'"),
    "a repeated column": ([HEADER.replace("age", "price"), *TABLE[1:]], None, 1, "'price' 2 times"),
    "a header that is not UTF-8": ([HEADER.replace("unused", "not\udce9"), *TABLE[1:]], None, 1, "iconv"),
    "no gzip at all": (b"\x02\xff\x00\xfe" * 99, None, 1, "first line is not text"),
    "no rows": ([HEADER], None, None, "no usable row"),
    "no bytes": (b"", None, None, "empty"),
    "one class only": ([line.replace("yes", "no") for line in TABLE], "clicked", None, "there is nothing to learn"),
    "a split without rows": (TABLE[:5], None, None, "leave a split empty"),
    "half a gzip file": (PACKED[: len(PACKED) // 2], None, None, r"cut short or damaged.*gzip -t"),
    "a gzip file with a wrong sum": (PACKED[:-6] + bytes(6), None, None, "cut short or damaged"),
    "a gzip file with more behind it": (PACKED + b"more", None, None, "cut short or damaged"),
    "one endless line": (TABLE[0].encode() + b"\n" + b"1," * 2**23, None, 2, "a quoted text"),
    "no Parquet behind its first bytes": (b"PAR1" + bytes(100), None, None, "Parquet file is damaged"),
}


ROWS = "\n".join(TABLE).encode()
TARRED = io.BytesIO()
with tarfile.open(fileobj=TARRED, mode="w:gz") as archive:
    archive.addfile(tarfile.TarInfo("readme.txt"))
OF_OTHERS = [
    (bz2.compress(ROWS), "packed by bzip2.*pack it with gzip"),
    (lzma.compress(ROWS), "packed by bzip2, xz"),
    (pa.compress(ROWS, "zstd", asbytes=True), "or Zstandard"),
    (TARRED.getvalue(), "tar archive"),
    (b"PK\x03\x04" + bytes(200), "ZIP archive or a spreadsheet"),
    (ROWS.decode().encode("utf-16"), "iconv -f utf-16"),
    (ROWS.decode().encode("utf-16-be"), "iconv -f utf-16"),
    (b"ARROW1\0\0" + bytes(200), "Feather"),
    (b'{"clicked": "yes", "price": 1}\n', "JSON"),
    (b'[\n  {"clicked": "yes"}]', "JSON"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    (b"<!DOCTYPE html>\n", "web site"),
]


@pytest.mark.parametrize("content, words", OF_OTHERS, ids=range(len(OF_OTHERS)))  # the time is in what gzip packs
def test_a_file_of_a_kind_that_is_not_read_is_named_with_the_way_on(prepare, content, words):
    for schema in ({}, {"schema": CRITEO}):
        with pytest.raises(DataError, match=words):
            prepare(content, **schema)


def test_a_header_with_another_separator_is_shown(prepare):
    with pytest.raises(DataError, match="what separates names, as in separator = ';'"):
        prepare([line.replace(",", ";") for line in TABLE])
    for sign in (";", "\x01"):  # Hive's own is the latter
        log = prepare([line.replace(",", sign) for line in TABLE], f'separator = "\\u{ord(sign):04x}"')
        assert log.info["rows"] == 40


@pytest.mark.parametrize("fault", FILES)
def test_a_file_that_cannot_be_used_is_named(prepare, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(columns, "LONGEST_BYTES", 2**22)
    content, field, line, words = FILES[fault]
    for policy in ("error", "skip"):
        with pytest.raises(DataError, match=words) as caught:
            prepare(content, on_bad_row=policy)
        assert (caught.value.file, caught.value.field, caught.value.line) == (tmp_path / "a.csv", field, line)


def parquet(tmp_path, **changes) -> bytes:
    made = {"clicked": ["no", "yes"] * 20, "price": range(40), "age": range(40), "city": ["a", "b"] * 20} | changes
    pq.write_table(pa.table(made), tmp_path / "made.parquet", write_page_checksum=True)
    return (tmp_path / "made.parquet").read_bytes()


def test_bad_values_in_parquet_are_named_by_column_and_row_and_a_flipped_bit_is_seen(prepare, tmp_path):
    for changes, field, line, words in (
        ({"city": [["a"], ["b"]] * 20}, "city", None, "neither text nor numbers"),
        ({"city": [b"\xe9", b"b"] * 20}, "city", None, "neither text nor numbers"),
        ({"clicked": ["no", "yes"] * 3 + ["no", "maybe"] + ["yes"] * 32}, "clicked", 8, "'maybe' is not one of"),
        ({"price": [1.0] * 8 + [float("inf")] * 32}, "price", 9, "not a finite number"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            prepare(parquet(tmp_path, **changes), name="a.parquet")
        assert (caught.value.field, caught.value.line) == (field, line)
    content = bytearray(parquet(tmp_path))
    pages = pq.read_metadata(tmp_path / "made.parquet").row_group(0).column(1)
    content[pages.dictionary_page_offset + pages.total_compressed_size - 1] ^= 1
    with pytest.raises(DataError, match="Parquet file is damaged"):
        prepare(bytes(content), name="a.parquet")


# a text of the good schema, what it is replaced by ("": what is added), words of the error
SCHEMAS = {
    "no TOML": ("", "dense = [", "is not a TOML file"),
    "an unknown key": ("", "categorial = 1", "categorial is unknown: did you mean 'categorical'"),
    "an unknown key inside": ("", "split = { last_row = 3 }", "split.last_row is unknown: did you mean"),
    "no label": ("label", "#", "label is missing"),
    "no column to learn from": ('["price", "age"]\ncategorical = ["city"]', "[]", "no column to learn from"),
    "a threshold next to values": ('["yes"]', '["yes"], at_least = 4', "label.at_least stands for"),
    "quotes where there are none": ("", 'quotes = true\nseparator = "::"', "several characters have none"),
    "a number for a list": ('["?"]', "3", "missing must be a list, not 3"),
    "a column in two roles": ('["city"]', '["city", "price"]', "'price' more than once"),
    "shares above 1": ("", "split = { test = 0.6, validation = 0.6 }", "between 0 and 1"),
    "a split column without values": ("", 'split = { column = "note" }', "split.test_values"),
    "an unknown layout": ("", 'layout = "avro"', "layout is 'avro'"),
    "no positive values": ('["yes"]', "[]", "label.positive is empty"),
    "a value of both classes": ('["no"]', '["no", "yes"]', "both have 'yes'"),
    "positive values of no row": ('["yes"]', '["1"]', "'label.positive': No row of"),
    "labels of no row": ('["yes"], negative = ["no"]', '["1"], negative = ["0"]', "column 'clicked' has 'no', 'yes'."),
    "test rows that are not there": ("", 'split = { column = "city", test_values = ["z"] }', "split.test_values'"),
    "more test rows than there are": ("", "split = { last_rows = 99 }", "(train 0, validation 0, test 40)"),
    "a separator of letters": ("", 'separator = "ab"', "`separator` is 'ab'"),
    "a table of one row": ("", "max_rows_per_table = 1", "max_rows_per_table is 1"),
}


@pytest.mark.parametrize("fault", SCHEMAS)
def test_a_bad_schema_is_named_with_what_is_wrong(prepare, tmp_path, fault):
    old, new, words = SCHEMAS[fault]
    schema = prepare.schema.replace(old, new) if old else prepare.schema + new
    with pytest.raises(UserError) as caught:
        prepare(TABLE, schema=schema)
    assert str(tmp_path / "schema.toml") in str(caught.value) and words in str(caught.value)


def test_other_refusals_say_what_to_do(prepare, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="'min_cont' is unknown: did you mean 'min_count'"):
        prepare(TABLE, min_cont=3)
    header = "\t".join(f"column_{index}" for index in range(40))
    (tmp_path / "a.tsv").write_text(f"{header}\n" + "\t".join(["1"] * 40))  # as wide as Criteo's
    for data, schema, words in (
        (tmp_path / "a.csv", None, r"(?s)write a schema.*--schema.*label = \{ column"),
        (tmp_path / "a.tsv", None, "neither in Criteo's layout"),
        (tmp_path / "a.csv", tmp_path / "none.toml", "no schema file"),
        ("synthetic-smal", None, "did you mean 'synthetic-small'"),
        (tmp_path, None, "day_0, day_1"),
    ):
        with pytest.raises(UserError, match=words):
            load_clicks(str(data), schema=schema, cache_dir=tmp_path)
    monkeypatch.setattr("labkit.data.store.free_disk_bytes", lambda folder: 10)
    monkeypatch.setattr("labkit.data.clicks.prepare.read_columns", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(UserError, match=r"needs about .* LABKIT_CACHE"):
        prepare(TABLE)
