import pyarrow.parquet as pq
import pytest

from labkit.errors import UserError
from labkit.runs import read_telemetry
from labkit.runs.parts import TELEMETRY, MergingPartWriter, PartWriter, part_numbers, write_part
from labkit.telemetry import Sample, Samples


def row(time_ns: int, counter: str) -> dict:
    return {"time_ns": time_ns, "device": "host", "scope": "host", "counter": counter, "value": float(time_ns)}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "telemetry"


def writer_after(folder, times: range, made: MergingPartWriter | None = None) -> MergingPartWriter:
    """A writer that merges three parts of four rows each, and has taken two rows of each of these times."""
    sort_by = ("device", "scope", "counter", "time_ns")
    made = made or MergingPartWriter(folder, TELEMETRY, sort_by=sort_by)
    made.parts, made.max_rows = 3, 4
    for time_ns in times:
        for counter in ("b", "a"):
            made.append(row(time_ns, counter))
    made.settle()
    return made


def has_times(folder, times) -> bool:
    """Whether a reader finds two rows of each of these times, and no other."""
    frame = read_telemetry([folder.parent])
    return sorted(zip(frame["counter"], frame["time_ns"], strict=True)) == [(c, t) for c in "ab" for t in times]


def test_small_parts_are_merged_and_nothing_is_read_twice(folder):
    made = writer_after(folder, range(20))  # four rows a part: ten parts
    # those merged last are still there, for a reader who has just listed them
    assert sorted(path.name for path in folder.iterdir()) == [
        "part-00000-00002.parquet", "part-00003-00005.parquet", "part-00006-00008.parquet",
        "part-00006.parquet", "part-00007.parquet", "part-00008.parquet", "part-00009.parquet",
    ]  # fmt: skip
    assert has_times(folder, range(20))
    made.close()
    assert len(list(folder.iterdir())) == 4 and has_times(folder, range(20))
    table = pq.read_table(folder / "part-00000-00002.parquet")  # in which each series lies together
    assert table["counter"].to_pylist() == ["a"] * 6 + ["b"] * 6
    assert table["time_ns"].to_pylist() == [*range(6)] * 2


def test_another_writer_goes_on_behind_merged_parts(folder):
    writer_after(folder, range(7))  # killed here, one part merged and one row waiting
    writer_after(folder, range(100, 107)).close()
    assert has_times(folder, [*range(6), *range(100, 107)])


@pytest.mark.parametrize("end", [SystemExit(), UserError("the disk is full")])
def test_a_kill_or_a_full_disk_at_the_merge_loses_nothing_that_was_written(folder, monkeypatch, end):
    def fails(table, path, **options):
        if len(part_numbers(path)) > 1:
            raise end
        write_part(table, path, **options)

    monkeypatch.setattr("labkit.runs.parts.write_part", fails)
    with pytest.raises(type(end)):
        writer_after(folder, range(6))
    assert has_times(folder, range(6))


def test_telemetry_of_many_runs_keeps_each_word_once(tmp_path):
    for name in ("run-a", "run-b"):
        parts = PartWriter(tmp_path / name / "telemetry", TELEMETRY)
        for time_ns in range(8000):
            parts.append(row(time_ns, name) | {"pid": 1})
        parts.flush()
    part = tmp_path / "run-a" / "telemetry" / "part-00000.parquet"
    pq.write_table(
        pq.read_table(part).drop_columns(["note", "pid"]), part
    )  # an older labkit's, which had no such column
    assert Samples(tmp_path / "run-a").of("host")["run-a"][-1] == Sample(7999, 7999.0)
    frame = read_telemetry([tmp_path / "run-b", tmp_path / "run-a"])
    assert list(frame.columns) == ["run", *TELEMETRY.names]
    assert list(frame["run"].unique()) == ["run-b", "run-a"] and len(frame) == 16_000
    # three numbers of eight bytes, and a number of one byte for each of seven words
    assert frame.memory_usage(deep=True).sum() < 40 * len(frame)
    assert read_telemetry([]).columns.equals(frame.columns)
