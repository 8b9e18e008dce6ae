"""Run folders: written, killed, gone on with, found, merged and kept private."""

import argparse
import errno
import json
import math
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_up import new_run

from labkit.cli.run import resumed_command
from labkit.errors import UserError
from labkit.runs import (
    Cursor,
    RunWriter,
    lock_run,
    read_events,
    read_run,
    read_since,
    read_telemetry,
    replace_text,
    request_stop,
)
from labkit.runs.frames import Series, add_setting, find_run, list_runs, read_metrics
from labkit.runs.parts import TELEMETRY, MergingPartWriter, PartWriter, part_numbers, write_part
from labkit.runs.safe_files import given_again, shielded
from labkit.telemetry import Reading, Sample, Samples, TelemetryWriter


def tour_run(runs_dir) -> RunWriter:
    config = {"job": "dlrm", "train": {"target": 0.78, "target_metric": "auc"}}
    return new_run(runs_dir, "dlrm-tour", config=config, budget={"name": "one-core"}, seed=3)


def reopen(folder, *, from_step: int = 0, **machine) -> RunWriter:
    return RunWriter.reopen(folder, lock_run(folder), from_step=from_step, config={}, **machine)


def losses(writer: RunWriter, steps: range, value: float = 1.0) -> None:
    for step in steps:
        writer.metric(step=step, wall_s=step / 10, train_s=step / 20, samples=step * 8, name="loss", value=value)


def test_what_is_written_is_read(tmp_path):
    writer = tour_run(tmp_path)
    losses(writer, range(1, 4))
    writer.event("evaluated", metric="auc", value=math.nan, step=3, wall_s=0.3)
    writer.finish("done", {"target_reached": False})
    record = read_run(writer.folder)
    assert (record.status, record.seed, record.result) == ("done", 3, {"target_reached": False})
    metrics = read_metrics([writer.folder])
    assert metrics["step"].tolist() == [1, 2, 3]
    assert set(metrics["run"]) == {writer.run_id}
    events = read_events(writer.folder)
    assert [event["event"] for event in events] == ["started", "evaluated"]
    assert events[-1]["value"] is None and "NaN" not in (writer.folder / "events.jsonl").read_text()


def test_a_record_is_of_a_running_process_or_of_another_host_whose_folder_changes(tmp_path):
    writer = tour_run(tmp_path)
    assert read_run(writer.folder).status == "running"
    writer.record.pid_started -= 60  # the number was used again
    writer.record.save(writer.folder)
    assert read_run(writer.folder).status == "interrupted"
    writer.record.host = "another-host"
    writer.record.save(writer.folder)
    assert read_run(writer.folder).status == "running"
    for path in writer.folder.iterdir():
        os.utime(path, (1e9, 1e9))
    assert read_run(writer.folder).status == "interrupted"


def test_after_a_resume_what_came_after_the_checkpoint_no_longer_counts(tmp_path):
    writer = tour_run(tmp_path / "runs[1]*")  # a name that is no pattern
    losses(writer, range(1, 8), value=1.0)
    writer.event("evaluated", step=4, wall_s=0.4)
    writer.event("evaluated", step=7, wall_s=0.7)
    writer.finish("stopped", {"target_reached": False})
    with (writer.folder / "events.jsonl").open("a") as file:
        file.write('{"event": "evalu')  # a line cut by a crash spoils no other
    again = reopen(writer.folder, from_step=4)
    assert read_run(writer.folder).result == {"target_reached": False}  # until there is another
    losses(again, range(5, 9), value=2.0)
    again.finish("stopped", {"target_reached": False})
    losses(third := reopen(writer.folder, from_step=6), range(7, 8), value=3.0)
    third.finish("done", {"target_reached": True})
    assert read_run(writer.folder).result == {"target_reached": True}
    metrics = read_metrics([writer.folder])
    assert list(zip(metrics["step"], metrics["value"], strict=True)) == [
        (1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 2.0), (6, 2.0), (7, 3.0),
    ]  # fmt: skip
    assert [event.get("step") for event in read_events(writer.folder)] == [None, 4, 4, 6]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((each, r"run\.json") for each in ("", "{", "[]", '{"schema_version": 1}', "\xff")),
        ('{"schema_version": 2}', "upgrade labkit"),
    ],
)
def test_a_damaged_record_is_reported_and_hides_no_other_run(tmp_path, content, words):
    good, bad = tour_run(tmp_path), tour_run(tmp_path)
    (bad.folder / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=words):
        read_run(bad.folder)
    with pytest.warns(UserWarning, match=bad.run_id):
        assert list_runs(tmp_path)["run"].tolist() == [good.run_id]


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def no_locks():
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_full_disk_is_named_and_finished_parts_stay(tmp_path, monkeypatch):
    writer = tour_run(tmp_path)
    losses(writer, range(3))
    writer.flush()
    monkeypatch.setattr(pq, "write_table", no_space)
    losses(writer, range(3, 6))
    with pytest.raises(UserError, match=r"disk is full.*--resume"):
        writer.flush()
    assert read_metrics([writer.folder])["step"].tolist() == [0, 1, 2]
    assert sorted(path.name for path in (writer.folder / "metrics").iterdir()) == ["part-00000.parquet"]


def test_a_disk_that_is_full_for_the_last_event_leaves_a_finished_record(tmp_path):
    """What could not be written stays in the file's buffer, and is tried again when the file is closed."""
    writer = tour_run(tmp_path)
    writer._events = SimpleNamespace(write=lambda text: None, flush=no_space, close=no_space)
    with pytest.raises(UserError, match="disk is full"):
        writer.event("ended")
    with pytest.raises(UserError, match="disk is full"):
        writer.finish("done", {"target_reached": True})
    assert (read_run(writer.folder).status, read_run(writer.folder).result) == ("done", {"target_reached": True})
    reopen(writer.folder).finish("done", {})  # and nobody holds the lock


def test_a_file_is_replaced_where_its_link_leads_with_its_permissions_and_a_device_is_written_to(tmp_path):
    file, link = tmp_path / "mine.py", tmp_path / "link.py"
    file.write_text("before")
    file.chmod(0o600)
    link.symlink_to(file)
    replace_text(link, "after")
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "after", 0o600)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    replace_text(tmp_path / "pipe", "a page")
    assert (os.read(reader, 99), (tmp_path / "pipe").is_fifo()) == (b"a page", True)
    os.close(reader)


def test_a_run_goes_by_folder_id_or_beginning_and_one_of_a_group_by_what_it_shared(tmp_path):
    alone = tour_run(tmp_path)
    group = tmp_path / "20000101-000000-group-jobs-0000"
    shared = tour_run(group)
    (group / "group.json").write_text("{}")
    tour_run(tmp_path / "neither")
    shared.record.config["collocation"] = {"group": group.name, "mode": "cpu-shared", "jobs": "2 × a", "mix": "ff"}
    shared.record.save(shared.folder)
    assert find_run(shared.run_id, tmp_path) == shared.folder
    assert find_run(str(alone.folder), "elsewhere") == find_run(alone.run_id[:-1], tmp_path) == alone.folder
    with pytest.raises(UserError, match=f"Did you mean .*{alone.run_id}"):
        find_run(alone.run_id.replace("dlrm", "drlm"), tmp_path)
    with pytest.raises(UserError, match=f"The latest is {max(alone.run_id, shared.run_id)}. `labkit runs"):
        find_run("~", tmp_path)
    with pytest.raises(UserError, match=r"there is no run 'nope' in .*none\. That folder has no runs"):
        find_run("nope", tmp_path / "none")
    rows = list_runs(tmp_path).set_index("run")
    assert set(rows.index) == {alone.run_id, shared.run_id}
    assert (rows["budget"][shared.run_id], rows["group"][shared.run_id]) == ("cpu-shared, 2 × a", group.name)
    assert pd.isna(rows["group"][alone.run_id])


def test_two_processes_never_write_one_run(tmp_path, monkeypatch):
    """The lock decides, not the record: a writer that has not yet written its name into run.json is seen too."""
    writer = tour_run(tmp_path)
    writer.finish("stopped", {})
    code = (
        "import sys; from pathlib import Path; from labkit.runs import lock_run\n"
        "lock = lock_run(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(writer.folder)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"open\n"
    with pytest.raises(UserError, match="still writing"):
        reopen(writer.folder)
    other.kill()
    other.communicate()
    monkeypatch.setattr("filelock.FileLock.acquire", lambda self, timeout: no_locks())
    again = reopen(writer.folder)
    with pytest.raises(UserError, match="still writing"):  # by its record, where the file system has no locks
        lock_run(writer.folder)
    again.finish("stopped", {})


def test_a_resume_records_its_machine_sweeps_what_was_half_written_and_says_when_it_is_another(tmp_path):
    writer = tour_run(tmp_path)
    (writer.folder / "checkpoint").mkdir()
    halves = [writer.folder / name for name in ("checkpoint/.latest.pt.7", "metrics/.part-0.parquet.7", ".run.json.7")]
    for half in halves:
        half.write_bytes(b"half")
    writer.record.host = "another-host"
    writer.finish("stopped", {})
    reopen(writer.folder, software={"torch": "9"}).finish("stopped", {})
    assert not any(half.exists() for half in halves)
    resumed = read_events(writer.folder)[-1]
    assert (resumed["host"], resumed["software"]) == (platform.node(), {"torch": "9"})
    record = read_run(writer.folder)
    assert record.host == platform.node()
    assert "times mix two machines" in record.provenance.note


def of(**settings):
    return {"budget": "gpu", "host": "h", "device": None, "preset": "tour", **settings}


def labels(*settings):
    told = {"run": range(len(settings)), "job": "dlrm", "budget": "gpu", "provenance": "measured", "metric": "auc"}
    runs = pd.DataFrame(told | {"settings": list(settings)})
    add_setting(runs)
    return [Series.of(run).label for run in runs.to_dict("records")]


def test_a_series_is_of_one_machine_and_its_label_has_what_tells_it_apart():
    assert labels(of(lr=0.1), of(lr=0.1)) == ["gpu", "gpu"]
    assert labels(of(device="A40"), of(device="V100")) == ["gpu · A40", "gpu · V100"]
    assert labels(of(host="a"), of(host="b")) == ["gpu · a", "gpu · b"]
    three = of(lr=0.1), of(lr=0.2), of(device="A40", lr=0.3)
    assert labels(*three) == ["gpu · None · lr 0.1", "gpu · None · lr 0.2", "gpu · A40"]


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


def test_telemetry_is_the_same_frame_as_plain_tables_give(tmp_path):
    """More than 127 and 32,767 words need wider codes; a null makes a whole column of pids numbers with a fraction."""
    dice, plain = np.random.default_rng(0), []
    for run, (words, pid) in {"run-b": (3, 7), "run-a": (300, None), "run-c": (33_000, 8)}.items():
        parts = PartWriter(tmp_path / run / "telemetry", TELEMETRY)
        for part in range(3):
            for word in dice.permutation(words):
                more = {"note": None if word % 2 else f"{part} {word}", "pid": pid, "value": None if part else 0.1}
                parts.append(row(int(word), f"é{word % 200}") | more)
            parts.flush()
            table = pq.read_table(tmp_path / run / "telemetry" / f"part-{part:05d}.parquet")
            plain.append(table.add_column(0, "run", pa.repeat(run, len(table))))
    expected = pa.concat_tables(plain).to_pandas()
    texts = [each.name for each in TELEMETRY if each.type == pa.string()]
    for name in ("run", *texts):
        expected[name] = pd.Categorical(expected[name], expected[name].dropna().unique())
    frame = read_telemetry([tmp_path / run for run in ("run-b", "run-a", "run-c")])
    pd.testing.assert_frame_equal(frame, expected, check_categorical=False)
    for name in ("time_ns", "pid", "value"):
        assert frame[name].to_numpy().tobytes() == expected[name].to_numpy().tobytes()


@pytest.mark.parametrize("harm", ["a byte of a page", "the end", "no times", "a text that is not UTF-8"])
def test_a_damaged_part_among_many_is_named_and_the_others_are_read(tmp_path, harm):
    for name in ("run-a", "run-b"):
        parts = PartWriter(tmp_path / name / "telemetry", TELEMETRY)
        for part in range(4):
            for time_ns in range(500):
                parts.append(row(500 * part + time_ns, name))
            parts.flush()
    bad = tmp_path / "run-a" / "telemetry" / "part-00002.parquet"
    content, table = bytearray(bad.read_bytes()), pq.read_table(bad)
    if harm == "a byte of a page":
        content[300] ^= 0xFF
        bad.write_bytes(content)
    elif harm == "the end":
        bad.write_bytes(content[:-20])
    elif harm == "no times":
        pq.write_table(table.drop_columns(["time_ns"]), bad)
    else:
        odd = pa.array([b"\xff"] * len(table)).view(pa.string())
        pq.write_table(table.set_column(table.schema.get_field_index("unit"), "unit", odd), bad)
    with pytest.warns(UserWarning, match=r"part-00002\.parquet: this part is damaged") as said:
        frame = read_telemetry([tmp_path / "run-a", tmp_path / "run-b"])
    assert len(said) == 1
    times = [*range(1000), *range(1500, 2000), *range(2000)]
    assert frame["time_ns"].tolist() == times and frame["counter"].value_counts().to_list() == [2000, 1500]


HOME = str(Path.home())
ARGUMENTS = ["--token", "s3cret-words", "--api-key=s3cret-words", "--data", f"{HOME}/clicks", "--pad-token", "0"]
SHIELDED = ["--token", "***", "--api-key=***", "--data", "~/clicks", "--pad-token", "0"]


def written(runs_dir: Path) -> RunWriter:
    config = {"job": "own", "script": f"{HOME}/train.py", "arguments": ARGUMENTS, "train": {"hf_token": "s3cret-words"}}
    writer = new_run(runs_dir, "own", config=config, budget={})
    writer.event("fault", kind="error", what=f"no access to {HOME}/x by https://me:pw@host/ with s3cret-words")
    writer.finish("stopped", {"reason": f"train.py --token s3cret-words failed in {HOME}"})
    return writer


def text_of(folder: Path) -> str:
    return (folder / "run.json").read_text() + (folder / "events.jsonl").read_text()


@pytest.fixture
def command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", *ARGUMENTS])


def test_home_folders_and_secrets_are_in_no_record(tmp_path, command_line, monkeypatch):
    writer = written(tmp_path)
    text = text_of(writer.folder)
    assert "s3cret-words" not in text and HOME not in text and "me:pw" not in text
    record = json.loads((writer.folder / "run.json").read_text())
    assert record["config"]["arguments"] == record["argv"][1:] == SHIELDED
    assert record["config"]["script"] == "~/train.py" and record["config"]["train"] == {"hf_token": "***"}
    monkeypatch.setenv("LABKIT_VERBATIM", "1")  # who asks for it gets every word
    text = text_of(written(tmp_path).folder)
    assert HOME in text and "--api-key=s3cret-words" in text


def test_a_secret_of_the_environment_is_hidden_in_messages(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("SECRETS", "/run/secrets")
    reason = "401 for hf_abcdefgh, key=5, hf_abcdefgh2, /run/secrets/x"
    assert shielded({"reason": reason}) == {"reason": "401 for ***, key=5, hf_abcdefgh2, /run/secrets/x"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"db_pass": "x", "pat": "PLAIN1SECRET", "key": "loss"}, {"db_pass": "***", "pat": "***", "key": "loss"}),
        (["--wandb-key", "x1", "--sort-key=name"], ["--wandb-key", "***", "--sort-key=name"]),
        ("https://h/x?a=1&sig=b2&token=c3", "https://h/x?a=1&sig=***&token=***"),
        ("https://abcdefgh12345@h/x ssh://git@h/x", "https://***@h/x ssh://git@h/x"),
        ("{'Authorization': 'Bearer a1b2'}, Bearer x", "{'Authorization': 'Bearer ***'}, Bearer ***"),
        ("AKIA" + "IOSFODNN7" + "EXAMPLE is gone", "*** is gone"),  # the pattern of a known service
        (commit := "commit " + "0123456789abcdef" * 2 + "01234567", commit),
        ({"max_tokens": "9", "monkey": "m", "author": "me"}, {"max_tokens": "9", "monkey": "m", "author": "me"}),
    ],
)
def test_secrets_are_known_by_name_place_and_look(value, expected):
    assert shielded(value) == expected


@pytest.mark.timeout(20)
def test_a_long_text_is_searched_for_secrets_in_linear_time():
    assert shielded("a" * 10**6) == "a" * 10**6


def test_a_resume_has_the_paths_of_now_and_asks_for_the_secrets(tmp_path, command_line, monkeypatch):
    folder = written(tmp_path).folder
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "latest.pt").touch()
    (tmp_path / "train.py").touch()
    monkeypatch.setattr("labkit.runs.safe_files._homes", lambda: (str(tmp_path),))
    args = argparse.Namespace(resume=str(folder), runs_dir=tmp_path, budget=None, sample_hz=None, no_wait=False)
    with pytest.raises(UserError, match=r"the value of --token, --api-key looks like a secret.* -- --token VALUE"):
        resumed_command(args, [])
    given = ["--token", "new", "--api-key=new"]
    command = resumed_command(args, given)
    assert command.script == str(tmp_path / "train.py")
    assert list(command.arguments) == ["--data", f"{tmp_path}/clicks", "--pad-token", "0", *given]
    assert given_again(["--lr", "0.1", "a~b"], [], "run") == ["--lr", "0.1", "a~b"]


def test_a_diverged_number_is_found_by_readers_that_trust_the_statistics_of_columns(tmp_path):
    writer = tour_run(tmp_path)
    losses(writer, range(2))
    losses(writer, range(2, 3), math.nan)
    writer.finish("failed", {})
    (part,) = (writer.folder / "metrics").glob("*.parquet")
    group = pq.ParquetFile(part).metadata.row_group(0)
    kept = {group.column(place).path_in_schema: group.column(place).statistics for place in range(group.num_columns)}
    assert kept["value"] is None
    assert kept["step"].max == 2


def test_a_stop_that_is_asked_for_as_soon_as_the_folder_is_there_is_not_lost(tmp_path, monkeypatch):
    written = RunWriter.__init__

    def asked_at_once(writer, folder, record, lock):
        request_stop(folder)
        written(writer, folder, record, lock)

    monkeypatch.setattr(RunWriter, "__init__", asked_at_once)
    assert tour_run(tmp_path).stop_requested


def test_a_cursor_gives_each_row_once_also_of_parts_that_were_merged_and_says_what_a_resume_took_back(tmp_path):
    writer = tour_run(tmp_path)
    steps, times = [], []
    samples = MergingPartWriter(writer.folder / "telemetry", TELEMETRY, sort_by=("device", "counter", "time_ns"))
    samples.parts = 4
    telemetry = TelemetryWriter.__new__(TelemetryWriter)
    telemetry._parts, telemetry._pid, telemetry._missing = samples, 1, {}
    cursor = Cursor()

    def look() -> int | None:
        nonlocal cursor
        news = read_since(writer.folder, cursor)
        cursor = news.cursor
        steps.extend(news.metrics["step"].to_pylist())
        times.extend(zip(news.telemetry["counter"].to_pylist(), news.telemetry["time_ns"].to_pylist(), strict=True))
        return news.kept_steps

    for tick in range(11):
        losses(writer, range(tick, tick + 1))
        writer.flush()
        telemetry.append(tick, *(Reading("host", "host", name, 1.0, "%", "test") for name in "ab"))
        telemetry.flush()
        if tick in (1, 2, 6):  # before a part is merged, within what is merged next, and long after
            assert look() is None
    samples.close()  # which deletes what was merged
    writer.finish("stopped", {})
    again = reopen(writer.folder, from_step=4)
    losses(again, range(5, 7), value=2.0)
    again.finish("done", {})
    assert look() == 4
    assert steps == [*range(7), 5, 6]  # of these the consumer drops the first 5 and 6
    assert sorted(times) == [(name, tick) for name in "ab" for tick in range(11)]
    assert read_since(writer.folder, cursor) == (cursor, *read_since(writer.folder, cursor)[1:])
    assert (look(), len(steps)) == (None, 9)
    assert read_metrics([writer.folder])["step"].tolist() == read_since(writer.folder).metrics["step"].to_pylist()
    shutil.rmtree(writer.folder)
    with pytest.raises(UserError, match="is gone"):
        look()
