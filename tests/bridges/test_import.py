"""Runs of other trackers as run folders: written by those trackers' own libraries where these are installed."""

import csv
import math
import sqlite3

import numpy as np
import pytest
from processes import wait_for

from labkit import UserError, tta
from labkit.bridges import Logged, Point, Wishes, import_runs, write_run
from labkit.runs import read_events, read_metrics, read_run, read_telemetry, run_folders
from labkit.tracking import Target

S, BEGAN_NS = 10**9, 1_760_000_000 * 10**9
TARGET = Wishes(Target.parse("accuracy >= 0.9"))


def logged(points=(), **more):
    """A run of an invented tracker: points are (name, step, seconds, value)."""
    given = {"id": "7", "name": "a", "group": "cifar", "source": "x.db", "status": "done", "began_ns": BEGAN_NS}
    points = [Point(name, step, BEGAN_NS + round(s * S), value) for name, step, s, value in points]
    return Logged("Tracker 1.0", **given | {"points": points} | more)


def rising(best=1.0, count=10):
    return [("accuracy", step, step + 1, best * step / (count - 1)) for step in range(count)]


def of(folders, name="accuracy"):
    rows = read_metrics(folders)
    return rows[rows["name"] == name]


def test_a_target_given_afterwards_has_times_and_seeds_are_one_series(tmp_path):
    for seed, best in enumerate((1.0, 0.95, 0.5)):
        run = logged(
            rising(best), id=str(seed), settings={"lr": "0.1", "trainer.seed": str(seed), "out_dir": f"/{seed}"}
        )
        write_run(run, tmp_path, TARGET)
    folders = run_folders(tmp_path)
    table = tta.run_table(folders)
    assert (
        sorted(table["seed"]) == [0, 1, 2]
        and set(table["setting"]) == {""}
        and set(table["provenance"]) == {"recorded"}
    )
    assert table["samples"].isna().all() and table["train_s"].isna().all(), "unknown is not zero"
    reached = tta.crossings(tta.curves(folders), table, 0.9).set_index("seed")
    assert list(reached.loc[[0, 1], "time_to_target_s"]) == [10, 10] and reached.loc[2, "outcome"] == "failed"
    assert read_run(folders[0]).result["time_to_target_s"] == 10
    on_samples = tta.attempts(tta.curves(folders), table, [0.9]).on("samples")
    assert on_samples.runs.empty, "a run without samples is in no comparison by samples"


def test_a_run_imported_again_is_replaced_and_own_runs_are_not(tmp_path):
    first = write_run(logged(rising(0.5)), tmp_path, Wishes())
    assert write_run(logged(rising()), tmp_path, TARGET) == first and of([first])["value"].max() == 1
    text = (first / "run.json").read_text().replace('"imported"', '"other"')
    (first / "run.json").write_text(text)
    with pytest.raises(UserError, match=r"a run of labkit's own"):
        write_run(logged(rising()), tmp_path, TARGET)


def test_power_becomes_energy_of_the_one_gpu_and_missing_samples_say_why(tmp_path):
    system = [Point("gpu.0.powerWatts", None, BEGAN_NS + s * S, 100.0) for s in range(11)]
    system += [Point("odd/../<b>", None, BEGAN_NS, math.nan)]
    folder = write_run(logged(rising(), system=system), tmp_path, TARGET)
    assert read_run(folder).result["energy_j"] == pytest.approx(1000)
    odd = read_telemetry([folder]).query("scope == 'host'").iloc[0]
    assert np.isnan(odd["value"]) and odd["note"] and odd["counter"] == "odd/../<b>"
    several = [point._replace(name=f"gpu.{gpu}.powerWatts") for point in system[:5] for gpu in (0, 1)]
    result = read_run(write_run(logged(rising(), id="8", system=several), tmp_path, TARGET)).result
    assert result["energy_j"] is None and "2 GPUs" in result["energy_note"]


HOSTILE = ["<script>alert(1)</script>", "../../x", "a\x1b[2Jb\0", "x" * 10_000_000, "", "\ud800"]


@pytest.mark.parametrize("name", HOSTILE, ids=["script", "path", "control", "long", "empty", "half"])
def test_hostile_texts_stay_text_in_the_folder(name, tmp_path):
    points = [(name or "m", 0, 1, 1.0)]
    run = logged(points, name=name, id=name, group=name, settings={name: name, "b": {"deep": [name[:50]]}})
    folder = write_run(run, tmp_path / "runs", Wishes())
    assert folder.parent == tmp_path / "runs" and [*tmp_path.iterdir()] == [tmp_path / "runs"]
    assert (folder / "run.json").stat().st_size < 30_000 and len(read_metrics([folder])) == 1
    assert "\x1b" not in read_run(folder).name and len(tta.run_table([folder])) == 1


def test_a_clock_that_went_back_goes_on_from_where_it_was(tmp_path):
    times = [1, 2, 3, -3600, -3599, -3598]
    folder = write_run(
        logged([("accuracy", step, s, step / 5) for step, s in enumerate(times)], began_ns=None), tmp_path, TARGET
    )
    wall = of([folder])["wall_s"]
    assert wall.is_monotonic_increasing and wall.iloc[-1] - wall.iloc[0] == pytest.approx(4)
    assert "clock went back 1 times" in read_run(folder).provenance.note


def test_equal_steps_and_numbers_that_are_none_are_kept(tmp_path):
    values = [(0, 1.0), (1, math.nan), (1, 0.25), (2, math.inf), (2, math.inf)]
    folder = write_run(logged([("m", step, step, value) for step, value in values]), tmp_path, Wishes())
    np.testing.assert_array_equal(of([folder], "m")["value"], [value for _, value in values])
    assert list(of([folder], "m")["step"]) == [step for step, _ in values]


def test_what_says_nothing_of_time_or_is_in_per_cent_is_refused_with_the_fix(tmp_path):
    with pytest.raises(UserError, match=r"logged no numbers"):
        write_run(logged(), tmp_path, TARGET)
    seconds = logged()
    seconds.points = [Point("accuracy", 0, 1_760_000_000 * 10**6, 0.5)]  # seconds where milliseconds belong
    with pytest.raises(UserError, match=r"1 of 1 points .* milliseconds since 1970"):
        write_run(seconds, tmp_path, TARGET)
    with pytest.raises(UserError, match=r"--percent accuracy"):
        write_run(logged(rising(95.0)), tmp_path, TARGET)
    folder = write_run(logged(rising(95.0)), tmp_path, Wishes(TARGET.target, percent=("accuracy",)))
    assert of([folder])["value"].max() == pytest.approx(0.95)
    assert len(run_folders(tmp_path)) == 1 and not [*tmp_path.glob(".*")]


def radt_csv(path, rows):
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        columns = ["workload", "runId", "runName", "metric", "timestamp", "value"]
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([columns, *rows])
    return str(path)


def test_radts_samples_of_step_0_are_counted_and_its_minus_ones_are_missing(tmp_path):
    def row(metric, s, value):
        return ["1-1", "abc", "resnet", metric, BEGAN_NS // 10**6 + 1000 * s, value]

    rows = [row("accuracy", s, s / 4) for s in range(5)]
    rows += [row("system/SMI - Power Draw", s, -1 if s == 2 else 50) for s in range(5)]
    rows += [row("system/DCGMI - SM Active", s, 0) for s in range(5)]
    done = import_runs("radt", radt_csv(tmp_path / "a.csv", rows), tmp_path / "runs", TARGET)
    assert list(of(done.folders)["step"]) == [0, 1, 2, 3, 4]
    samples = read_telemetry(done.folders)
    power, active = (samples[samples["counter"] == name] for name in ("power", "sm_active"))
    assert power["value"].isna().sum() == 1 and "-1" in power["note"].dropna().iloc[0]
    assert active["value"].isna().all() and set(power["device"]) == {"gpu0"}
    in_percent = radt_csv(tmp_path / "b.csv", [row("accuracy", s, 95) for s in range(5)])
    with pytest.raises(UserError, match=r"--percent accuracy"):
        import_runs("radt", in_percent, tmp_path / "runs", TARGET)
    with pytest.raises(UserError, match=r"a.csv, line 2: this is not a row"):
        import_runs("radt", radt_csv(tmp_path / "a.csv", [["1", "2"]]), tmp_path / "runs", TARGET)
    (tmp_path / "plan.yaml").write_text("file: x.py")
    with pytest.raises(UserError, match=r"labkit sweep .*plan.yaml"):
        import_runs("radt", str(tmp_path / "plan.yaml"), tmp_path / "runs", TARGET)


@pytest.mark.parametrize(
    ("tool", "words"), [("tensorboard", "CSV or JSON is not read"), ("wandb", "give a .wandb file; CSV is not read")]
)
def test_what_the_page_of_a_tracker_saves_is_named(tmp_path, tool, words):
    pytest.importorskip(tool)
    (tmp_path / "loss.csv").write_text("Wall time,Step,Value\n1700000000.1,1,0.5\n")
    with pytest.raises(UserError, match=words):
        import_runs(tool, str(tmp_path / "loss.csv"), tmp_path / "runs", Wishes())


def test_event_files_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="labkit[tensorboard] is not installed")
    from torch.utils.tensorboard import SummaryWriter

    for seed in range(2):
        with SummaryWriter(str(tmp_path / f"logs/s{seed}")) as writer:
            for step in range(10):
                writer.add_scalar("val/accuracy", step / 10, step, walltime=BEGAN_NS / S + step)
            writer.add_scalar("double", 2.0**24 + 1, 0, new_style=True, double_precision=True)
            writer.add_histogram("weights", np.arange(10.0), 0)
            writer.add_image("sample", np.zeros((3, 4, 4)), 0)
            writer.add_hparams({"lr": 0.1, "seed": seed}, {"hp/final": 0.9})
    wishes = Wishes(Target.parse("val/accuracy >= 0.9"))
    done = import_runs("tensorboard", str(tmp_path / "logs"), tmp_path / "runs", wishes)
    assert len(done.folders) == 2 and done.left_out["histograms"] == 2 and done.left_out["images"] == 2
    rows = of(done.folders[:1], "val/accuracy")
    assert list(rows["value"]) == [step / 10 for step in range(10)], "0.9 is 0.9, not its nearest number of 32 bits"
    assert list(of(done.folders[:1], "double")["value"]) == [2**24 + 1]
    assert sorted(read_run(each).seed for each in done.folders) == [0, 1]
    assert {read_run(each).result["time_to_target_s"] for each in done.folders} == {9.0}

    for value in (1.0, 2.0):  # a job that began again at step 0
        with SummaryWriter(str(tmp_path / "again"), purge_step=0) as writer:
            writer.add_scalar("loss", value, 0)
    done = import_runs("tensorboard", str(tmp_path / "again"), tmp_path / "twice", Wishes())
    assert list(of(done.folders, "loss")["value"]) == [2.0]

    event_file = max((tmp_path / "logs/s0").glob("events*"), key=lambda path: path.stat().st_size)
    content = bytearray(event_file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    event_file.write_bytes(content)
    done = import_runs("tensorboard", str(tmp_path / "logs/s0"), tmp_path / "cut", Wishes())
    assert any("damaged or cut short" in note for note in done.notes), "TensorBoard itself stops there without a word"
    with pytest.raises(UserError, match=r"Did you mean val/accuracy"):
        import_runs("tensorboard", str(tmp_path / "logs/s1"), tmp_path / "none", TARGET)
    assert not (tmp_path / "none").exists()


def test_offline_runs_of_wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="labkit[wandb] is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="p", name="w", config={"lr": 0.1, "seed": 4, "model": {"depth": 2}}, dir=tmp_path) as run:
        for step in range(20):
            run.log({"accuracy": step / 20, "loss": math.nan if step == 3 else 1.0}, step=step)
        run.log({"h": wandb.Histogram([1, 2, 3])})
    # another process of W&B writes, and on a busy machine it is late
    wait_for(lambda: max((path.stat().st_size for path in tmp_path.rglob("*.wandb")), default=0) > 1000)
    done = import_runs("wandb", str(tmp_path), tmp_path / "runs", TARGET)
    (folder,), record = done.folders, read_run(done.folders[0])
    assert (record.seed, record.status, record.config["job"]) == (4, "done", "p") and done.left_out["histogram"] == 1
    assert record.config["train"]["model.depth"] == 2 and list(of([folder])["value"]) == [s / 20 for s in range(20)]
    assert of([folder], "loss")["value"].isna().sum() == 1
    (file,) = {path.resolve() for path in tmp_path.rglob("*.wandb")}
    file.write_bytes(b"accuracy".join(file.read_bytes().split(b"accuracy")[:8]))  # within an entry, wherever blocks end
    done = import_runs("wandb", str(file), tmp_path / "cut", Wishes())
    assert any("cut short" in note for note in done.notes) and 0 < len(of(done.folders)) < 20
    assert read_run(done.folders[0]).status == "interrupted"


def test_projects_of_trackio(tmp_path):
    pytest.importorskip("trackio", reason="labkit[trackio] is not installed")
    from labkit.bridges.trackio_runs import storage_in

    times = [f"2026-01-01T00:00:{step % 60:02d}+00:00" for step in range(3000)]
    with storage_in(tmp_path / "tk") as storage:
        rows = [{"accuracy": 0.5, "x": math.inf} for _ in times]
        rows[1234]["accuracy"] = 0.95  # a spike, which Trackio's own history of 1,500 points may leave out
        config = {"seed": 3, "_Username": "me"}
        storage.bulk_log("proj", "r1", rows, steps=[*range(3000)], timestamps=sorted(times), config=config)
        storage.bulk_log_system("proj", "r1", [{"gpu/0/power": 100.0}] * 2, timestamps=times[:2])
    before = (tmp_path / "tk/proj.db").read_bytes()
    done = import_runs("trackio", str(tmp_path / "tk"), tmp_path / "runs", TARGET)
    record = read_run(done.folders[0])
    assert len(of(done.folders)) == 3000 and record.seed == 3 and record.result["target_reached"]
    assert "me" not in record.config["train"].values() and (tmp_path / "tk/proj.db").read_bytes() == before
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("create table t (a)")
    with pytest.raises(UserError, match=r"none of Trackio: it has no table"):
        import_runs("trackio", str(tmp_path / "other.db"), tmp_path / "runs", TARGET)


def test_databases_of_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="labkit[mlflow] is not installed: it is large")
    from mlflow.entities import Metric, Param

    database = tmp_path / "mlflow.db"
    client = mlflow.MlflowClient(f"sqlite:///{database}")
    experiment = client.create_experiment("cifar", artifact_location=(tmp_path / "art").as_uri())
    began_ms = BEGAN_NS // 10**6
    for seed in range(2):
        run_id = client.create_run(experiment, start_time=began_ms, run_name=f"s{seed}").info.run_id
        points = [Metric("accuracy", step / 9, began_ms + 1000 * step, step) for step in range(10)]
        points += [Metric("odd", math.inf, began_ms, 0), Metric("odd", math.nan, began_ms + 1, 1)]
        points += [Metric("system/gpu_0_power_usage_watts", 100, began_ms + 1000 * s, s) for s in range(11)]
        client.log_batch(run_id, metrics=points, params=[Param("seed", str(seed)), Param("lr", "0.1")])
        client.log_text(run_id, "text", "a/b.txt")
        client.set_terminated(run_id, "FINISHED" if seed else "KILLED", began_ms + 11_000)
    before = database.read_bytes()
    done = import_runs("mlflow", str(database), tmp_path / "runs", TARGET)
    records = {record.seed: record for record in map(read_run, done.folders)}
    assert {seed: record.status for seed, record in records.items()} == {0: "stopped", 1: "done"}
    assert records[1].result["time_to_target_s"] == 9 and records[1].result["energy_j"] == pytest.approx(1000)
    np.testing.assert_array_equal(of(done.folders[:1], "odd")["value"], [math.inf, math.nan])
    assert done.left_out == {"artefacts": 2} and database.read_bytes() == before
    with sqlite3.connect(database) as connection:
        connection.execute("update alembic_version set version_num = 'fffffff'")
    with pytest.raises(UserError, match=r"a newer MLflow wrote this .*fffffff.*pip install --upgrade mlflow"):
        import_runs("mlflow", str(database), tmp_path / "runs", TARGET)
    with pytest.raises(UserError, match=r"does not exist: give an SQLite file"):
        import_runs("mlflow", str(tmp_path / "none.db"), tmp_path / "runs", TARGET)
    (tmp_path / "noise.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(UserError, match=r"cannot be read as a database of MLflow"):
        import_runs("mlflow", str(tmp_path / "noise.db"), tmp_path / "runs", TARGET)


def test_events_of_an_import_are_those_of_a_run(tmp_path):
    events = read_events(write_run(logged(rising(count=3)), tmp_path, TARGET))
    assert [event["event"] for event in events] == ["started", "began", *["evaluated"] * 3, "ended"]
