"""The store of many runs and SQL over it: the folders are the truth, the cache never is, and no query leaves it."""

import errno
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from made_up import new_run, write_run, write_samples

from labkit import runs
from labkit.errors import UserError
from labkit.runs import store

SAME_ROWS = ["run", "step", "name", "value"]
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def settled(monkeypatch, tmp_path):
    monkeypatch.setattr(store, "SETTLED_S", 0.0)
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    """Three runs in a folder whose name looks like a partition: ended, resumed, and going on."""
    runs_dir = tmp_path / "run=01, it's"
    write_run(runs_dir, [0.5, math.nan, 0.8], seed=1, lr=0.1, commit="12e4567", fold="01", LR=None, bias=True)
    resumed_run(runs_dir)
    going_on = new_run(runs_dir, config={"job": "t", "train": {"lr": 3, "commit": "9", "fold": None, "Lr": "a"}})
    going_on.metric(step=1, wall_s=1.0, train_s=1.0, samples=1, name="loss", value=math.inf)
    going_on.flush()
    write_samples(going_on.folder, "host", "cpu_percent", {1: 10.0, 2: None}, note="why")
    return runs_dir


def resumed_run(runs_dir) -> Path:
    run = new_run(runs_dir, config={"job": "t"})
    for step in range(1, 8):
        run.metric(step=step, wall_s=step / 10, train_s=0.0, samples=step, name="loss", value=1.0)
    run.event("evaluated", step=7, wall_s=0.7)
    run.finish("stopped", {})
    go_on(run.folder, from_step=4)
    return run.folder


def go_on(folder, from_step, steps=2, value=2.0) -> None:
    again = runs.RunWriter.reopen(folder, runs.lock_run(folder), from_step=from_step, config={"job": "t"})
    for step in range(from_step + 1, from_step + 1 + steps):
        again.metric(step=step, wall_s=step / 10, train_s=0.0, samples=step, name="loss", value=value)
    again.finish("done", {})


def in_order(frame: pd.DataFrame) -> list[str]:
    return sorted(map(str, frame[SAME_ROWS].astype(object).to_numpy().tolist()))


def as_read(runs_dir) -> list[str]:
    return in_order(runs.read_metrics(runs.run_folders(runs_dir)))


def asked(runs_dir) -> list[str]:
    return in_order(runs.query("FROM metrics", runs_dir))


def cache_files(runs_dir, table="metrics") -> list[Path]:
    return sorted((runs_dir / store.FOLDER).glob(f"*/{table}-*.parquet"))


def test_a_query_gives_the_rows_that_readers_of_the_folders_give_before_and_after_they_are_kept(folder):
    for _ in range(2):
        assert asked(folder) == as_read(folder)
        assert runs.query("SELECT step FROM metrics WHERE isnan(value)", folder)["step"].tolist() == [20] * 3
        assert runs.query("SELECT count(*) AS n FROM metrics WHERE isinf(value)", folder)["n"].tolist() == [1]
        events = runs.query("SELECT event, content FROM events WHERE run LIKE '%-t-%' ORDER BY time_ns", folder)
        assert "evaluated" not in set(events["event"])  # a resume took it back
        samples = runs.query("SELECT run, time, value, note FROM telemetry ORDER BY time_ns", folder)
        assert samples["time"].astype(str).tolist() == ["1970-01-01 00:00:01", "1970-01-01 00:00:02"]
        assert samples["value"].isna().tolist() == [False, True] and set(samples["note"]) == {"why"}
        assert len(cache_files(folder)) == 1
    assert list(runs.query("SELECT * FROM metrics LIMIT 0", folder)) == [
        "run", "step", "wall_s", "train_s", "samples", "name", "value"
    ]  # and not the run of the folder's name  # fmt: skip


def test_a_setting_is_a_column_of_its_own_type_never_guessed_from_text(folder):
    found = runs.query("SELECT * FROM settings ORDER BY lr NULLS LAST", folder)
    assert found["commit"].fillna("").tolist() == ["12e4567", "9", ""]
    assert found["fold"].fillna("").tolist() == ["01", "", ""]
    assert found["lr"].tolist()[:2] == [0.1, 3.0] and found["bias"].tolist()[0] is True
    assert found["Lr_2"].fillna("").tolist() == ["", "a", ""]  # SQL takes lr and Lr for one name
    types = runs.query("SELECT column_type FROM (DESCRIBE settings) WHERE column_name IN ('lr', 'bias')", folder)
    assert sorted(types["column_type"]) == ["BOOLEAN", "DOUBLE"]


def delete_the_cache(folder):
    shutil.rmtree(folder / store.FOLDER)


def cut_a_file(folder):
    path = cache_files(folder)[0]
    path.write_bytes(path.read_bytes()[:100])


def delete_a_file(folder):
    cache_files(folder)[0].unlink()


def damage_the_lists(folder):
    for path in (folder / store.FOLDER).glob("*/*.json"):
        path.write_text('{"files": [')
    next((folder / store.FOLDER).glob("*/index.parquet")).write_bytes(b"PAR1")


def delete_a_run(folder):
    shutil.rmtree(folder / runs.query("SELECT run FROM runs WHERE status = 'done' ORDER BY run", folder)["run"][0])


def add_runs(folder):
    for seed in range(store.FEW + 1):
        write_run(folder, [0.5], seed=seed)
        assert asked(folder) == as_read(folder)


@pytest.mark.parametrize(
    "change", [delete_the_cache, cut_a_file, delete_a_file, damage_the_lists, delete_a_run, add_runs]
)
def test_whatever_happens_to_the_cache_or_the_folders_a_query_counts_each_row_once(folder, change):
    asked(folder)
    change(folder)
    for _ in range(2):
        assert asked(folder) == as_read(folder)
    assert len(cache_files(folder)) <= 2 * store.FEW


def test_a_run_that_goes_on_after_it_was_kept_is_read_anew(folder):
    run = Path(next(each for each in runs.run_folders(folder) if len(runs.read_metrics([each])) == 6))
    asked(folder)
    go_on(run, from_step=2, value=3.0)
    assert asked(folder) == as_read(folder)
    assert runs.query("SELECT folder FROM runs", run)["folder"].tolist() == [str(run)]
    assert asked(run) == in_order(runs.read_metrics([run]))
    values = runs.query(f"SELECT value FROM metrics WHERE run = '{run.name}' ORDER BY step", folder)["value"]
    assert values.tolist() == [1.0, 1.0, 3.0, 3.0]


def test_large_runs_span_files_and_each_series_lies_together_in_the_order_of_time(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MOST_ROWS", 40)
    for number in range(3):
        run = write_run(tmp_path / "runs", [0.5] * 30, seed=number)
        write_samples(run, "host", "b", dict(enumerate(range(30))))
        write_samples(run, "host", "a", dict(enumerate(range(30))))
    assert asked(tmp_path / "runs") == as_read(tmp_path / "runs")
    assert runs.query("SELECT count(*) AS n FROM telemetry", tmp_path / "runs")["n"][0] == 180
    assert len(cache_files(tmp_path / "runs")) > 3
    for path in cache_files(tmp_path / "runs", "telemetry"):
        rows = pq.read_table(path, columns=["counter", "run", "time_ns"]).to_pandas()
        assert rows.equals(rows.sort_values(list(rows), kind="stable", ignore_index=True))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{there}')", "SELECT * FROM '{there}'", "FROM glob('{folder}/*')",
        "SELECT * FROM read_csv('{there}')", "SELECT * FROM query('SELECT * FROM read_text(''{there}'')')",
        "COPY runs TO '{new}'", "COPY metrics TO '{kept}' (USE_TMP_FILE false)", "EXPORT DATABASE '{new}'",
        "ATTACH '{new}'", "INSTALL httpfs", "LOAD httpfs", "SET enable_external_access = true",
        "EXPLAIN ANALYZE COPY metrics TO '{kept}' (USE_TMP_FILE false)", "CREATE TABLE a AS SELECT 1",
        "SELECT 1; COPY runs TO '{new}'", "DROP VIEW metrics", "SELECT * FROM parquet_scan('{other}')", "", "SELEC",
        "SELECT * FROM other_frame",
    ],
)  # fmt: skip
def test_no_query_reads_or_writes_a_file_outside_its_runs(folder, tmp_path, sql):
    other_frame = pd.DataFrame({"a": [1]})
    (there := tmp_path / "there.csv").write_text("a\n1\n")
    other_frame.to_parquet(tmp_path / "other.parquet")
    asked(folder)
    kept, new = cache_files(folder)[0], tmp_path / "new"
    before = kept.read_bytes()
    places = {"there": there, "new": new, "kept": kept, "folder": tmp_path, "other": tmp_path / "other.parquet"}
    with pytest.raises(UserError):
        runs.query(sql.format(**places), folder)
    assert not new.exists() and kept.read_bytes() == before


def test_folders_of_others_damaged_and_newer_ones_are_noted_and_hide_nothing(folder):
    (folder / "foreign").mkdir()
    (folder / "foreign" / "run.json").write_text('{"model": "theirs"}')
    newer, damaged = write_run(folder, [0.5]), write_run(folder, [0.5])
    record = json.loads((newer / "run.json").read_text())
    (newer / "run.json").write_text(json.dumps(record | {"schema_version": 2}))
    part = next((damaged / "metrics").iterdir())
    part.write_bytes(b"PAR1")
    for _ in range(2):
        with pytest.warns(UserWarning) as noted:
            names = runs.query("SELECT DISTINCT run FROM runs JOIN metrics USING (run)", folder)["run"].tolist()
        texts = " ".join(str(each.message) for each in noted)
        assert len(names) == 3 and damaged.name not in names
        assert "foreign" in texts and "upgrade labkit" in texts
    with pytest.warns(UserWarning, match="same name"):
        shutil.copytree(damaged, folder.parent / "copied" / damaged.name)
        runs.query("FROM runs", folder, folder.parent / "copied")


def test_a_run_that_is_deleted_while_it_is_read_is_noted(folder, monkeypatch):
    read = store.KINDS["metrics"].read

    def gone(each):
        yield from read(each)
        raise FileNotFoundError(each)

    monkeypatch.setitem(store.KINDS, "metrics", store.KINDS["metrics"]._replace(read=gone))
    with pytest.warns(UserWarning, match="deleted or changed while it was read"):
        assert asked(folder) == []
    monkeypatch.undo()
    assert len(asked(folder)) == len(as_read(folder))


def full(*_, **__):
    raise OSError(errno.ENOSPC, "full")


def test_a_full_disk_or_a_folder_that_cannot_be_written_only_costs_time(folder, tmp_path, monkeypatch):
    expected = as_read(folder)
    for place, most_rows in (("pyarrow.parquet.write_table", 2), ("labkit.runs.store.replace_text", 4)):
        with monkeypatch.context() as patched:
            patched.setattr(store, "MOST_ROWS", most_rows)
            patched.setattr(place, full)
            with pytest.warns(UserWarning, match="cannot be written"):
                assert asked(folder) == expected
    shutil.rmtree(folder / store.FOLDER)
    assert cache_files(folder) == []
    pattern = folder.rename(tmp_path / "runs[1]*")  # a pattern to DuckDB
    assert asked(pattern) == as_read(pattern) == expected
    assert not (pattern / store.FOLDER / "1" / "metrics.json").exists()
    assert len(list((tmp_path / "cache" / "stores").glob("*/1/metrics-*.parquet"))) == 1


def test_processes_that_keep_the_same_runs_at_once_count_them_once_and_the_rest_goes_after_an_hour(folder):
    code = (
        "import sys; from labkit import runs; from labkit.runs import store; store.SETTLED_S = 0.0\n"
        "print(len(runs.query('FROM metrics', sys.argv[1])))"
    )
    several = [subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE) for _ in range(3)]
    expected = as_read(folder)
    assert [int(each.communicate()[0]) for each in several] == [len(expected)] * 3
    for path in cache_files(folder):
        os.utime(path, (1e9, 1e9))
    write_run(folder, [0.9])
    assert asked(folder) == as_read(folder)
    listed = json.loads(next((folder / store.FOLDER).glob("*/metrics.json")).read_text())["files"]
    assert {path.name for path in cache_files(folder)} == set(listed)


def test_runs_of_a_recording_are_there_if_asked_for(folder):
    found = runs.query("SELECT job, outcome, provenance FROM runs", folder, recorded=True)
    assert len(found) > 3000 and "recorded, You et al. 2023" in set(found["provenance"])
    sql = "SELECT count(DISTINCT power_limit_w) AS n FROM settings JOIN evaluations USING (run)"
    assert runs.query(sql, recorded=True)["n"][0] > 1


def test_each_query_in_the_docs_and_in_the_help_answers_and_counts_no_row_twice(folder):
    blocks = [sql for page in DOCS.glob("*.md") for sql in re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL)]
    assert len(blocks) >= 5
    for sql in [*blocks, *runs.EXAMPLES.values()]:
        assert len(runs.query(sql, folder).columns)
    page = (DOCS / "query.md").read_text()
    assert all(f"`{name}`" in page for name in [*runs.TABLES, *runs.VIEWS])
    for name in runs.VIEWS:
        runs.query(f"FROM {name}", folder)


def test_the_command_lists_answers_and_says_what_to_install(folder, cli, monkeypatch):
    assert all(name in cli("query").text for name in [*runs.TABLES, *runs.VIEWS])
    sql = "SELECT step, value, 1e-9 AS tiny FROM metrics WHERE name = 'loss' ORDER BY run, step LIMIT 3"
    assert json.loads(cli("query", sql, folder, "--json").text)[1] == {"step": 20, "value": None, "tiny": 1e-9}
    assert cli("query", sql, folder, "--csv").out.splitlines()[1] == "10,0.5,1e-09"
    assert "step" in cli("query", sql, folder).text
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UserError, match=r"pip install 'labkit\[query\]'"):
        runs.query("FROM runs", folder)
