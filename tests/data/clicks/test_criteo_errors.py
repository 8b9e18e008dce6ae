"""Bad rows and damaged files in Criteo's layout: the file, the line, the field and what to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from labkit.data.bad_rows import BadRows
from labkit.data.clicks import load_clicks
from labkit.data.clicks.criteo_prepare import prepare_criteo
from labkit.data.clicks.export import write_clicks
from labkit.data.clicks.generate import GeneratorConfig
from labkit.data.clicks.schema import CriteoSchema
from labkit.errors import DataError, UserError


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[str]:
    """500 good lines."""
    out = tmp_path_factory.mktemp("criteo") / "good.txt"
    write_clicks(out, 500, GeneratorConfig(), "criteo", lambda *_: None)
    return out.read_text().splitlines()


def spoil(line: str, field: int, value: str) -> str:
    values = line.split("\t")
    values[field] = value
    return "\t".join(values)


def prepare(path: Path, folder: Path, policy: str, block_bytes: int) -> dict:
    """Prepare in small blocks; the skipped rows."""
    folder.mkdir()
    bad = BadRows(policy)
    prepare_criteo(
        folder,
        [path],
        CriteoSchema(),
        name="x",
        fingerprint="",
        bad=bad,
        progress=lambda *_: None,
        block_bytes=block_bytes,
    )
    return bad.info()


FAULTS = {
    "39 fields": (lambda line: line.rsplit("\t", 1)[0], None, "has 39 tab-separated fields"),
    "41 fields": (lambda line: line + "\t", None, "has 41 tab-separated fields"),
    "an empty line": (lambda line: "", None, "is empty"),
    "a label that is neither": (lambda line: spoil(line, 0, "2"), "label", "'2' is neither 0 nor 1"),
    "a missing label": (lambda line: spoil(line, 0, ""), "label", "'' is neither 0 nor 1"),
    "a word for an integer": (lambda line: spoil(line, 5, "many"), "I5", "'many' is not an integer"),
    "a fraction for an integer": (lambda line: spoil(line, 13, "1.5"), "I13", "'1.5' is not an integer"),
    "an integer too long": (lambda line: spoil(line, 1, "9" * 19), "I1", "not an integer of up to 18 digits"),
    "no hexadecimal": (lambda line: spoil(line, 14, "68fd1e6g"), "C1", "'68fd1e6g' is not a number"),
    "too many digits": (lambda line: spoil(line, 39, "123456789"), "C26", "of up to 8 hexadecimal digits"),
    "not UTF-8": (lambda line: spoil(line, 20, "\udcff"), "C7", "is not a number of up to 8 hexadecimal"),
    "a quote": (lambda line: spoil(line, 20, '"'), "C7", "is not a number of up to 8 hexadecimal"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("line", [1, 2, 250, 500])
def test_a_bad_row_is_named_by_file_line_and_field(lines, tmp_path, fault, line):
    spoiled, field, words = FAULTS[fault]
    if fault == "an empty line" and line == 500:
        pytest.skip("an empty line at the end is the end")
    path = tmp_path / "bad.txt"
    text = "\n".join([*lines[: line - 1], spoiled(lines[line - 1]), *lines[line:]]) + "\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    # Blocks of a few lines, so that the line lies in a later block.
    with pytest.raises(DataError) as caught:
        prepare(path, tmp_path / "prepared", "error", 1500)
    assert (caught.value.file, caught.value.line, caught.value.field) == (path, line, field)
    assert words in str(caught.value) and "--on-bad-row skip" in str(caught.value)


@pytest.mark.parametrize("block_bytes", [300, 1111, 2**20])
def test_skipped_rows_are_counted_and_listed_with_their_lines(lines, tmp_path, block_bytes):
    bad_lines = [1, 2, 100, 101, 102, 333, 500]
    changed = [spoil(text, 0, "x") if number in bad_lines else text for number, text in enumerate(lines, 1)]
    path = tmp_path / "bad.txt"
    path.write_text("\n".join(changed) + "\n")
    skipped = prepare(path, tmp_path / "prepared", "skip", block_bytes)
    assert skipped["rows"] == 7
    assert [row["line"] for row in skipped["first"]] == bad_lines
    assert {(row["file"], row["field"]) for row in skipped["first"]} == {(str(path), "label")}
    assert len(np.load(tmp_path / "prepared" / "label.npy")) == 493


def test_an_error_after_skipped_rows_has_the_right_line(lines, tmp_path):
    path = tmp_path / "cut.gz"
    changed = [text if number % 3 else "bad" for number, text in enumerate(lines, 1)]
    packed = gzip.compress(("\n".join(changed) + "\n").encode())
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="cut short") as caught:
        prepare(path, tmp_path / "prepared", "skip", 1000)
    # What can be unpacked of the first half, which ends in the line that is named.
    whole = bytearray()
    with gzip.open(path) as file:
        try:
            while byte := file.read(1):
                whole += byte
        except EOFError:
            pass
    assert caught.value.line == whole.count(b"\n") + 1
    with pytest.raises(DataError) as caught:  # in one block, as a file of this size is read
        prepare(path, tmp_path / "prepared-at-once", "skip", 2**20)
    assert caught.value.line == whole.count(b"\n") + 1
    assert f"`gzip -t {path}`" in str(caught.value)


def test_only_the_first_hundred_skipped_rows_are_listed(lines, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text("\n".join([*lines, *["bad"] * 150]) + "\n")
    log = load_clicks(str(path), cache_dir=tmp_path, on_bad_row="skip")
    assert log.info["skipped"]["rows"] == 150 and len(log.info["skipped"]["first"]) == 100
    # What was prepared with bad rows left out is not used where they must stop.
    with pytest.raises(DataError, match="line 501"):
        load_clicks(str(path), cache_dir=tmp_path)


def test_the_last_rows_may_lack_a_line_end(lines, tmp_path):
    path = tmp_path / "good.txt"
    path.write_text("\n".join(lines))
    log = load_clicks(str(path), cache_dir=tmp_path)
    assert log.info["rows"] == 500


def test_a_truncated_gzip_file_is_named(lines, tmp_path):
    path = tmp_path / "train.txt.gz"
    packed = gzip.compress(("\n".join(lines) + "\n").encode())
    for content in (packed[:-6], packed[:-3000], packed[:40] + bytes(40) + packed[80:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cut short or damaged.*gzip -t") as caught:
            prepare(path, tmp_path / f"prepared-{len(content)}-{content[50]}", "error", 2**20)
        assert caught.value.file == path


def test_a_truncated_gzip_file_is_named_by_load_too(lines, tmp_path):
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode())[:-3000])
    with pytest.raises(DataError, match="cut short or damaged"):
        load_clicks(str(path), cache_dir=tmp_path)


def test_an_empty_file_and_a_missing_one_are_named(tmp_path):
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(DataError, match="empty"):
        load_clicks(str(tmp_path / "empty.tsv"), cache_dir=tmp_path)
    with pytest.raises(UserError, match="neither a file or folder"):
        load_clicks(str(tmp_path / "missing.tsv"), cache_dir=tmp_path)


def test_a_file_of_one_class_is_refused(lines, tmp_path):
    path = tmp_path / "zeros.txt"
    path.write_text("\n".join(spoil(line, 0, "0") for line in lines) + "\n")
    with pytest.raises(DataError, match="have the label 0"):
        load_clicks(str(path), cache_dir=tmp_path)


def test_a_file_too_small_to_split_is_refused(lines, tmp_path):
    path = tmp_path / "few.txt"
    path.write_text("\n".join(lines[:5]) + "\n")
    with pytest.raises(DataError, match="cannot be split"):
        load_clicks(str(path), cache_dir=tmp_path)


def test_a_file_without_one_good_row_is_refused(lines, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text("\n".join(spoil(line, 0, "x") for line in lines) + "\n")
    with pytest.raises(DataError, match="no usable row"):
        load_clicks(str(path), cache_dir=tmp_path, on_bad_row="skip")


def test_a_file_that_never_ends_its_line_is_refused(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"0" * (3 * 2**20))
    with pytest.raises(DataError, match="does not end") as caught:
        prepare(path, tmp_path / "prepared", "error", 2**16)
    assert caught.value.line == 1


def test_an_unknown_policy_is_named(lines, tmp_path):
    path = tmp_path / "good.txt"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match="on_bad_row is 'ignore'"):
        load_clicks(str(path), cache_dir=tmp_path, on_bad_row="ignore")
