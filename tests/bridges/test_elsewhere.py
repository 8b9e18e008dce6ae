"""Runs that go elsewhere: exports that come back, archives, recordings, runs done again, and sending to MLflow."""

import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile

import pyarrow.csv
import pytest
from made_up import new_run, write_samples
from processes import wait_for

import labkit
from labkit import UserError, bridges, tracking
from labkit.bridges import mlflow_runs
from labkit.runs import METRICS, list_runs, read_metrics, read_run, read_telemetry, run_folders
from labkit.tracking.forward import VARIABLE, Forward

SCRIPT = """
import sys, labkit
with labkit.Run("made", target="accuracy >= 0.9", config={"lr": 0.1}, seed=int(sys.argv[1])) as run:
    for step in range(1, 11):
        run.step(1 / step, samples=8)
        if run.evaluate(accuracy=step / 10):
            break
"""


@pytest.fixture
def run(tmp_path):
    """A run of 20 steps with evaluations and samples, in tmp_path/runs."""
    train = {"lr": 0.1, "target_metric": "accuracy", "target": 0.9, "higher_is_better": True}
    writer = new_run(tmp_path / "runs", "made", config={"job": "made", "train": train, "data": {"name": "d"}}, seed=3)
    writer.event("began", clock_s=0.0)
    for step in range(20):
        at = {"step": step, "wall_s": step / 8, "train_s": step / 16, "samples": 8 * step}
        writer.metric(name="loss", value=1 / (step + 1), **at)
        if step % 5 == 4:
            writer.metric(name="accuracy", value=step / 20, **at)
    write_samples(writer.folder, "host", "cpu_energy_0", {0: 1.0, 1: 2.0, 2: None}, scope="host", begin_s=time.time())
    writer.finish("done", {"reason": "the script ended", "ended_by": "script"})
    return writer.folder


def same_evaluations(folder, back):
    kept = ["step", "wall_s", "train_s", "samples", "value"]
    old, new = (read_metrics([each]).query("name == 'accuracy'")[kept] for each in (folder, back))
    return old.round(3).to_numpy().tolist() == new.round(3).to_numpy().tolist()


@pytest.mark.parametrize("tool", ["mlflow", "trackio"])
def test_an_export_is_written_once_and_comes_back_equal_to_the_millisecond(tool, run, tmp_path, cli):
    pytest.importorskip(tool, reason=f"labkit[{tool}] is not installed")
    place = tmp_path / ("x.db" if tool == "mlflow" else "x")
    for _ in range(2):
        assert "1 run" in cli("runs export --to", tool, place, "--runs-dir", run.parent).text
    cli("runs import", tool, place, "--into", tmp_path / "back")
    (back,) = run_folders(tmp_path / "back")
    record, old = read_run(back), read_run(run)
    assert same_evaluations(run, back) and len(read_metrics([back])) == len(read_metrics([run]))
    assert (record.seed, record.status, record.name) == (3, "done", old.name)
    assert record.config["train"] == old.config["train"] and record.config["data"] == {"name": "d"}
    assert list(read_telemetry([back])["value"]) == [1.0, 2.0], "neither tracker holds a missing value"


def test_csv_files_hold_every_column(run, tmp_path, cli):
    cli("runs export", run, "--to", "csv", tmp_path / "csv")
    table = pyarrow.csv.read_csv(tmp_path / "csv/metrics.csv")
    assert table.column_names == ["run", *METRICS.names] and len(table) == len(read_metrics([run]))
    assert pyarrow.csv.read_csv(tmp_path / "csv/runs.csv").to_pylist()[0]["lr"] == 0.1
    assert "--to csv: add a path" in cli("runs export", run, "--to", "csv", status=2).text


def test_an_archive_comes_back_as_it_was_or_not_at_all(run, tmp_path, cli):
    cli("runs archive", run, tmp_path / "a.zip")
    assert "exists already" in cli("runs archive", run, tmp_path / "a.zip", status=2).text
    cli("runs import archive", tmp_path / "a.zip", "--into", tmp_path / "back")
    assert (tmp_path / "back" / run.name / "run.json").read_bytes() == (run / "run.json").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files["labkit-archive.json"])
    inside = f"{run.name}/events.jsonl"
    outside = {"runs": [".."], "files": {"../x": manifest["files"][inside]}}
    for name, change, words in (
        ("sum", {inside: files[inside] + b" "}, "checksum"),
        ("out", {"labkit-archive.json": json.dumps(manifest | outside).encode()}, "none of its runs"),
        ("new", {"labkit-archive.json": json.dumps(manifest | {"schema_version": 9}).encode()}, "newer labkit"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for each, content in (files | change).items():
                archive.writestr(each, content)
        with pytest.raises(UserError, match=words):
            bridges.unpack(tmp_path / name, tmp_path / "none")
    (tmp_path / "cut").write_bytes((tmp_path / "a.zip").read_bytes()[:-30])
    with pytest.raises(UserError, match="damaged"):
        bridges.unpack(tmp_path / "cut", tmp_path / "none")
    assert not run_folders(tmp_path / "none") and not (tmp_path / "x").exists()


def test_a_recording_names_no_user_host_or_path(run, tmp_path, monkeypatch, cli):
    monkeypatch.setattr("getpass.getuser", lambda: "ada.lovelace")
    record = read_run(run)
    record.host, record.argv = "gpu07.lab.example", ["/home/ada.lovelace/train.py", "--mail", "ada@example.org"]
    record.config["train"]["url"] = "http://10.1.2.3:5000/x"
    record.save(run)
    about = ("--licence", "CC-BY-4.0", "--authors", "Ada", "--title", "a test")
    assert (
        "renamed: gpu07.lab.example"
        in cli("runs record", run, "--to", tmp_path / "rec", "--host", "lab-gpu", *about).text
    )
    text = "".join(path.read_text() for path in (tmp_path / "rec").rglob("*.json*"))
    assert not [word for word in ("gpu07", "lovelace", "/home", "example.org", "10.1.2.3") if word in text]
    copy = read_run(tmp_path / "rec" / run.name)
    assert (copy.host, copy.provenance.kind, copy.argv[0]) == ("lab-gpu", "recorded", "train.py")
    assert "CC-BY-4.0" in cli("data recorded show", tmp_path / "rec").text
    write_samples(run, "host", "memory_used", {3: None}, scope="host", unit="bytes", note="no /home/ada.lovelace/x")
    why = cli("runs record", run, "--to", tmp_path / "more", *about, status=2).text
    assert "field 'note'" in why and not (tmp_path / "more").exists()


def test_a_run_done_again_says_what_differs(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    cli("run train.py 5")
    (old,) = run_folders(tmp_path / "runs")
    cli("runs archive", old, "a.zip")
    record = read_run(old)
    record.software["torch"] = "0.1"
    record.save(old)
    again = cli("runs reproduce", old, "--json").json
    assert again["differs"][0]["what"] == "version of torch" and len(list_runs(tmp_path / "runs")) == 2
    results = {each["what"]: each for each in again["results"]}
    assert (
        results["loss"]["distance"] == "the same at all 10 steps"
        and results["best_validation"]["distance"] == "the same"
    )
    (tmp_path / "train.py").rename(tmp_path / "other.py")
    assert "does not exist" in cli("runs reproduce a.zip", status=2).text
    assert "the same at all" in cli("runs reproduce a.zip --script other.py").text


class Heard:
    """The parent of a forwarding program."""

    def __init__(self):
        self.told, self._end = [], None

    def listen(self, at_end):
        self._end = at_end

    def tell(self, kind, **content):
        self.told.append(content)
        if len(self.told) == 2:
            self._end()


def test_a_server_that_goes_away_is_caught_up_with(run, monkeypatch):
    answers = iter([OSError("refused"), OSError("refused"), 5, 0])

    class Export:
        def __init__(self, uri, folder):
            pass

        def send(self):
            if isinstance(answer := next(answers), OSError):
                raise answer

    monkeypatch.setattr(mlflow_runs, "MlflowExport", Export)
    monkeypatch.setattr(mlflow_runs, "EVERY_S", 0.01)
    heard = Heard()
    thread = threading.Thread(target=mlflow_runs.forward, args=(heard, str(run), "http://x"), daemon=True)
    thread.start()
    thread.join(30)
    told = [(each["away"], each["ended"]) for each in heard.told]
    assert told == [("refused", False), ("", False), ("", True)]


@contextlib.contextmanager
def mlflow_server(database, port):
    """A server of MLflow's that answers; it is killed at the end of the block."""
    store = ["--backend-store-uri", f"sqlite:///{database}"]
    command = [sys.executable, "-m", "mlflow", "server", *store, "--port", str(port), "--workers", "1"]
    with (database.parent / "server.log").open("a") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        with contextlib.suppress(AssertionError):  # on a busy machine it takes more than a minute to start
            wait_for(lambda: is_open(port))
        wait_for(lambda: is_open(port))
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def is_open(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_a_run_outlives_its_mlflow_server_and_the_next_one_has_every_point_once(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mlflow", reason="labkit[mlflow] is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    database, heard = tmp_path / "mlflow.db", []
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")

    def sent(what="step, value FROM metrics WHERE key = 'loss' ORDER BY step"):
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return connection.execute(f"SELECT {what}").fetchall()

    def notices():
        heard.append(capsys.readouterr().err)
        return "".join(heard)

    def train_until(condition):
        until = time.monotonic() + 180
        while not condition():
            assert time.monotonic() < until, heard
            run.step(random.random(), samples=8)
            time.sleep(0.1)

    with contextlib.ExitStack() as servers:
        first = servers.enter_context(contextlib.ExitStack())
        first.enter_context(mlflow_server(database, port))
        with labkit.Run("kept", runs_dir=tmp_path / "runs") as run:
            train_until(sent)
            first.close()
            before = len(sent())
            train_until(lambda: "does not answer" in notices())
            assert len(sent()) == before
            servers.enter_context(mlflow_server(database, port))
            train_until(lambda: "answers again" in notices())
            run.evaluate(accuracy=0.5)
    losses = read_metrics([run.folder]).query("name == 'loss'")
    assert sent() == list(zip(losses["step"], losses["value"], strict=True)) and len(losses) > before
    assert sent("status FROM runs") == [("FINISHED",)]


def test_a_run_is_sent_only_where_the_environment_names_mlflow(monkeypatch, tmp_path):
    notices = []
    monkeypatch.delenv(VARIABLE, raising=False)
    assert Forward.wanted(tmp_path, notices.append) is None and not notices
    monkeypatch.setenv(VARIABLE, "http://x")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert Forward.wanted(tmp_path, notices.append) is None and "labkit[mlflow]" in notices[0]
    assert tracking.VARIABLE == VARIABLE
