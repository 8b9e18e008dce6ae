"""A plan that is registered before its runs: what is refused, what counts, and what the judgement says."""

import json
import time

import numpy as np
import pytest
from made_up import write_run

from labkit import DataError, UserError
from labkit.launch import read_sweep_file
from labkit_course import capstone
from labkit_course.capstone import interval_score, judge, read_plan, read_register, register, verdict

PLAN = """\
question = "Does twice the learning rate reach the target sooner?"
script = "train.py"
target = "auc >= 0.78"
setting = "lr"
values = [0.001, 0.002]
budgets = ["one-core", "all-cores"]
seeds = [0, 1, 2, 3, 4]
smallest_effect = 0.2
spread = 0.1

[predicted.one-core]
time_s = [7, 9]
cost_usd = [1e-5, 1e-3]
energy_j = [10, 1000]

[predicted.all-cores]
time_s = [100, 200]
cost_usd = [1e-5, 1e-3]
energy_j = [10, 1000]
"""


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "plan.toml"


def run_cell(runs_dir, seed, lr=0.001, budget="one-core", every_s=2.0, values=(0.5, 0.6, 0.7, 0.8, 0.81), **more):
    config = {"script": "/elsewhere/train.py"}
    return write_run(runs_dir, values, seed=seed, lr=lr, budget=budget, every_s=every_s, config=config, **more)


def run_all(runs_dir, plan, sooner=1.5, but=()):
    for budget, seed, value in ((b, s, v) for b in plan.budgets for s in plan.seeds for v in (0, 1)):
        if (budget, seed, value) not in but:
            every_s = 2.0 * (1 + 0.01 * seed) / (sooner if value else 1)
            run_cell(runs_dir, seed, plan.values[value], budget, every_s)


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ("[0, 1, 2, 3, 4]", "[0, 1, 2, 3]", "seeds", "too few"),
        ("smallest_effect = 0.2", "smallest_effect = 0.02", "seeds", "need|pairs find an effect of 0.02"),
        ("smallest_effect = 0.2", "smallest_effect = -3", "smallest_effect", "above 0"),
        ("spread = 0.1", "spread = 1e9", "spread", "30 times"),
        ("[0, 1, 2, 3, 4]", "[0, 1, 2, 3, 3, 4]", "seeds", "each seed once"),
        ("[0.001, 0.002]", "[0.001, 0.001]", "values", "differ"),
        ('"auc >= 0.78"', '"max auc"', "target", "a value to reach"),
        ('"auc >= 0.78"', '"auc"', "target", "is not valid"),
        ("time_s = [7, 9]", "time_s = [9, 7]", "predicted", "low and high"),
        ("time_s = [7, 9]\n", "", "predicted", "time_s"),
        ("[predicted.one-core]", "[predicted.one-cor]", "predicted", "each of the two budgets"),
        ("spread =", "sprad =", None, "sprad"),
        ('script = "train.py"', 'script = "gone.py"', "script", "no script gone.py"),
        ('script = "train.py"', "", "script", "one of script and job"),
        ("seeds = [", "seeds = ", None, "no plan"),
    ],
)
def test_a_plan_that_is_wrong_is_refused_by_its_field(plan, old, new, field, words):
    assert old in PLAN
    plan.write_text(PLAN.replace(old, new))
    with pytest.raises(DataError, match=words) as caught:
        read_plan(plan)
    assert (caught.value.field, caught.value.file) == (field, plan)


def test_a_register_is_kept_once_runs_have_begun(plan, tmp_path):
    runs_dir = tmp_path / "runs"
    first = register(plan, runs_dir)
    assert register(plan, runs_dir) == first == read_register(runs_dir)
    plan.write_text(PLAN.replace("[7, 9]", "[7, 8]"))
    second = register(plan, runs_dir)  # no run has begun
    assert second.sha256 != first.sha256
    time.sleep(0.01)  # the clock of a record has milliseconds
    run_cell(runs_dir, 0)
    plan.write_text(PLAN)
    with pytest.raises(UserError, match="1 of its runs began since"):
        register(plan, runs_dir)
    assert read_register(runs_dir) == second
    assert register(plan, tmp_path / "other").plan == first.plan


def test_a_register_that_was_changed_by_hand_is_refused(plan, tmp_path):
    register(plan, tmp_path)
    file = tmp_path / capstone.REGISTER
    content = json.loads(file.read_text())
    content["plan"]["smallest_effect"] = 0.5
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match="changed by hand"):
        read_register(tmp_path)
    with pytest.raises(UserError, match="course register"):
        read_register(tmp_path / "none")


def test_a_registered_plan_is_a_sweep(plan, tmp_path):
    register(plan, tmp_path / "runs")
    cells = read_sweep_file(tmp_path / "runs" / capstone.SWEEP).cells
    assert {(cell.settings["lr"], cell.seed) for cell in cells} == {
        (lr, s) for lr in ("0.001", "0.002") for s in range(5)
    }
    assert len(cells) == 20


def test_what_came_of_a_plan(plan, tmp_path, cli):
    pilot = run_cell(tmp_path / "runs", 0)
    time.sleep(0.01)
    made = register(plan, tmp_path / "runs")
    with pytest.raises(UserError, match=r"no run of the plan counts yet.*began before"):
        judge(made, tmp_path / "runs")
    time.sleep(0.01)
    run_all(tmp_path / "runs", made.plan, but={("all-cores", 4, 1)})
    again, foreign = run_cell(tmp_path / "runs", 1), run_cell(tmp_path / "runs", 9)
    other = run_cell(tmp_path / "runs", 2, target=0.7)
    run_cell(tmp_path / "runs", 0, lr=0.004)  # is of no cell
    found = judge(made, tmp_path / "runs")
    one, whole = found.effects.to_dict("records")
    assert one["pairs"] == 5 and one["verdict"] == "sooner, and it matters"
    assert one["low"] <= one["times_as_fast"] <= one["high"] and one["times_as_fast"] == pytest.approx(1.5)
    assert whole["pairs"] == 4 and list(found.cells["missing_seeds"]) == ["", "", "", "4"]
    assert found.cells["expected_s"].tolist()[:2] == pytest.approx([8.16, 5.44])
    said = {line.split()[0]: line for line in found.remarks}
    assert "before the plan" in said[pilot.name] and "repeats" in said[again.name]
    assert "seed 9" in said[foreign.name] and "another target" in said[other.name] and len(found.remarks) == 4
    times = found.calibration[found.calibration["predicted"] == "time_s"].to_dict("records")
    assert [(row["inside"], row["known_runs"]) for row in times] == [(5, 5), (0, 5)]
    assert times[0]["score"] == pytest.approx(np.log(9 / 7)) and times[1]["score"] > 20
    energy = found.calibration[found.calibration["predicted"] == "energy_j"]
    assert (energy["known_runs"] == 0).all() and energy["score"].isna().all()  # there is no counter
    said = cli("course capstone", "--runs", tmp_path / "runs").out
    assert made.sha256 in said and "sooner, and it matters" in said and pilot.name in said


def test_a_failed_run_is_counted_and_no_ratio_is_given_without_it(plan, tmp_path):
    made = register(plan, tmp_path / "runs")
    time.sleep(0.01)
    run_all(tmp_path / "runs", made.plan, but={("one-core", 3, 0)})
    failed = run_cell(tmp_path / "runs", 3, values=(0.5, 0.5))
    found = judge(made, tmp_path / "runs")
    row = found.effects.iloc[0]
    assert row["failed_pairs"] == 1 and np.isnan(row["times_as_fast"]) and "runs failed" in row["verdict"]
    assert list(found.cells["reached"]) == [4, 5, 5, 5]
    assert found.cells["expected_s"][0] == pytest.approx((8 * (4 + 0.07) + 4) / 4)
    assert any(failed.name in line and "failed" in line for line in found.remarks)
    row = found.calibration.iloc[0]
    assert (row["inside"], row["known_runs"]) == (4, 5)  # no interval holds it


def test_verdicts_depend_on_the_whole_interval():
    limits = [(0.2, 0.4), (-0.4, -0.2), (-0.05, 0.08), (-0.05, 0.2), (0.02, 0.3), (np.nan, np.nan)]
    assert [verdict(low, high, 0.1) for low, high in limits] == [
        "sooner, and it matters", "later, and it matters", "no difference that matters",
        "cannot be decided: run more pairs", "cannot be decided: run more pairs", "cannot be decided: too few pairs",
    ]  # fmt: skip


def test_the_best_interval_is_that_of_the_true_quantiles():
    """Of log-normal times, intervals that are shifted, wider or narrower score worse on average."""
    random, level = np.random.default_rng(0), 0.8
    times = np.exp(random.normal(0, 0.3, 4000))
    best = np.exp(np.array([-1, 1]) * 1.2816 * 0.3)

    def mean(low, high):
        return np.mean([interval_score(low, high, found, level) for found in times])

    scores = [mean(*best), mean(*best * 1.2), mean(*best**1.7), mean(*best**0.5)]
    assert scores[0] == min(scores)
