"""What is written into a run folder is read, whatever happens; which runs are one series."""

import errno
import math
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow.parquet as pq
import pytest

from labkit.errors import UserError
from labkit.runs import Provenance, RunWriter, lock_run, read_events, read_run, replace_text
from labkit.runs.query import Series, add_setting, find_run, list_runs, read_metrics


def new_run(runs_dir) -> RunWriter:
    return RunWriter.create(
        runs_dir,
        "dlrm-tour",
        config={"job": "dlrm", "train": {"target": 0.78, "target_metric": "auc"}},
        budget={"name": "one-core"}, tier=None, devices=[], seed=3, provenance=Provenance.now("measured"), software={},
    )  # fmt: skip


def reopen(folder, *, from_step: int = 0, **machine) -> RunWriter:
    return RunWriter.reopen(folder, lock_run(folder), from_step=from_step, config={}, **machine)


def losses(writer: RunWriter, steps: range, value: float = 1.0) -> None:
    for step in steps:
        writer.metric(step=step, wall_s=step / 10, train_s=step / 20, samples=step * 8, name="loss", value=value)


def test_what_is_written_is_read(tmp_path):
    writer = new_run(tmp_path)
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


def test_a_run_whose_writer_died_is_interrupted(tmp_path):
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from test_run_folder import *; from pathlib import Path\n"
        "w = new_run(Path(sys.argv[2])); losses(w, range(5)); w.flush(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)], check=False)
    (run,) = list_runs(tmp_path)["folder"]
    assert read_run(run).status == "interrupted"
    assert read_metrics([run])["step"].tolist() == [0, 1, 2, 3, 4]


def test_a_record_is_of_a_running_process_or_of_another_host_whose_folder_changes(tmp_path):
    writer = new_run(tmp_path)
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
    writer = new_run(tmp_path / "runs[1]*")  # a name that is no pattern
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
    good, bad = new_run(tmp_path), new_run(tmp_path)
    (bad.folder / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=words):
        read_run(bad.folder)
    with pytest.warns(UserWarning, match=bad.run_id):
        assert list_runs(tmp_path)["run"].tolist() == [good.run_id]


def test_a_part_that_is_not_whole_is_left_out_by_name(tmp_path):
    writer = new_run(tmp_path)
    for start in (0, 5):
        losses(writer, range(start, start + 5))
        writer.flush()
    second = writer.folder / "metrics" / "part-00001.parquet"
    second.write_bytes(second.read_bytes()[:-20])
    with pytest.warns(UserWarning, match="part-00001"):
        assert read_metrics([writer.folder])["step"].tolist() == [0, 1, 2, 3, 4]


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def no_locks():
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_full_disk_is_named_and_finished_parts_stay(tmp_path, monkeypatch):
    writer = new_run(tmp_path)
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
    writer = new_run(tmp_path)
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
    alone = new_run(tmp_path)
    group = tmp_path / "20000101-000000-group-jobs-0000"
    shared = new_run(group)
    (group / "group.json").write_text("{}")
    new_run(tmp_path / "neither")
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
    writer = new_run(tmp_path)
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
    writer = new_run(tmp_path)
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


def test_runs_that_differ_by_seed_alone_keep_the_name_of_their_budget():
    assert labels(of(lr=0.1), of(lr=0.1)) == ["gpu", "gpu"]


def test_runs_of_two_kinds_of_gpu_or_two_machines_are_never_of_one_series():
    assert labels(of(device="A40"), of(device="V100")) == ["gpu · A40", "gpu · V100"]
    assert labels(of(host="a"), of(host="b")) == ["gpu · a", "gpu · b"]


def test_settings_are_named_among_the_runs_of_one_place():
    assert labels(of(lr=0.1), of(lr=0.2), of(device="A40", lr=0.3)) == [
        "gpu · None · lr 0.1", "gpu · None · lr 0.2", "gpu · A40",
    ]  # fmt: skip
