"""Sweep files: what they name, and what is wrong in them."""

import re
from dataclasses import replace

import pytest

from labkit.data.speech import Alphabet
from labkit.errors import UserError
from labkit.hardware import offered_budgets
from labkit.jobs import DlrmJob, get_preset
from labkit.launch.mix_file import read_yaml_mix
from labkit.launch.sweep_file import read_sweep_file
from labkit.models import SpeechConfig, SpeechModel

JOB = "job: dlrm:tour\nsettings: {data: synthetic-small}\n"


def cells(path):
    return {cell.key: cell for cell in read_sweep_file(path).cells}


def test_grid_cells_random_seeds_budgets_and_repeats_multiply(write):
    sweep = read_sweep_file(
        write(
            "grid: {batch_size: [128, 512], lr: [1e-3, 0.002, 3e-3]}\n"
            "cells: [{max_epochs: 1}, {max_epochs: 2}]\n"
            "random: {samples: 2, settings: {target: {choice: [none, 0.7, 0.6]}}}\n"
            "seeds: [0, 7]\nrepeats: 2\nbudget: [one-core, half]\nmax_seconds: 20\n",
            first=JOB,
        )
    )
    assert len(sweep.cells) == 2 * 3 * 2 * 2 * 2 * 2 * 2 == len({cell.key for cell in sweep.cells})
    own = {"max_epochs": 2, "batch_size": 2, "lr": 3, "target": 2, "seed": 2, "budget": 2, "repeat": 2}
    assert sweep.varies == own and (sweep.name, sweep.job) == ("s", "dlrm:tour")
    first, second = sweep.cells[:2]
    assert [first.budget.name, second.budget.name] == ["one-core", "half"], "budgets take turns"
    target = first.settings["target"]
    assert first.settings == {"max_epochs": 1, "batch_size": 128, "lr": 0.001, "target": target}
    given = {"batch_size": 128, "data": "synthetic-small", "lr": 0.001, "max_epochs": 1, "max_seconds": 20.0}
    assert first.job == DlrmJob(**given, target=target)
    assert (sweep.max_seconds, sweep.launch(first, "runs").limit_s) == (20, None)
    assert [(cell.repeat, cell.seed) for cell in sweep.cells[::48]] == [(1, 0), (1, 7), (2, 0), (2, 7)]


def test_a_script_takes_any_flag_with_true_for_a_bare_one_and_its_time_is_limited_from_outside(write):
    sweep = read_sweep_file(
        write("arguments: in.csv --v\nsettings: {fused: true}\ngrid: {lr: [1e-3], no_bias: [true, false]}\nseeds: [3]\n"
              "max_seconds: 5\n")
    )  # fmt: skip
    assert [" ".join(cell.job.arguments) for cell in sweep.cells] == [
        "in.csv --v --fused --lr 1e-3 --no_bias --seed {seed}",
        "in.csv --v --fused --lr 1e-3 --seed {seed}",
    ]
    command = sweep.command(sweep.cells[1], "runs")
    assert command.arguments[-2:] == ("--seed", "3") and command.seed == 3 and command.budget is not None
    assert sweep.launch(sweep.cells[0], "runs").limit_s == 5 and sweep.script.name == "train.py"
    assert "--seed" not in read_sweep_file(write("grid: {lr: [1]}\n")).cells[0].job.arguments


def test_a_key_outlives_comments_other_values_order_and_the_place_of_a_setting_but_no_change_of_one(write):
    (key,) = cells(write("grid: {batch_size: [128], lr: [1e-3]}\n", first=JOB))
    same = write(
        "# a note\ngrid:\n  lr: [0.001, 2e-3]\n  batch_size: [64, 128]\nseeds: [1, 0]\nrepeats: 2\n", first=JOB
    )
    assert key in cells(same) and len(cells(same)) == 16
    fixed = "settings: {lr: 1e-3, data: synthetic-small, batch_size: 128}\njob: dlrm\n"
    assert key in cells(write(fixed, first="")), "tour is the preset"
    for change in ("seeds: [1]\n", "budget: one-core\n", "max_seconds: 3\n"):
        assert key not in cells(write(f"grid: {{batch_size: [128], lr: [1e-3]}}\n{change}", first=JOB))
    whole = write(f"grid: {{batch_size: [128], lr: [1e-3]}}\nbudget: {offered_budgets()[-1].name}\n", first=JOB)
    assert key in cells(whole)


def test_random_samples_stay_the_same_when_more_samples_or_settings_are_asked_for(write):
    ranges = "num_tables: {from: 4, to: 128, scale: log, whole: true}, p: {choice: [1, 8, 64]}, x: {from: 0, to: 1}"
    few = read_sweep_file(write(f"random: {{samples: 5, seed: 1, settings: {{{ranges}}}}}\n"))
    more = read_sweep_file(write(f"random: {{samples: 40, seed: 1, settings: {{{ranges}, y: {{from: 1, to: 2}}}}}}\n"))
    drawn = [dict(cell.settings) for cell in more.cells]
    assert [{**cell.settings, "y": other["y"]} for cell, other in zip(few.cells, drawn, strict=False)] == drawn[:5]
    tables = sorted(int(settings["num_tables"]) for settings in drawn)
    assert tables[0] >= 4 and tables[-1] <= 128 and 10 < tables[20] < 50, "as many below 22 as above, by its logarithm"
    assert {settings["p"] for settings in drawn} == {"1", "8", "64"}
    assert len({settings["x"] for settings in drawn}) == 40


FILE, SHAPE = "s.yaml, line", "script: dlrm_shape.py\n"


@pytest.mark.parametrize(
    ("fields", "first", "said"),
    [
        ("tpyo: 3\n", JOB, [f"{FILE} 3, field 'tpyo'"]),
        ("grid: {batch_sise: [1]}\n", JOB, [f"{FILE} 3, field 'batch_sise'"]),
        ("grid:\n  batch_size: [1, x]\n", JOB, [f"{FILE} 4, field 'batch_size'"]),
        ("grid:\n  optimiser: [adam, sgdd]\n", JOB, [f"{FILE} 4, field 'optimiser'"]),
        ("grid: {lr: [1e-3, 0.001]}\n", JOB, ["field 'lr'"]),
        ("grid: {}\n", JOB, [f"{FILE} 3, field 'grid'"]),
        ("grid:\n", JOB, [f"{FILE} 3, field 'grid'"]),
        ("grid: {lr: []}\n", JOB, ["field 'lr'"]),
        ("grid:\n  lr:\n", JOB, [f"{FILE} 4, field 'lr'"]),
        ("grid: {data: [a, b]}\n", JOB, [f"field 'data': it is given twice, also in {{}}{FILE} 2"]),
        ("cells: [{lr: 1}]\nrandom: {samples: 1, settings: {lr: {from: 1, to: 2}}}\n", JOB, [f"{FILE} 4, field 'lr'"]),
        ("cells:\n  - lr: 1e-3\n  - lr: 0.001\n", JOB, [f"{FILE} 5: this cell is listed twice"]),
        ("grid: {preset: [tour]}\n", JOB, ["field 'preset'"]),
        ("grid: {max_seconds: [3]}\nmax_seconds: 3\n", JOB, ["field 'max_seconds'"]),
        ("grid: {seed: [1], budget: [a]}\n", JOB, ["'seed'", "'budget'"]),
        ("grid: {optimiser: [sgd]}\n", JOB, [f"{FILE} 3, field 'optimiser'"]),
        ("settings: {optimiser: sgd}\ngrid: {batch_size: [1, 2, 3]}\n", "job: dlrm\n",
         [f"{FILE} 2: the learning rate of preset 'tour' is for adam", "(in the cell with batch_size 1)"]),
        ("seeds: [0, 0, -1, x]\n", JOB, [f"{FILE} 3, field 'seeds'"]),
        ("seeds: [0, 0, -1]\n", JOB, ["0 is listed twice", "-1 is not a seed"]),
        ("budget: [nope, one-core, one-core]\n", JOB, ["no budget called 'nope'", "one-core is listed twice"]),
        ("repeats: 0\nmax_seconds: 0\n", JOB, ["field 'repeats'", "field 'max_seconds'"]),
        ("random: {samples: 9, settings: {lr: {choice: [1, 2]}}}\n", JOB, ["'samples': there are only 2"]),
        ("random: {settings: {lr: {from: 2, to: 1}}}\n", JOB, ["samples is missing", "'lr': a range is from a number"]),
        ("random: {samples: 1, settings: {batch_size: {from: 1, to: 9}}}\n", JOB, ["it takes whole numbers"]),
        ("random: {samples: 1, settings: {lr: {fron: 1}}}\n", JOB, ["'fron': it is unknown: did you mean 'from'?"]),
        ("random: {samples: 90000, settings: {lr: {from: 1, to: 2}}}\n", JOB, ["'samples': it is 90,000"]),
        ("name: ../x\n", JOB, [f"{FILE} 3, field 'name'"]),
        ("arguments: --x\n", JOB, ["'arguments': only a script has arguments"]),
        ("script: train.py\n", JOB, [f"{FILE} 1: give it one of job"]),
        ("grid: {lr: [1]}\n", "", [f"{FILE} 1: give it one of job"]),
        ("", "job: dlmr\n", [f"{FILE} 1, field 'job'"]),
        ("", "script: gone.py\n", [f"{FILE} 1, field 'script'"]),
        (f"grid: {{batch_size: {[*range(1, 400)]}, max_epochs: {[*range(1, 400)]}}}\n", JOB, ["159,201 cells"]),
        ("grid: {num_tabels: [1]}\n", SHAPE, [f"{FILE} 2, field 'num_tabels'"]),
        ("grid: {mlp_depth: [x]}\n", SHAPE, [f"{FILE} 2, field 'mlp_depth'"]),
        ("grid: {num_rows: [3, 0]}\n", SHAPE, [f"{FILE} 2, field 'num_rows'"]),
        ("arguments: --mlp-dept 1\n", SHAPE, ["only a script has arguments: write settings of dlrm_shape.py"]),
        ("lr: 1: 2\n", JOB, [f"{FILE} 3: this is not YAML"]),
    ],
)  # fmt: skip
def test_every_mistake_is_told_with_its_line(write, tmp_path, fields, first, said):
    with pytest.raises(UserError) as told:
        read_sweep_file(write(fields, first=first))
    for words in said:
        assert words.replace("{}", f"{tmp_path}/") in str(told.value)
    assert len(str(told.value).splitlines()) < 7


def test_all_mistakes_are_told_at_once(write):
    with pytest.raises(UserError, match="4 errors; nothing was started") as told:
        read_sweep_file(write("grid: {x: [1, 1]}\ntpyo: 1\nrepeats: no\nbudget: nope\n"))
    assert len(str(told.value).splitlines()) == 5


def test_the_studies_that_ship_can_be_read_by_their_names():
    sweep = read_sweep_file("dlrm_batch_accuracy")
    assert sweep.name == "dlrm_batch_accuracy" and len(sweep.cells) == 12


STUDIES = {"speech_layers": {"layers", "hidden"}, "speech_features": {"features"}, "speech_precision": {"precision"}}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_of_the_recogniser_has_three_seeds_of_what_varies(name):
    sweep = read_sweep_file(name)
    assert {cell.seed for cell in sweep.cells} == {0, 1, 2}
    assert {setting for cell in sweep.cells for setting in cell.settings} == STUDIES[name]


def test_depths_have_equal_parameters():
    shape = SpeechConfig(vocabulary=len(Alphabet()), **get_preset("speech", "budget-m5-mini").model)
    sizes = {}
    for cell in read_sweep_file("speech_layers").cells:
        model = SpeechModel(replace(shape, layers=int(cell.settings["layers"]), hidden=int(cell.settings["hidden"])))
        sizes[cell.settings["layers"]] = sum(weights.numel() for weights in model.parameters())
    assert sorted(map(int, sizes)) == [1, 3, 5, 7]
    assert max(sizes.values()) <= 1.05 * min(sizes.values())


GRID = """name: Sweep name
experiment: 0
collocation: "-"
devices: 0
listeners: smi+top
file: train.py
method: grid
parameters:
  batch-size:
    values: [8, 16]
  learning-rate: {values: [0.001, 0.002, 0.003]}
  momentum: {value: 0.9}
"""


def test_a_grid_of_radt_is_a_sweep(write):
    sweep = read_sweep_file(write(GRID + "seeds: [0, 1]\n", name="grid.yaml", first=""))
    assert (sweep.name, sweep.job) == ("Sweep-name", "train.py")
    assert sweep.varies == {"batch-size": 2, "learning-rate": 3, "seed": 2} and len(sweep.cells) == 12
    assert sweep.cells[0].settings == {"batch-size": "8", "learning-rate": "0.001"}
    own = ["--batch-size", "8", "--learning-rate", "0.001", "--momentum", "0.9"]
    assert sweep.cells[0].job.arguments[:6] == tuple(own)
    with pytest.raises(UserError, match=r"is a grid of radT's.*labkit sweep"):
        read_yaml_mix(write(GRID, name="grid.yaml", first=""))


def test_a_grid_of_wandb_is_a_sweep_and_what_is_none_is_named(write):
    grid = re.sub("(experiment|collocation|devices|listeners).*\n", "", GRID).replace("file:", "program:")
    grid += "metric: {name: val_loss, goal: minimize}\nproject: mine\n"
    of_radt, found = (read_sweep_file(write(text, name="grid.yaml", first="")) for text in (GRID, grid))
    assert [cell.job for cell in found.cells] == [cell.job for cell in of_radt.cells]
    with pytest.raises(UserError, match="field 'method': 'bayes' draws settings"):
        read_sweep_file(write(grid.replace("method: grid", "method: bayes"), name="grid.yaml", first=""))
    with pytest.raises(UserError, match=r"is a grid of W&B's.*labkit sweep"):
        read_yaml_mix(write(grid, name="grid.yaml", first=""))


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("method: grid", "method: random", "line 7, field 'method': 'random' draws settings"),
        ('"-"', "MPS", "line 3, field 'collocation': a sweep runs a cell at a time, not MPS"),
        ("devices: 0", "devices: 1", "line 4, field 'devices': .*CUDA_VISIBLE_DEVICES=1"),
        ("smi+top", "smi+nsys", "line 5, field 'listeners': nsys is no sampler"),
        ("values: [8, 16]", "min: 8", "line 9, field 'batch-size': it has min"),
        ("experiment: 0", "experimnt: 0", "line 2, field 'experimnt': it is unknown"),
        ("train.py", "none.py", "line 6, field 'file'.*none.py"),
    ],
)
def test_what_a_sweep_cannot_do_of_a_grid_of_radt_is_named_with_its_line(write, old, new, words):
    with pytest.raises(UserError, match=words):
        read_sweep_file(write(GRID.replace(old, new), name="grid.yaml", first=""))
