"""Criteo's layout: real rows, generated rows, gzip, days, time order, bounded memory, and what is bad in them."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.data.bad_rows import BadRows
from labkit.data.clicks import columns, load_clicks
from labkit.data.clicks.criteo import criteo_files, estimate_rows, is_criteo, read_criteo
from labkit.data.clicks.export import category_tokens, write_clicks
from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig, signed_log
from labkit.errors import DataError, UserError

CONFIG = GeneratorConfig()
SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Path:
    """3,000 generated rows in Criteo's layout."""
    out = tmp_path_factory.mktemp("criteo") / "train.txt"
    write_clicks(out, 3000, CONFIG, "criteo", lambda *_: None)
    return out


@pytest.fixture(scope="module")
def lines(generated) -> list[str]:
    """500 good lines."""
    return generated.read_text().splitlines()[:500]


def read(path: Path, bad: BadRows) -> list[np.ndarray]:
    """Dense, categories and label of all rows of a file."""
    return [np.concatenate(parts) for parts in zip(*read_criteo(path, bad), strict=True)]


def arrays(log) -> list[np.ndarray]:
    return [np.concatenate(parts) for parts in zip(*(vars(log.split(name)).values() for name in SPLITS), strict=True)]


def test_the_real_sample_is_prepared_as_it_stands(shared_data, tmp_path):
    path = shared_data / "criteo_sample" / "train_200.tsv"
    log = load_clicks(str(path), cache_dir=tmp_path, min_count=1)
    sizes = [len(log.split(name)) for name in SPLITS]
    assert sum(sizes) == 200 and sizes[0] == 171
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    dense, categorical, label = arrays(log)
    assert label.tolist() == [int(line[0]) for line in lines]
    mean, deviation = np.array(log.info["dense_mean"]), np.array(log.info["dense_sd"])
    for row in (0, 1, 170):
        for index in range(13):
            text = lines[row][1 + index]
            expected = (signed_log(np.float64(text)) - mean[index]) / deviation[index] if text else 0.0
            assert dense[row, index] == pytest.approx(expected, abs=1e-4)
    # With min_count=1 equal categories have equal rows, and others not.
    for index in range(26):
        values, rows = np.unique([line[14 + index] for line in lines[:171]], return_inverse=True)
        assert len({*zip(rows.tolist(), categorical[:171, index, 0].tolist(), strict=True)}) == len(values)
        assert log.table_rows[index] == len(values) + 1


def test_negative_integers_stay_apart_from_zero_and_missing_and_digits_have_any_case(tmp_path):
    categories = ["", "0", "f", "0f", "ABCDEF01", "abcdef01", "ffffffff", "123", *[""] * 18]
    (tmp_path / "one.tsv").write_text("\t".join(["1", "-2", "0", "", "7", *[""] * 9, *categories]))
    dense, found, label = read(tmp_path / "one.tsv", BadRows("error"))
    assert dense[0, :4] == pytest.approx([-np.log(3), 0.0, np.nan, np.log(8)], nan_ok=True)
    assert found[0, :8].tolist() == [0, 0, 15, 15, 0xABCDEF01, 0xABCDEF01, 0xFFFFFFFF, 0x123]
    assert label.tolist() == [True]


@pytest.mark.parametrize("block_bytes", [20_000, 2**22])
def test_what_the_writer_writes_the_reader_reads_back_whatever_the_blocks(generated, monkeypatch, block_bytes):
    monkeypatch.setattr(columns, "BLOCK_BYTES", block_bytes)
    block = next(ClickGenerator(CONFIG).blocks("train", 3000))
    dense, categories, label = read(generated, BadRows("error"))
    np.testing.assert_array_equal(label, block.label)
    expected = np.where(block.missing, np.nan, signed_log(block.counts.astype(np.float64)))
    np.testing.assert_allclose(dense, expected, rtol=1e-6)
    for table in (0, 3, 25):
        names = category_tokens(table, CONFIG.num_rows[table]).to_pylist()
        assert categories[:, table].tolist() == [
            int(names[row] or "0", 16) for row in block.categorical[:, table, 0]
        ]  # fmt: skip
    text = generated.read_text()
    assert "\t-1\t" in text and "\t\t" in text


def test_gzip_line_ends_and_empty_lines_at_the_end_change_nothing(generated, tmp_path):
    content = generated.read_bytes()
    ways = {"packed.tsv": gzip.compress(content), "windows.txt": content.replace(b"\n", b"\r\n") + b"\r\n\n\n"}
    plain = arrays(load_clicks(str(generated), cache_dir=tmp_path))
    for name, other in (ways | {"unended.txt": content[:-1]}).items():
        (tmp_path / name).write_bytes(other)
        for one, two in zip(plain, arrays(load_clicks(str(tmp_path / name), cache_dir=tmp_path)), strict=True):
            np.testing.assert_array_equal(one, two)


def test_rows_stay_in_the_order_of_time_and_of_day_files_the_last_is_for_validation_and_test(generated, tmp_path):
    one_file = load_clicks(str(generated), cache_dir=tmp_path)
    assert [len(one_file.split(name)) for name in SPLITS] == [2571, 214, 215]
    lines = generated.read_bytes().splitlines(keepends=True)
    days = tmp_path / "days"
    days.mkdir()
    (days / "day_0").write_bytes(b"".join(lines[:1000]))
    (days / "day_2.gz").write_bytes(gzip.compress(b"".join(lines[1000:2500])))
    (days / "day_10").write_bytes(b"".join(lines[2500:]))
    (days / "README").write_text("no day")
    assert [file.name for file in criteo_files(days)] == ["day_0", "day_2.gz", "day_10"]
    many_files = load_clicks(str(days), cache_dir=tmp_path)
    assert [len(many_files.split(name)) for name in SPLITS] == [2500, 250, 250]
    labels = next(ClickGenerator(CONFIG).blocks("train", 3000)).label
    for log in (one_file, many_files):
        np.testing.assert_array_equal(arrays(log)[2], labels)


def test_vocabulary_and_statistics_come_from_the_training_rows_only(generated, tmp_path):
    lines = [line.split("\t") for line in generated.read_text().splitlines()]
    for line in lines[2571:]:
        line[14:] = ["deadbeef"] * 26
        line[1:14] = ["1000000"] * 13
    changed = tmp_path / "changed.txt"
    changed.write_text("\n".join("\t".join(line) for line in lines) + "\n")
    one, two = (load_clicks(str(path), cache_dir=tmp_path) for path in (generated, changed))
    assert one.table_rows == two.table_rows and one.info["dense_mean"] == two.info["dense_mean"]
    np.testing.assert_array_equal(one.split("train").categorical, two.split("train").categorical)
    assert (two.split("test").categorical == 0).all()


def test_hashing_min_count_and_max_rows_bound_the_tables(generated, tmp_path):
    def load(**options):
        return load_clicks(str(generated), cache_dir=tmp_path, **options)

    hashed = load(vocabulary="hash", max_rows_per_table=50)
    assert hashed.table_rows == (50,) * 26
    found = hashed.split("train").categorical
    assert found.min() >= 1 and found.max() == 49
    sizes = [sum(load(**each).table_rows) for each in ({"min_count": 1}, {}, {"min_count": 50})]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sum(load(max_rows_per_table=10).table_rows) <= 260


def test_the_preflight_comes_first_and_estimates_the_rows(generated, tmp_path):
    said = []
    load_clicks(str(generated), cache_dir=tmp_path, progress=lambda *words: said.append(words))
    assert said[0][0] == 0.0 and "rows" in said[0][1] and "of disk" in said[0][1]
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions)
    assert estimate_rows(generated) == pytest.approx(3000, rel=0.02)
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(generated.read_bytes() * 4))
    assert estimate_rows(packed) == pytest.approx(12_000, rel=0.15)


def test_a_disk_that_is_too_small_is_refused_before_any_work(generated, tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.data.clicks.criteo.free_disk_bytes", lambda folder: 1000)
    monkeypatch.setattr("labkit.data.clicks.load.prepare_criteo", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(UserError, match=r"needs about .* LABKIT_CACHE"):
        load_clicks(str(generated), cache_dir=tmp_path)


def test_other_files_are_not_taken_for_criteo(generated, tmp_path):
    assert is_criteo(generated)
    header = "\t".join(f"column_{index}" for index in range(40)) + "\n"
    for text in (header + "\t".join(["1"] * 40), "1\t2\t3\n" * 30, "a,b\n1,2\n"):
        (tmp_path / "other.tsv").write_text(text)
        assert not is_criteo(tmp_path / "other.tsv")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_memory_does_not_grow_with_the_file(generated, tmp_path):
    """Preparing 64 times the rows takes no more memory: what grows is on disk."""
    program = """
import re, sys
from pathlib import Path
from labkit.data.clicks import columns, criteo, load_clicks, vocabulary
criteo.ROWS_AT_ONCE, columns.BLOCK_BYTES, vocabulary.MERGE_AT = 1024, 2**18, 2**12
load_clicks(sys.argv[1], cache_dir=Path(sys.argv[2]), max_rows_per_table=1000)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
    large = tmp_path / "large.txt"
    with large.open("wb") as out:
        for _ in range(64):
            with generated.open("rb") as file:
                shutil.copyfileobj(file, out)
    peaks = []
    for path in (generated, large):
        run = [sys.executable, "-c", program, str(path), str(tmp_path)]
        peaks.append(1024 * int(subprocess.run(run, capture_output=True, text=True, check=True).stdout))
    grown_bytes = peaks[1] - peaks[0]
    # 50 MB of text become 30 MB of prepared rows. The allocators settle about 12 MB above the small file's
    # peak; a copy of the text or of the arrays would be above the limit.
    assert grown_bytes < 25e6, f"{grown_bytes / 1e6:.1f} MB more"


def spoil(line: str, field: int, value: str) -> str:
    values = line.split("\t")
    values[field] = value
    return "\t".join(values)


FAULTS = {
    "39 fields": (lambda line: line.rsplit("\t", 1)[0], None, "has 39 fields"),
    "41 fields": (lambda line: line + "\t", None, "has 41 fields"),
    "an empty line": (lambda line: "", None, "is empty"),
    "a label that is neither": (lambda line: spoil(line, 0, "2"), "label", "'2' is none of '1', '0'"),
    "a missing label": (lambda line: spoil(line, 0, ""), "label", "'' is none of '1', '0'"),
    "a word for an integer": (lambda line: spoil(line, 5, "many"), "I5", "'many' is not a finite number"),
    "a fraction for an integer": (lambda line: spoil(line, 13, "1.5"), "I13", "'1.5' is not an integer"),
    "an integer too long": (lambda line: spoil(line, 1, "9" * 19), "I1", "not an integer of up to 18 digits"),
    "no hexadecimal": (lambda line: spoil(line, 14, "68fd1e6g"), "C1", "'68fd1e6g' is not a number"),
    "too many digits": (lambda line: spoil(line, 39, "123456789"), "C26", "of up to 8 hexadecimal digits"),
    "not UTF-8": (lambda line: spoil(line, 20, "\udcff"), "C7", "is not UTF-8"),
    "a quote": (lambda line: spoil(line, 20, '"'), "C7", "is not a number of up to 8 hexadecimal"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("line", [1, 250, 500])
def test_a_bad_row_is_named_by_file_line_and_field(lines, tmp_path, monkeypatch, fault, line):
    spoiled, field, words = FAULTS[fault]
    if fault == "an empty line" and line == 500:
        pytest.skip("an empty line at the end is the end")
    path = tmp_path / "bad.txt"
    text = "\n".join([*lines[: line - 1], spoiled(lines[line - 1]), *lines[line:]]) + "\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setattr(columns, "BLOCK_BYTES", 8000)  # some lines, so that the line lies in a later block
    with pytest.raises(DataError) as caught:
        read(path, BadRows("error"))
    assert (caught.value.file, caught.value.line, caught.value.field) == (path, line, field)
    assert words in str(caught.value) and "--on-bad-row skip" in str(caught.value)


@pytest.mark.parametrize("block_bytes", [6000, 2**20])
def test_skipped_rows_are_counted_and_listed_with_their_lines(lines, tmp_path, monkeypatch, block_bytes):
    bad_lines = [1, 2, 100, 101, 102, 333, 500]
    changed = [spoil(text, 0, "x") if number in bad_lines else text for number, text in enumerate(lines, 1)]
    changed[100] = ""
    (tmp_path / "bad.txt").write_text("\n".join(changed) + "\n")
    monkeypatch.setattr(columns, "BLOCK_BYTES", block_bytes)
    bad = BadRows("skip")
    assert len(read(tmp_path / "bad.txt", bad)[2]) == 493
    assert bad.count == 7 and [row["line"] for row in bad.first] == bad_lines


def test_only_the_first_hundred_skipped_rows_are_listed_and_a_policy_has_its_own_data(lines, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text("\n".join([*lines, *["bad"] * 150]) + "\n")
    log = load_clicks(str(path), cache_dir=tmp_path, on_bad_row="skip")
    assert log.info["skipped"]["rows"] == 150 and len(log.info["skipped"]["first"]) == 100
    # What was prepared with bad rows left out is not used where they must stop.
    with pytest.raises(DataError, match="line 501"):
        load_clicks(str(path), cache_dir=tmp_path)
    with pytest.raises(UserError, match="on_bad_row is 'ignore'"):
        load_clicks(str(path), cache_dir=tmp_path, on_bad_row="ignore")


@pytest.mark.parametrize("damage", ["cut", "cut in its sum", "zeros"])
@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_damaged_gzip_file_is_named_with_the_line_where_it_breaks_off(lines, tmp_path, damage, policy):
    path = tmp_path / "train.txt.gz"
    packed = gzip.compress(("\n".join(lines) + "\n").encode())
    path.write_bytes(
        {"cut": packed[:-3000], "cut in its sum": packed[:-6], "zeros": packed[:40] + bytes(40) + packed[80:]}[damage]
    )
    with pytest.raises(DataError, match=r"cut short or damaged.*gzip -t") as caught:
        load_clicks(str(path), cache_dir=tmp_path, on_bad_row=policy)
    whole = b""
    with gzip.open(path) as file:
        try:
            while byte := file.read(1):
                whole += byte
        except (EOFError, zlib.error):
            pass
    assert (caught.value.file, caught.value.line) == (path, whole.count(b"\n") + 1)


FILES = {
    "no file": (None, "neither a file or folder"),
    "nothing": ([], "empty"),
    "one class": (lambda lines: [spoil(line, 0, "0") for line in lines], "have the label 0"),
    "few rows": (lambda lines: lines[:5], "cannot be split"),
    "no good row": (lambda lines: [spoil(line, 0, "x") for line in lines], "no usable row"),
    "one endless line": (lambda lines: ["0\t" + "\t1" * 3_000_000], "cannot be read|no usable row"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_cannot_be_used_is_refused(lines, tmp_path, kind):
    change, words = FILES[kind]
    path = tmp_path / "a.txt"
    if change is not None:
        path.write_text("".join(line + "\n" for line in (change and change(lines))))
    schema = tmp_path / "criteo.toml"
    schema.write_text('layout = "criteo"')
    with pytest.raises(UserError, match=words):
        load_clicks(str(path), schema=schema, cache_dir=tmp_path, on_bad_row="skip")


def test_a_folder_without_day_files_says_what_it_lacks(tmp_path):
    with pytest.raises(DataError, match=r"day_0, day_1"):
        load_clicks(str(tmp_path), cache_dir=tmp_path)


INTEGERS = st.none() | st.integers(-(10**9), 10**9)
CATEGORIES = st.none() | st.integers(0, 2**32 - 1)
ROWS = st.tuples(
    st.integers(0, 1),
    st.lists(INTEGERS, min_size=13, max_size=13),
    st.lists(CATEGORIES, min_size=26, max_size=26),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=20), st.sampled_from(["\n", "\r\n"]), st.data())
def test_rows_are_read_back_as_they_were_written_and_a_spoilt_one_is_found(tmp_path_factory, rows, line_end, data):
    lines = []
    for label, integers, categories in rows:
        texts = ["" if value is None else str(value) for value in integers]
        names = ["" if value is None else f"{value:08x}" for value in categories]
        lines.append("\t".join([str(label), *texts, *names]))
    path = tmp_path_factory.getbasetemp() / "rows.tsv"
    path.write_bytes((line_end.join(lines) + line_end).encode())
    dense, categories, label = read(path, BadRows("error"))
    assert label.tolist() == [bool(row[0]) for row in rows]
    np.testing.assert_allclose(dense, signed_log(np.array([row[1] for row in rows], dtype=float)), rtol=1e-6)
    assert categories.tolist() == [[value or 0 for value in row[2]] for row in rows]
    spoilt = data.draw(st.integers(0, len(rows) - 1))
    lines[spoilt] = spoil(lines[spoilt], data.draw(st.integers(0, 39)), data.draw(st.sampled_from(["x", "1\t", "--1"])))
    path.write_bytes((line_end.join(lines) + line_end).encode())
    bad = BadRows("skip")
    assert len(read(path, bad)[2]) == len(rows) - 1
    assert [row["line"] for row in bad.first] == [1 + spoilt]
