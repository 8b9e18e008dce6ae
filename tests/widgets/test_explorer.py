"""The explorer's controls change the figure, its words, its numbers and its code, without a browser."""

import json
import time
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from made_up import write_run

import labkit.tta
from labkit.errors import UserError
from labkit.plots import figure_time_to_accuracy
from labkit.runs import TELEMETRY
from labkit.runs.parts import PartWriter
from labkit.widgets import explore

VALUES = [0.6, 0.7, 0.76, 0.78]


def write(runs_dir, budget="all-cores", seed=0, every_s=1.0, values=VALUES, target=0.75, **more):
    values = [value + seed / 1000 for value in values]
    return write_run(runs_dir, values, budget=budget, seed=seed, every_s=every_s, target=target, **more)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    runs_dir = tmp_path_factory.mktemp("runs")
    return [write(runs_dir, *each) for each in (("all-cores", 0, 1.0), ("all-cores", 1, 1.1), ("one-core", 0, 2.0))]


@pytest.fixture
def view(folders):
    return explore(folders)


def times(view):
    return view.crossings["time_to_target_s"].round(2).tolist()


def axes(view):
    return [name for _, name in view.x.options]


def test_it_opens_at_the_runs_own_target_which_moves_the_crossings(view):
    assert (view.metric.value, view.target.value, view.x.value) == ("auc", 0.75, "wall_s")
    assert "all cores 3.2 s" in view.words.value or "all cores 3.1 s" in view.words.value
    assert times(view) == [3.0, 3.3, 6.0]
    view.target.value = 0.65
    assert times(view) == [2.0, 2.2, 4.0]
    assert "Target AUC 0.65" in view.words.value and "0.65" in view.code.value
    view.metric.value = "log_loss"
    assert view.target.min <= view.target.value <= view.target.max
    view.target.value = 0.305
    assert times(view) == [2.0, 2.2, 4.0], "which falls"


def test_the_axis_may_be_another(view):
    for x, places in (("samples", [3000, 3000, 3000]), ("train_s", [2.25, 2.48, 4.5])):
        view.x.value = x
        assert times(view) == pytest.approx(places, abs=0.01)
        assert view.plot.data[0].x[3] == pytest.approx(places[0] * 4 / 3)


def test_cost_is_an_axis_only_where_there_is_a_price(tmp_path, view):
    assert "cost_usd" in axes(view)
    unpriced = explore([write(tmp_path, tier=None)])
    assert "cost_usd" not in axes(unpriced) and "No cost for these runs: this hardware" in unpriced.without.value


def test_energy_is_an_axis_where_it_was_measured_and_said_why_elsewhere(tmp_path):
    view = explore(unmeasured := [write(tmp_path, seed=seed) for seed in range(3)])
    assert "energy_j" not in axes(view) and "No energy for these runs: no counter" in view.without.value
    measured, began = write(tmp_path, seed=7, energy_note=None), time.time()
    with (measured / "events.jsonl").open("w") as events:
        for wall_s in range(1, 5):
            when = datetime.fromtimestamp(began + wall_s, UTC).isoformat(timespec="milliseconds")
            events.write(json.dumps({"event": "evaluated", "time": when, "wall_s": wall_s}) + "\n")
    parts = PartWriter(measured / "telemetry", TELEMETRY)
    counter = {"device": "cpu", "scope": "host", "pid": 1, "counter": "cpu_energy_intel-rapl:0", "unit": "J"}
    for number in range(20):  # 50 W
        told = {"time_ns": int((began + number / 2) * 1e9), "value": 25.0 * number, "source": "RAPL"}
        parts.append(counter | told | {"note": "wraps at 100000.0 J"})
    parts.flush()
    view = explore([*unmeasured, measured])
    assert "No energy for 3 of 4 runs" in view.without.value
    view.x.value = "energy_j"
    assert list(view.plot.data[0].x) == pytest.approx([50.0, 100.0, 150.0, 200.0], rel=0.01)
    assert times(view) == pytest.approx([150.0], rel=0.01) and "150.0 J" in view.words.value
    assert "with_energy(curves(folders, metric='auc', runs=runs), runs)" in view.in_code()


@pytest.mark.parametrize("target", [0.75, 0.0517])
def test_the_runs_own_target_is_a_place_of_the_slider(tmp_path, target):
    slider = explore([write(tmp_path, target=target)]).target
    steps = (target - slider.min) / slider.step
    assert slider.value == target and steps == pytest.approx(round(steps), abs=1e-6)


def test_budgets_can_be_left_out_and_all_of_them_is_told(view):
    one, other = view.budgets.children
    one.value = False
    assert set(view.crossings["budget"]) == {"one-core"} and "'all-cores'" not in view.in_code()
    other.value = False
    assert "No run is chosen" in view.words.value and view.save.disabled and not view.plot.data
    one.value = True
    assert set(view.crossings["budget"]) == {"all-cores"} and not view.save.disabled


def test_the_csv_holds_the_crossings_under_names_of_the_axis(view, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for x in ("wall_s", "cost_usd", "samples"):
        view.x.value = x
        view.save.click()
        assert "Saved 3 rows" in view.saved.value
        saved = pd.read_csv(tmp_path / f"time_to_auc_0.75_{x}.csv")
        assert saved[f"{x}_to_target"].tolist() == pytest.approx(view.crossings["time_to_target_s"].tolist())
        assert not {"time_to_target_s", "sustained_time_s"} & set(saved)
    view.target.value = 0.65
    assert view.saved.value == ""


def test_its_code_draws_the_same_figure(view, folders):
    view.x.value, view.target.value, view.budgets.children[1].value = "cost_usd", 0.7, False
    shown = []
    names = vars(labkit.tta) | {"figure_time_to_accuracy": figure_time_to_accuracy, "show": shown.append}
    exec(view.in_code(), names | {"folders": folders})
    (figure,) = shown
    for ours, drawn in zip(figure.data, view.plot.data, strict=True):
        np.testing.assert_array_equal(np.array([ours.x, ours.y], float), np.array([drawn.x, drawn.y], float))


def test_every_control_has_a_description_and_the_saved_figure_is_plain(folders):
    view = explore(folders[0].parent)  # all that it holds
    assert len(view.crossings) == 3
    controls = [view.job, view.metric, view.target, view.x, view.save, *view.budgets.children]
    assert all(control.description for control in controls)
    assert type(view.figure).__name__ == "Figure" and len(view.figure.data) == len(view.plot.data) > 0


def test_where_there_is_nothing_to_explore_that_is_said(tmp_path):
    with pytest.raises(UserError, match="there is no run here"):
        explore(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="none of these runs was evaluated"):
        explore([write(tmp_path, values=[])])


def test_a_recording_is_explored_like_runs_of_ones_own():
    from labkit.runs import recorded

    frames = recorded("zeus-nsdi23", job="deepspeech2 on librispeech", batch_size=[32, 128], power_limit_w="max")
    view = explore(frames)
    assert axes(view) == ["wall_s", "train_s", "epochs", "energy_j", "cost_usd"]
    view.target.value, view.x.value = 0.35, "energy_j"
    medians = view.times.set_index("budget")["median"]
    assert medians["A40 · batch_size 32"] == pytest.approx(1.275e7, rel=0.01) and np.isinf(
        medians["V100 · batch_size 128"]
    )
    assert "recorded, You et al. 2023" in view.words.value
    lines = view.in_code()
    scope = {name: getattr(labkit.tta, name) for name in labkit.tta.__all__} | {"frames": frames}
    exec(lines.rpartition("\n")[0], scope)
    assert scope["times"]["median"].tolist() == pytest.approx(view.times["median"].tolist())
