"""Generated rows as files."""

from __future__ import annotations

import gzip

import pyarrow.parquet as pq
import pytest

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.criteo import read_criteo
from labkit.data.clicks.export import write_clicks
from labkit.data.clicks.generate import GeneratorConfig
from labkit.errors import UserError


def write(path, rows=300, file_format="criteo", **options):
    write_clicks(path, rows, GeneratorConfig(**options), file_format, lambda *_: None)
    return path


def test_criteo_rows_are_real_criteo_rows(tmp_path):
    path = write(tmp_path / "a.tsv")
    lines = path.read_bytes().splitlines()
    assert sum(len(label) for _, _, label in read_criteo(path, BadRows("error"))) == len(lines) == 300
    integers = [value for line in lines for value in line.split(b"\t")[1:14]]
    categories = [value for line in lines for value in line.split(b"\t")[14:]]
    assert any(value.startswith(b"-") for value in integers)
    assert 0.1 < integers.count(b"") / len(integers) < 0.3
    assert 0 < categories.count(b"") / len(categories) < 0.05
    assert all(len(value) in (0, 8) for value in categories)


def test_the_same_seed_writes_the_same_bytes_packed_or_not(tmp_path):
    plain = write(tmp_path / "a.tsv").read_bytes()
    packed = write(tmp_path / "a.tsv.gz").read_bytes()
    assert gzip.decompress(packed) == plain
    assert write(tmp_path / "b.tsv.gz").read_bytes() == packed
    assert write(tmp_path / "c.tsv", seed=1).read_bytes() != plain


def test_csv_and_parquet_have_a_header_and_any_number_of_features(tmp_path):
    options = {"dense_dim": 2, "num_rows": (5, 9)}
    text = write(tmp_path / "a.csv", file_format="csv", **options).read_text().splitlines()
    assert text[0] == "label,I1,I2,C1,C2" and len(text) == 301
    table = pq.read_table(write(tmp_path / "a.parquet", file_format="parquet", **options))
    assert table.column_names == ["label", "I1", "I2", "C1", "C2"] and table.num_rows == 300


@pytest.mark.parametrize(
    ("file_format", "options", "words"),
    [
        ("criteo", {"dense_dim": 2}, "13 dense and 26 categorical"),
        ("csv", {"pooling_factor": 2}, "pooling_factor is 2"),
        ("orc", {}, "'orc' is unknown"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(tmp_path, file_format, options, words):
    with pytest.raises(UserError, match=words):
        write(tmp_path / "a", file_format=file_format, **options)
    assert not list(tmp_path.iterdir())
