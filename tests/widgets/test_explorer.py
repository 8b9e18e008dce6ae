"""The explorer's controls change the figure, its words, its numbers and its code, without a browser."""

import json
import time
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

import labkit.tta
from labkit.errors import UserError
from labkit.plots import figure_time_to_accuracy
from labkit.runs import Provenance, RunWriter
from labkit.runs.parts import TELEMETRY, PartWriter
from labkit.widgets import explore


def write_run(
    runs_dir,
    budget: str,
    seed: int,
    every_s: float,
    tier="cloud-cpu-2",
    evaluated: bool = True,
    watts=None,
    others=None,
):
    """A run of four evaluations, `every_s` apart; with `watts`, of a machine whose energy counter says so."""
    run = RunWriter.create(
        runs_dir, "dlrm-x", config={
            "job": "dlrm", "data": {"name": "synthetic", "fingerprint": "f"}, "model": {},
            "train": {"target_metric": "auc", "target": 0.75},
        },
        budget={"name": budget, "torch_name": "cpu"}, tier=tier, devices=[], seed=seed,
        provenance=Provenance.now("measured" if budget == "all-cores" else "emulated"), software={},
    )  # fmt: skip
    for number, value in enumerate((0.6, 0.7, 0.76, 0.78) if evaluated else (), start=1):
        point = {"step": number, "wall_s": number * every_s, "train_s": number * every_s / 2, "samples": number * 100}
        run.metric(name="auc", value=value + seed / 1000, **point)
        run.metric(name="log_loss", value=1 - value, **point)
    if watts is not None:
        _sample_energy(run.folder, watts, every_s)
    run.finish("done", {} if others is None else {"others": others})
    return run.folder


def _sample_energy(folder, watts: float, every_s: float) -> None:
    """Samples of a RAPL counter, and evaluations at their wall times after the first."""
    began = time.time()
    with (folder / "events.jsonl").open("a") as events:
        for number in range(1, 5):
            when = datetime.fromtimestamp(began + number * every_s, UTC).isoformat(timespec="milliseconds")
            events.write(json.dumps({"event": "evaluated", "time": when, "wall_s": number * every_s}) + "\n")
    parts = PartWriter(folder / "telemetry", TELEMETRY)
    for number in range(20):
        parts.append(
            {
                "time_ns": int((began + number * every_s / 2) * 1e9), "device": "cpu", "scope": "host", "pid": 1,
                "counter": "cpu_energy_intel-rapl:0", "value": watts * number * every_s / 2, "unit": "J",
                "source": "RAPL", "note": "wraps at 100000.0 J",
            }
        )  # fmt: skip
    parts.flush()


@pytest.fixture
def folders(tmp_path):
    return [write_run(tmp_path, *each) for each in (("all-cores", 0, 1.0), ("all-cores", 1, 1.1), ("one-core", 0, 2.0))]


def test_it_opens_at_the_runs_own_target(folders):
    view = explore(folders)
    assert (view.metric.value, view.target.value, view.x.value) == ("auc", 0.75, "wall_s")
    assert "all cores 3.2 s" in view.words.value
    assert view.crossings["time_to_target_s"].round(1).tolist() == [3.0, 3.3, 6.0]


def test_the_target_moves_the_crossings(folders):
    view = explore(folders)
    view.target.value = 0.65
    assert view.crossings["time_to_target_s"].round(1).tolist() == [2.0, 2.2, 4.0]
    assert "Target AUC 0.65" in view.words.value
    assert "0.65" in view.code.value


@pytest.mark.parametrize(
    ("x", "places"),
    [("samples", [300.0, 300.0, 300.0]), ("train_s", [1.5, 1.65, 3.0])],
)
def test_the_axis_may_be_another(folders, x, places):
    view = explore(folders)
    view.x.value = x
    assert view.crossings["time_to_target_s"].tolist() == pytest.approx(places)
    assert view.plot.data[0].x[3] == pytest.approx(places[0] * 4 / 3)


def test_cost_is_an_axis_only_where_there_is_a_price(tmp_path, folders):
    assert "cost_usd" in [name for _, name in explore(folders).x.options]
    unpriced = write_run(tmp_path, "all-cores", 5, 1.0, tier=None)
    assert "cost_usd" not in [name for _, name in explore([unpriced]).x.options]


def test_energy_is_an_axis_where_it_was_measured_and_said_why_elsewhere(tmp_path, folders):
    view = explore(folders)
    assert "energy_j" not in [name for _, name in view.x.options]
    assert "No energy for these runs: not measurable" in view.without.value
    measured = write_run(tmp_path, "all-cores", 7, 1.0, watts=50.0)
    view = explore([*folders, measured])
    assert "No energy for 3 of 4 runs" in view.without.value
    view.x.value = "energy_j"
    assert list(view.plot.data[0].x) == pytest.approx([50.0, 100.0, 150.0, 200.0], rel=0.01)
    assert view.crossings["time_to_target_s"].tolist() == pytest.approx([150.0], rel=0.01)
    assert "with_energy(curves(folders, metric='auc', runs=runs), runs)" in view.in_code()
    assert "150.0 J" in view.words.value


def test_another_metric_brings_its_own_target_and_direction(folders):
    view = explore(folders)
    view.metric.value = "log_loss"
    assert view.target.min <= view.target.value <= view.target.max
    view.target.value = 0.305
    assert view.crossings["time_to_target_s"].round(1).tolist() == [2.0, 2.2, 4.0]


@pytest.mark.parametrize("target", [0.75, 0.0517])
def test_the_runs_own_target_is_a_place_of_the_slider(folders, target):
    for folder in folders:
        record = json.loads((folder / "run.json").read_text())
        record["config"]["train"]["target"] = target
        (folder / "run.json").write_text(json.dumps(record))
    slider = explore(folders).target
    steps = (target - slider.min) / slider.step
    assert slider.value == target and steps == pytest.approx(round(steps), abs=1e-6)


def test_its_numbers_are_those_of_the_table(tmp_path):
    folders = [write_run(tmp_path, "all-cores", seed, 1 + seed / 10) for seed in range(5)]
    folders += [write_run(tmp_path, "all-cores", 9, 1.0, evaluated=False)]
    view, runs = explore(folders), labkit.tta.run_table(folders)
    (row,) = labkit.tta.summary(labkit.tta.curves(folders, runs=runs), runs).itertuples()
    (shown,) = view.times.itertuples()
    assert (shown.reached, shown.failed, shown.median, shown.low, shown.expected) == (
        row.reached, row.failed, row.time_median_s, row.time_low_s, row.expected_s,
    )  # fmt: skip
    for words in ("5 of 6 (95 % CI", "3.8 s (95 % CI", "3.6 s (95 % CI"):
        assert words in view.words.value


def test_a_budget_can_be_left_out(folders):
    view = explore(folders)
    view.budgets.children[1].value = False
    assert set(view.crossings["budget"]) == {"all-cores"}
    view.budgets.children[0].value = False
    assert "No run is chosen" in view.words.value
    assert view.plot.data == () and view.crossings.empty and view.save.disabled and view.code.value == ""
    view.budgets.children[1].value = True
    assert set(view.crossings["budget"]) == {"one-core"} and not view.save.disabled


def test_a_logarithmic_axis_holds_every_point(folders):
    view = explore(folders)
    view.log_x.value = True
    low, high = view.plot.layout.xaxis.range
    assert view.plot.layout.xaxis.type == "log"
    assert 10**low < 1.0 and 10**high > 8.0


def test_the_csv_holds_the_crossings(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    view = explore(folders)
    view.save.click()
    saved = pd.read_csv(tmp_path / "time_to_auc_0.75_wall_s.csv")
    assert saved["time_to_target_s"].round(1).tolist() == [3.0, 3.3, 6.0]
    assert "Saved 3 rows" in view.saved.value
    view.target.value = 0.65
    assert view.saved.value == ""


def test_the_csv_names_its_columns_by_the_axis(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    view = explore(folders)
    for x, column in (
        ("cost_usd", "cost_usd_to_target"),
        ("samples", "samples_to_target"),
        ("train_s", "train_s_to_target"),
    ):
        view.x.value = x
        view.save.click()
        saved = pd.read_csv(tmp_path / f"time_to_auc_0.75_{x}.csv")
        assert column in saved and "time_to_target_s" not in saved and "sustained_time_s" not in saved
        assert saved[column].tolist() == pytest.approx(view.crossings["time_to_target_s"].tolist())


@pytest.mark.parametrize(("x", "log"), [("wall_s", False), ("cost_usd", True), ("samples", False)])
def test_its_code_draws_the_same_figure(folders, monkeypatch, x, log):
    view = explore(folders)
    view.x.value, view.log_x.value, view.target.value = x, log, 0.7
    view.budgets.children[1].value = False
    shown = []
    names = vars(labkit.tta) | {"figure_time_to_accuracy": figure_time_to_accuracy, "show": shown.append}
    exec(view.in_code(), names | {"folders": folders})
    (figure,) = shown
    for ours, shown in zip(figure.data, view.plot.data, strict=True):
        assert ours.name == shown.name
        np.testing.assert_array_equal(np.array(ours.x, float), np.array(shown.x, float))
        np.testing.assert_array_equal(np.array(ours.y, float), np.array(shown.y, float))
    assert figure.layout.xaxis.type == view.plot.layout.xaxis.type


def test_a_folder_of_runs_is_all_of_them(folders, tmp_path):
    assert len(explore(tmp_path).crossings) == 3
    with pytest.raises(UserError, match="there is no run here"):
        explore(tmp_path / "elsewhere")


def test_every_control_has_a_description_and_the_saved_figure_is_plain(folders):
    view = explore(folders)
    controls = [view.job, view.metric, view.target, view.x, view.log_x, view.save, *view.budgets.children]
    assert all(control.description for control in controls)
    assert type(view.figure).__name__ == "Figure"
    assert len(view.figure.data) == len(view.plot.data)
    assert isinstance(view.crossings, pd.DataFrame)


def test_runs_without_an_evaluation_have_nothing_to_explore(tmp_path):
    with pytest.raises(UserError, match="none of these runs was evaluated"):
        explore([write_run(tmp_path, "all-cores", 0, 1.0, evaluated=False)])


def test_runs_that_other_programs_disturbed_can_be_left_out(tmp_path):
    disturbed = {"cpu_share": 0.4, "largest": None}
    folders = [write_run(tmp_path, "all-cores", seed, 1.0) for seed in range(2)]
    assert explore(folders).undisturbed.layout.display == "none"
    disturbed |= {"on_gpu": [], "disturbed": True}
    explorer = explore([*folders, write_run(tmp_path, "all-cores", 2, 1.0, others=disturbed)])
    assert len(explorer.crossings) == 3
    explorer.undisturbed.value = True
    assert len(explorer.crossings) == 2 and "undisturbed=True" in explorer.in_code()
