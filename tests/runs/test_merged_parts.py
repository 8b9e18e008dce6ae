import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labkit.errors import UserError
from labkit.runs import read_telemetry
from labkit.runs.parts import TELEMETRY, MergingPartWriter, part_numbers, write_part


def row(time_ns: int, counter: str) -> dict:
    return {"time_ns": time_ns, "device": "host", "scope": "host", "counter": counter, "value": float(time_ns)}


def writer(folder, parts: int = 3) -> MergingPartWriter:
    sort_by = ("device", "scope", "counter", "time_ns")
    return MergingPartWriter(folder, TELEMETRY, sort_by=sort_by, parts=parts, max_rows=4)


def fill(made: MergingPartWriter, times: range) -> None:
    for time_ns in times:
        for counter in ("b", "a"):
            made.append(row(time_ns, counter))
    made.settle()


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def values(run) -> list[tuple[str, int]]:
    frame = read_telemetry([run])
    return sorted(zip(frame["counter"], frame["time_ns"], strict=True))


def test_small_parts_are_merged_and_nothing_is_read_twice(tmp_path):
    folder, times = tmp_path / "run" / "telemetry", range(20)  # four rows a part: ten parts
    made = writer(folder)
    fill(made, times)
    # those merged last are still there, for a reader who has just listed them
    assert names(folder) == [
        "part-00000-00002.parquet", "part-00003-00005.parquet", "part-00006-00008.parquet",
        "part-00006.parquet", "part-00007.parquet", "part-00008.parquet", "part-00009.parquet",
    ]  # fmt: skip
    expected = [(counter, time_ns) for counter in ("a", "b") for time_ns in times]
    assert values(tmp_path / "run") == expected
    made.close()
    assert len(names(folder)) == 4
    table = pq.read_table(folder / "part-00000-00002.parquet")  # in which each series lies together
    assert table["counter"].to_pylist() == ["a"] * 6 + ["b"] * 6
    assert table["time_ns"].to_pylist() == [*range(6)] * 2
    assert pq.read_schema(folder / "part-00009.parquet").names == TELEMETRY.names
    assert values(tmp_path / "run") == expected


def test_another_writer_goes_on_behind_merged_parts(tmp_path):
    folder = tmp_path / "run" / "telemetry"
    made = writer(folder)
    fill(made, range(7))  # killed here, one part merged and one row waiting
    again = writer(folder)
    fill(again, range(100, 107))
    again.close()
    assert values(tmp_path / "run") == [(c, t) for c in ("a", "b") for t in (*range(6), *range(100, 107))]
    assert names(folder)[-1].startswith("part-00006")


def test_a_kill_before_the_merged_part_is_there_loses_nothing(tmp_path, monkeypatch):
    made = writer(tmp_path / "run" / "telemetry")

    def killed(table, path, **options):
        if len(part_numbers(path)) > 1:
            raise SystemExit
        write_part(table, path, **options)

    monkeypatch.setattr("labkit.runs.parts.write_part", killed)
    with pytest.raises(SystemExit):
        fill(made, range(6))
    assert values(tmp_path / "run") == [(c, t) for c in ("a", "b") for t in range(6)]


def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path, monkeypatch):
    folder = tmp_path / "run" / "telemetry"
    made = writer(folder)
    fill(made, range(2))

    def full(*args, **options):
        raise UserError("the disk is full")

    monkeypatch.setattr("labkit.runs.parts.write_part", full)
    with pytest.raises(UserError, match="disk is full"):
        fill(made, range(2, 6))
    assert values(tmp_path / "run") == [(c, t) for c in ("a", "b") for t in range(2)]


def test_telemetry_of_many_runs_keeps_each_word_once_and_parts_may_lack_a_column(tmp_path):
    rows = 4000
    for name in ("run-a", "run-b"):
        folder = tmp_path / name / "telemetry"
        folder.mkdir(parents=True)
        table = pa.Table.from_pylist([row(time_ns, name) | {"pid": 1} for time_ns in range(rows)], schema=TELEMETRY)
        write_part(table, folder / "part-00000.parquet")
        write_part(table.drop_columns(["note", "pid"]), folder / "part-00001.parquet")
    frame = read_telemetry([tmp_path / "run-b", tmp_path / "run-a"])
    assert list(frame.columns) == ["run", *TELEMETRY.names]
    assert list(frame["run"].unique()) == ["run-b", "run-a"] and len(frame) == 4 * rows
    assert frame["note"].isna().all() and frame["pid"].isna().sum() == 2 * rows
    # three numbers of eight bytes, and a number of one byte for each of seven words
    assert frame.memory_usage(deep=True).sum() < 40 * len(frame)
    assert read_telemetry([]).columns.equals(frame.columns)
