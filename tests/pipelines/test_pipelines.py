"""Whole pipelines: what their runs record, what memory does to them, and what is computed from it."""

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from labkit import UserError
from labkit.pipelines import (
    EDGE,
    PIPELINES,
    STAGES,
    MemoryFit,
    PipelineRun,
    bytes_of,
    data,
    fit_memory,
    held_out,
    limits_table,
    memory_of,
    merit_table,
    pipeline_runs,
    pipelines_per_minute,
    read_pipeline,
    shipped,
    stage_table,
)
from labkit.pipelines.failures import READINGS, week_features
from labkit.pipelines.trips import add_moments
from labkit.runs import run_folders

GIB = 2**30


@pytest.fixture
def cache(tmp_path_factory, monkeypatch) -> Path:
    """The folder of generated data."""
    folder = tmp_path_factory.getbasetemp() / "pipelines-cache"
    monkeypatch.setenv("LABKIT_CACHE", str(folder))
    return folder


SMALL = {name: "--scale 0.02" for name in PIPELINES}
SMALL |= {
    "trips": "--scale 0.02 --rounds 1",
    "failures": "--scale 0.1 --rounds 1",
    "commands": "--scale 0.02 --epochs 1",
}


def test_each_pipeline_records_its_stages(cli, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_QUIET", "1")
    runs_dir = tmp_path / "runs"
    for name in PIPELINES:
        answer = cli(f"pipeline run {name} {SMALL[name]} --runs-dir {runs_dir} --json").json
        assert answer["status"] == "done" and list(answer["result"]["stages"]) == list(STAGES)
    cli(f"pipeline run trips --scale 0.04 --rounds 1 --way compiled --runs-dir {runs_dir}")
    found = pipeline_runs(runs_dir)
    assert sorted(run.pipeline for run in found) == sorted([*PIPELINES, "trips"])  # two of a second in any order
    for run in found:
        table = stage_table(run).set_index("stage")
        assert run.unfinished is None and list(table.index) == list(STAGES)
        assert (table["seconds"] > 0).all() and table["share"].sum() == pytest.approx(1)
        assert (table["peak_bytes"] > 50e6).all()
        made = shipped(run)
        assert list(made["after"]) == ["load", "clean", "features", "serve"]
        assert made["reduction"].iloc[0] == 1 and made["reduction"].iloc[-1] > 3  # predictions are smaller
    trips, compiled = (run for run in found if run.pipeline == "trips")
    lines, about = (pd.read_csv(data.ensure("trips", 0.02) / name) for name in ("lines.csv", "trips.csv"))
    raw = sum(path.stat().st_size for path in data.ensure("trips", 0.02).glob("*.csv"))
    bytes_made = dict(zip(trips.stages["stage"], trips.stages["bytes"], strict=True))
    assert (bytes_made["load"], bytes_made["features"]) == (raw, len(about) * 43 * 4)
    assert bytes_made["clean"] == (lines["quantity"] != 0).sum() * 4 * 8 + about.size * 8
    assert "joules" in cli(f"pipeline show {found[1].folder}").out
    merit = cli(f"pipeline merit {runs_dir} --power 10 --json").json
    assert {row["scale"]: row["pipelines"] for row in merit}[0.02] == "commands, segments, spam, trips"
    assert all(row["power"].startswith("predicted: 10 W") for row in merit)
    one = next(row for row in merit if row["scale"] == 0.04)
    took = compiled.seconds
    product = took["load"] * (took["clean"] + took["features"]) * took["train"] * took["serve"]
    assert one["per_minute"] == pytest.approx(60 * 0.04 / product**0.25, rel=1e-4)
    assert one["per_minute_w"] == pytest.approx(one["per_minute"] / 10, rel=1e-4)
    assert "not comparable with TPC results" in cli(f"pipeline merit {runs_dir}").out
    # two ways are two pipelines, of which each has one scale
    assert limits_table(found).empty


def test_memory_ends_a_stage_that_is_named_and_what_was_finished_stays(cli, cache, tmp_path, monkeypatch):
    runs_dir = tmp_path / "runs"
    data.ensure("segments", 3.0)
    command = f"pipeline run segments --scale 3 --budget memory=330MiB --runs-dir {runs_dir}"
    done = subprocess.run([sys.executable, "-m", "labkit", *command.split()], capture_output=True, text=True)
    assert done.returncode not in (0, 1)
    (folder,) = run_folders(runs_dir)
    run = read_pipeline(folder)
    assert run.unfinished in STAGES and run.record.status == "failed"
    for said in (done.stderr, run.record.result["reason"]):
        assert f"in its stage {run.unfinished!r} at scale 3 than its budget 'memory=330MiB' allows" in said
        assert "make it smaller: --scale 1.5." in said and "--batch-size" not in said
    assert run.record.budget["cores"] is None  # memory alone leases no cores
    shown = cli(f"pipeline show {folder}").out
    assert "not finished" in shown
    assert not merit_table([run]).size


@pytest.mark.parametrize("name", data.GENERATORS)
def test_data_are_the_same_each_time_and_grow_with_the_scale(name, tmp_path):
    sizes = []
    for number, scale in enumerate((0.01, 0.01, 0.04)):
        data.generate(name, scale, 3, tmp_path / str(number))
        sizes.append({path.name: path.read_bytes() for path in (tmp_path / str(number)).glob("*.csv")})
    assert sizes[0] == sizes[1]
    whole = [sum(map(len, each.values())) for each in sizes]
    assert whole[2] / whole[0] == pytest.approx(4, rel=0.25)
    assert whole[2] < 0.04 * data.GENERATORS[name][2] * 1.02
    with_other_seed = data.GENERATORS[name][0](np.random.default_rng([4, 0]), 0, 50)
    assert set(with_other_seed) == set(sizes[0])


def test_chunks_do_not_change_what_comes_before(monkeypatch, tmp_path):
    data.generate("trips", 0.02, 0, tmp_path / "one")
    monkeypatch.setattr(data, "CHUNK", 100)
    data.generate("trips", 0.02, 0, tmp_path / "several")
    trips = pd.read_csv(tmp_path / "several" / "lines.csv")["trip"].to_numpy()
    assert (np.diff(trips) >= 0).all() and len(np.unique(trips)) == 400


def test_data_beyond_the_disk_are_refused_before_they_are_made(cache):
    with pytest.raises(UserError, match="give at most --scale") as refused:
        data.ensure("spam", 1e9)
    assert refused.value.field == "scale"
    assert not list(cache.rglob("spam-1e+09*"))


def test_a_generator_that_fails_leaves_nothing(cache, monkeypatch, tmp_path):
    monkeypatch.setitem(data.GENERATORS, "trips", (lambda *_: 1 / 0, 10, 10))
    with pytest.raises(ZeroDivisionError):
        data.generate("trips", 1, 0, tmp_path / "new")
    assert {path.suffix for path in tmp_path.iterdir()} <= {".lock"}


@pytest.mark.parametrize(
    ("flags", "field"),
    [("trips --scale 0", "scale"), ("trips --processes 65", "processes"), ("spam --buckets 0", "buckets")],
)
def test_settings_that_cannot_be_are_refused(flags, field, cli):
    name, flag, value = flags.split()
    with pytest.raises(UserError) as refused:
        PIPELINES[name].from_settings({flag[2:]: json.loads(value)})
    assert refused.value.field == field
    assert "did you mean 'trips'?" in cli("pipeline run trpis", status=2).err


def test_bytes_are_counted_from_rows_and_types():
    frame = pd.DataFrame({"a": np.zeros(5, "int32"), "b": np.zeros(5), "c": ["ä", "bb", "", "x", "y"]})
    assert bytes_of(frame) == 5 * 4 + 5 * 8 + 2 + 2 + 1 + 1
    assert bytes_of([np.zeros(3, "float32"), np.zeros((2, 2), "int8")]) == 16
    sparse = csr_matrix(np.eye(4, dtype="float32"))
    assert bytes_of(sparse) == 4 * 4 + 4 * sparse.indices.itemsize + 5 * sparse.indptr.itemsize


def test_a_line_through_two_peaks_says_what_dies_and_where():
    peaks = [{"load": 300.0, "train": 350.0}, {"load": 400.0, "train": 380.0}]
    fit = fit_memory([1, 2], peaks)
    assert fit.lines["load"] == pytest.approx((200, 100)) and fit.lines["train"] == pytest.approx((320, 30))
    assert fit.breaks_at(1000) == (pytest.approx(8), "load")
    assert fit.breaks_at(370) == (pytest.approx(5 / 3), "train")
    assert (fit.dies_in(1, 360), fit.dies_in(1.69, 370), fit.dies_in(3, 370)) == (None, "train", "load")
    assert MemoryFit({"load": (100, 0.0)}).breaks_at(50) == (math.inf, None)
    with pytest.raises(UserError, match="a line needs two"):
        fit_memory([2, 2], peaks)


def made_run(scale: float, load_mib: float, *, budget: str = "all-cores", limit: int | None = None, died: bool = False):
    """A run of `segments` whose stages hold what a scale needs, as its record and events have it."""
    names = STAGES[:1] if died else STAGES
    peaks = [(load_mib if name == "load" else 100 + 10 * scale) * 2**20 for name in names]
    columns = {"stage": names, "seconds": [scale] * len(names), "peak_bytes": peaks}
    frame = pd.DataFrame(columns).iloc[: 0 if died else None]
    record = SimpleNamespace(
        config={"job": "segments", "pipeline": {"scale": scale, "seed": 0, "clusters": 4}},
        budget={"name": budget, "memory_bytes": limit},
        status="failed" if died else "done",
    )
    return PipelineRun(Path("made"), record, frame, "load" if died else None)


def test_limits_are_predicted_from_two_scales_and_stand_next_to_what_was_seen():
    budget, limit = "memory=400MiB", 400 * 2**20
    under = {"budget": budget, "limit": limit}
    runs = [made_run(2, 240), made_run(4, 280), made_run(9, 380, **under), made_run(12, 440, **under, died=True)]
    (row,) = limits_table(runs, [budget]).to_dict("records")
    assert (row["pipeline"], row["stage"], row["fitted"]) == ("segments", "load", "2, 4, 9")
    assert row["breaks_at"] == pytest.approx((400 - 200) / 20)
    assert row["seen"] == "scale 9 done; scale 12 failed in load"
    assert limits_table(runs[:1] + runs[-1:], [budget]).empty  # one scale that was finished is no line


def test_the_memory_of_a_tier_or_a_budget():
    assert memory_of("jetson-nano-like") == memory_of("jetson-nano") == 4_295_000_000
    assert memory_of("memory=400MiB") == 400 * 2**20
    assert all(memory_of(budget) > GIB for budget in EDGE)
    with pytest.raises(UserError, match="does not limit memory"):
        memory_of("one-core")


def test_the_figure_of_merit_is_of_all_pipelines():
    one = {"load": 1.0, "prepare": 2.0, "train": 4.0, "serve": 8.0}
    other = {name: 4 * value for name, value in one.items()}
    assert pipelines_per_minute(1, [one]) == pytest.approx(60 / 64**0.25)
    assert pipelines_per_minute(3, [one, other]) == pytest.approx(60 * 3 * 2 / (64**0.25 * 2))
    faster = one | {"prepare": 2.0 / 1520}
    assert pipelines_per_minute(1, [faster]) / pipelines_per_minute(1, [one]) == pytest.approx(1520**0.25)
    with pytest.raises(UserError, match="all above 0 s"):
        pipelines_per_minute(1, [one | {"serve": 0}])


def test_a_week_of_a_disk_never_reaches_into_the_disk_before():
    random, disks = np.random.default_rng(0), np.repeat([1, 2, 5, 6], [3, 12, 1, 9])
    readings = pd.DataFrame(random.random((len(disks), len(READINGS))), columns=READINGS).assign(disk=disks)
    means = readings.groupby("disk")[READINGS].rolling(7, min_periods=1).mean()
    assert week_features(readings)[:, 3:6] == pytest.approx(means.to_numpy(), rel=1e-5)


def test_features_tell_trips_a_minute_apart_although_they_are_float32():
    moments = data.EPOCH_S + 90 * 86_400 + 60 * np.arange(5)
    assert len(np.unique(moments.astype("float32"))) < 5  # as a feature, seconds of Unix time would not
    about = pd.DataFrame({"trip": [3, 4, 7, 8, 9], "time_s": moments})
    matrix = add_moments(np.zeros((5, 1)), about["trip"].to_numpy(), about)
    assert matrix.dtype == "float32" and (matrix[:, 1] == 90).all()
    assert matrix[:, 2] * 60 == pytest.approx(np.arange(5), abs=1e-3)


@pytest.mark.parametrize(("items", "first"), [(2, 1), (10, 8), (1000, 800)])
def test_something_is_trained_on_and_something_held_out(items, first):
    assert held_out(items) == first


def test_what_cannot_be_computed_is_refused(cli, cache, tmp_path):
    assert "has no finished run of a pipeline" in cli(f"pipeline merit {tmp_path}", status=2).err
    scored = "all of one kind, so they cannot be scored: give a larger scale"
    assert scored in cli(f"pipeline run failures --scale 0.005 --runs-dir {tmp_path / 'runs'}", status=2).err
    assert "has no pipeline that ran at two scales" in cli(f"pipeline limits {tmp_path}", status=2).err
