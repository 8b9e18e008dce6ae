"""Criteo's layout: real rows, generated rows, gzip, days, time order, bounded memory."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from labkit.data.clicks import load_clicks
from labkit.data.clicks.criteo import criteo_files, is_criteo, line_blocks
from labkit.data.clicks.criteo_rows import parse
from labkit.data.clicks.export import category_tokens, write_clicks
from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig, signed_log
from labkit.data.clicks.preflight import Preflight, estimate_rows
from labkit.errors import DataError, UserError

CONFIG = GeneratorConfig()


def quiet(fraction: float, text: str) -> None:
    pass


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Path:
    """3,000 generated rows in Criteo's layout."""
    out = tmp_path_factory.mktemp("criteo") / "train.txt"
    write_clicks(out, 3000, CONFIG, "criteo", quiet)
    return out


def test_the_real_sample_is_prepared_as_it_stands(shared_data, tmp_path):
    path = shared_data / "criteo_sample" / "train_200.tsv"
    log = load_clicks(str(path), cache_dir=tmp_path, min_count=1)
    sizes = [len(log.split(name)) for name in ("train", "validation", "test")]
    assert sum(sizes) == 200 and sizes[0] == 171
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    labels = np.concatenate([log.split(name).label for name in ("train", "validation", "test")])
    assert labels.tolist() == [int(line[0]) for line in lines]
    mean, deviation = np.array(log.info["dense_mean"]), np.array(log.info["dense_sd"])
    for row in (0, 1, 170):
        for index in range(13):
            text = lines[row][1 + index]
            expected = (signed_log(np.float64(text)) - mean[index]) / deviation[index] if text else 0.0
            assert log.split("train").dense[row, index] == pytest.approx(expected, abs=1e-4)
    # With min_count=1 equal categories have equal rows, and others not.
    for index in range(26):
        values, rows = np.unique([line[14 + index] for line in lines[:171]], return_inverse=True)
        found = log.split("train").categorical[:, index, 0]
        assert len({*zip(rows.tolist(), found.tolist(), strict=True)}) == len(values)
        assert log.table_rows[index] == len(values) + 1


def test_negative_integers_stay_apart_from_zero_and_missing():
    line = "1\t-2\t0\t\t7" + "\t" * 9 + "\tff" * 26
    dense = parse(line.encode(), 1).dense[0]
    assert dense[:4] == pytest.approx([-np.log(3), 0.0, np.nan, np.log(8)], nan_ok=True)


def test_hexadecimal_categories_of_any_length_and_case():
    categories = ["", "0", "f", "0f", "ABCDEF01", "abcdef01", "ffffffff", "123", *[""] * 18]
    found = parse("\t".join(["0", *[""] * 13, *categories]).encode(), 1).categorical[0]
    assert found[:8].tolist() == [0, 0, 15, 15, 0xABCDEF01, 0xABCDEF01, 0xFFFFFFFF, 0x123]


def test_what_the_writer_writes_the_reader_reads_back(generated):
    block = next(ClickGenerator(CONFIG).blocks("train", 3000))
    rows = parse(generated.read_bytes(), 3000)
    np.testing.assert_array_equal(rows.label, block.label)
    expected = np.where(block.missing, np.nan, signed_log(block.counts.astype(np.float64)))
    np.testing.assert_allclose(rows.dense, expected, rtol=1e-6)
    for table in (0, 3, 25):
        names = category_tokens(table, CONFIG.num_rows[table]).to_pylist()
        expected = [int(names[row] or "0", 16) for row in block.categorical[:, table, 0]]
        assert rows.categorical[:, table].tolist() == expected
    text = generated.read_text()
    assert "\t-1\t" in text and "\t\t" in text


def arrays(log) -> list[np.ndarray]:
    return [np.array(part) for name in ("train", "test") for part in vars(log.split(name)).values()]


def test_a_packed_file_prepares_to_the_same_whatever_its_name(generated, tmp_path):
    packed = tmp_path / "packed.tsv"  # known by its content
    packed.write_bytes(gzip.compress(generated.read_bytes()))
    plain = load_clicks(str(generated), cache_dir=tmp_path)
    for one, other in zip(arrays(plain), arrays(load_clicks(str(packed), cache_dir=tmp_path)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_windows_line_ends_and_empty_lines_at_the_end_change_nothing(generated, tmp_path):
    other = tmp_path / "other.txt"
    other.write_bytes(generated.read_bytes().replace(b"\n", b"\r\n") + b"\r\n\n\n")
    plain = load_clicks(str(generated), cache_dir=tmp_path)
    for one, two in zip(arrays(plain), arrays(load_clicks(str(other), cache_dir=tmp_path)), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("block_bytes", [64, 1000, 10**7])
def test_blocks_put_together_are_the_file_whatever_their_size(generated, block_bytes):
    line, parts = 1, []
    for lines in line_blocks(generated, block_bytes):
        assert lines.first == line
        assert lines.count == len(lines.text.splitlines())
        line += lines.count
        parts.append(lines.text)
    assert b"".join(parts) + b"\n" == generated.read_bytes()


def test_rows_stay_in_the_order_of_time(generated, tmp_path):
    log = load_clicks(str(generated), cache_dir=tmp_path)
    labels = np.concatenate([log.split(name).label for name in ("train", "validation", "test")])
    np.testing.assert_array_equal(labels, next(ClickGenerator(CONFIG).blocks("train", 3000)).label)
    assert [len(log.split(name)) for name in ("train", "validation", "test")] == [2571, 214, 215]


def test_of_day_files_the_last_day_is_for_validation_and_test(generated, tmp_path):
    lines = generated.read_bytes().splitlines(keepends=True)
    days = tmp_path / "days"
    days.mkdir()
    (days / "day_0").write_bytes(b"".join(lines[:1000]))
    (days / "day_2.gz").write_bytes(gzip.compress(b"".join(lines[1000:2500])))
    (days / "day_10").write_bytes(b"".join(lines[2500:]))
    (days / "README").write_text("no day")
    assert [file.name for file in criteo_files(days)] == ["day_0", "day_2.gz", "day_10"]
    log = load_clicks(str(days), cache_dir=tmp_path)
    assert [len(log.split(name)) for name in ("train", "validation", "test")] == [2500, 250, 250]
    np.testing.assert_array_equal(log.split("train").label, next(ClickGenerator(CONFIG).blocks("train", 2500)).label)


def test_a_folder_without_day_files_says_what_it_lacks(tmp_path):
    with pytest.raises(DataError, match=r"day_0, day_1"):
        load_clicks(str(tmp_path), cache_dir=tmp_path)


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


def test_hashing_bounds_the_tables_and_needs_no_count(generated, tmp_path):
    log = load_clicks(str(generated), cache_dir=tmp_path, vocabulary="hash", max_rows_per_table=50)
    assert log.table_rows == (50,) * 26
    found = log.split("train").categorical
    assert found.min() >= 1 and found.max() == 49


def test_min_count_and_max_rows_bound_the_vocabulary(generated, tmp_path):
    sizes = [
        sum(load_clicks(str(generated), cache_dir=tmp_path, **options).table_rows)
        for options in ({"min_count": 1}, {}, {"min_count": 50}, {"max_rows_per_table": 10})
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[3] <= 260


def test_the_preflight_comes_first_and_estimates_the_rows(generated, tmp_path):
    said = []
    load_clicks(str(generated), cache_dir=tmp_path, progress=lambda *words: said.append(words))
    assert said[0][0] == 0.0
    assert all(word in said[0][1] for word in ("rows", "of disk", "of memory"))
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions)
    assert estimate_rows(generated) == pytest.approx(3000, rel=0.02)
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(generated.read_bytes() * 4))
    assert estimate_rows(packed) == pytest.approx(12_000, rel=0.15)


def test_a_disk_that_is_too_small_is_refused_before_any_work(generated, tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.data.clicks.preflight.free_disk_bytes", lambda folder: 1000)
    monkeypatch.setattr("labkit.data.clicks.load.prepare_criteo", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(UserError, match=r"needs about .* LABKIT_CACHE"):
        load_clicks(str(generated), cache_dir=tmp_path)
    with pytest.raises(UserError):
        Preflight(rows=1, disk_bytes=2, memory_bytes=1, free_bytes=1).check(tmp_path)


def test_other_files_are_not_taken_for_criteo(shared_data, tmp_path):
    assert is_criteo(shared_data / "criteo_sample" / "train_200.tsv")
    assert not is_criteo(shared_data / "adult" / "adult.csv")
    wide = tmp_path / "wide.tsv"
    wide.write_text("\t".join(f"column_{index}" for index in range(40)) + "\n" + "\t".join(["1"] * 40) + "\n")
    assert not is_criteo(wide)
    narrow = tmp_path / "narrow.tsv"
    narrow.write_text("1\t2\t3\n" * 30)
    assert not is_criteo(narrow)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_memory_does_not_grow_with_the_file(generated, tmp_path):
    """Preparing 64 times the rows takes no more memory: what grows is on disk."""
    program = """
import re, sys
from pathlib import Path
from labkit.data.clicks import criteo_prepare
from labkit.data.bad_rows import BadRows
from labkit.data.clicks.schema import CriteoSchema
criteo_prepare.ROWS_AT_ONCE = 1024
folder = Path(sys.argv[2])
folder.mkdir()
criteo_prepare.prepare_criteo(folder, [Path(sys.argv[1])], CriteoSchema(max_rows_per_table=1000), name="x",
    fingerprint="", bad=BadRows("error"), progress=lambda *_: None, block_bytes=2**18)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
    large = tmp_path / "large.txt"
    with large.open("wb") as out:
        for _ in range(64):
            with generated.open("rb") as file:
                shutil.copyfileobj(file, out)
    peaks = {}
    for path in (generated, large):
        run = [sys.executable, "-c", program, str(path), str(tmp_path / f"prepared-{path.name}")]
        peaks[path.name] = 1024 * int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    grown_bytes = peaks["large.txt"] - peaks["train.txt"]
    # 50 MB of text become 30 MB of prepared rows. The allocators settle about 12 MB above the small file's
    # peak (and stay there for 200 times the rows); a copy of the text or of the arrays would be above the
    # limit.
    assert grown_bytes < 25e6, f"{grown_bytes / 1e6:.1f} MB more"
