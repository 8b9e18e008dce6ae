"""What is compared computes the same, and what is said of it is what was measured."""

import ast
import importlib
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from labkit.data.clicks import load_clicks
from labkit.data.clicks.generate import GeneratorConfig
from labkit.data.clicks.synthetic import write_clicks
from labkit.models.dlrm import DlrmConfig

CONFIG = DlrmConfig(dense_dim=3, num_rows=(5, 7, 30), embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(6, 1))


@pytest.mark.parametrize("optimiser", ["sgd", "adagrad", "rowwise-adagrad"])
def test_plain_and_fast_steps_learn_the_same(optimiser):
    from dlrm_shapes import Shape, made_up_batch, stepper

    batches = [made_up_batch(Shape(CONFIG, pooling_factor=2), 16) for _ in range(3)]
    losses = {}
    for kernels in ("plain", "fast"):
        torch.manual_seed(0)
        _, step = stepper(CONFIG, optimiser, kernels=kernels, lr=0.05)
        losses[kernels] = [step(batch).item() for batch in batches]
    assert losses["fast"] == pytest.approx(losses["plain"], rel=1e-5)  # float32, sums in another order


def test_the_textbooks_rows_are_ours(tmp_path):
    from textbook_rows import TextbookRows, loader

    file = tmp_path / "log.tsv"
    write_clicks(file, 700, GeneratorConfig(num_rows=(20,) * 26), "criteo", lambda fraction, text: None)
    rows = TextbookRows(file, train_share=6 / 7, min_count=2)
    log = load_clicks(str(file), cache_dir=tmp_path / "cache", min_count=2)
    assert rows.num_rows == log.table_rows
    train = log.split("train")
    assert rows.train_rows == len(train)
    np.testing.assert_allclose(rows.dense[: len(train)], train.dense, atol=1e-4)
    assert rows.labels[: len(train)] == train.label.tolist()
    for table in range(26):  # equally frequent values may have changed places
        counts = [np.bincount(column) for column in
                  (np.array(rows.categorical)[: len(train), table], train.categorical[:, table, 0])]  # fmt: skip
        np.testing.assert_array_equal(*counts)
    dense, categorical, label = next(iter(loader(rows, range(10), 10, shuffle=False)))
    assert dense.shape == (10, 13) and categorical.shape == (10, 26, 1)
    assert label.tolist() == rows.labels[:10]


def test_ways_take_turns_and_ratios_are_of_medians_or_of_pairs():
    from measuring import in_turn, paired, speed_ups

    calls = []
    taken = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, turns=2, warm_up=1)
    assert calls == ["a", "b"] * 3
    assert [len(times) for times in taken.values()] == [2, 2]
    (ratio,) = speed_ups("it", {"slow": [2.0, 4.0, 8.0], "fast": [1.0, 1.0, 4.0]}, base="slow")
    assert (ratio.ratio, ratio.low, ratio.high) == (4.0, 2.0, 4.0)
    assert (ratio.way_value, ratio.base_value, ratio.unit) == (1000.0, 4000.0, "ms")
    ratio = paired("it", "fast", "slow", [1.0, 1.0, 1.0], [2.0, 4.0, 8.0], unit="s")
    assert ratio.ratio == pytest.approx(4.0)
    half = 4.3027 * math.log(2) / math.sqrt(3)  # Student's t of 2 degrees of freedom at 97.5 %
    assert (ratio.low, ratio.high) == pytest.approx((4 * math.exp(-half), 4 * math.exp(half)), rel=1e-4)


def test_a_run_that_misses_its_target_leaves_no_ratio_but_what_restarts_cost(capsys):
    from time_to_target import compared

    def run(way, to_target_s):
        reached = {"to_target_s": to_target_s, "trained_s": to_target_s and 0.9 * to_target_s, "samples": 512}
        return {"job": "dlrm", "way": way, "wall_s": 20.0} | reached

    runs = [run("fast", 2.0), run("plain", 8.0), run("fast", 2.0), run("plain", 18.0)]
    time, samples = compared("dlrm", runs)
    assert (time.ratio, samples.ratio) == (pytest.approx(6.0), pytest.approx(1.0))
    assert "10% of the fast runs' time to the target is not training" in capsys.readouterr().out
    assert compared("dlrm", [*runs[:3], run("plain", None)]) == []
    assert "1 of 2 runs reached the target, 28.0 s to expect with restarts" in capsys.readouterr().out


def test_a_step_counts_its_weights_and_rows():
    from dlrm_shapes import Shape, lookups, step_flops

    layers = 3 * 8 + 8 * 4 + (4 + 6) * 6 + 6 * 1
    assert step_flops(CONFIG, 10) == 6 * 10 * (layers + 4 * 4 * 4)
    assert lookups(Shape(CONFIG, 2), 10) == 10 * 3 * 2


def test_what_benchmarks_and_makers_import_of_labkit_is_there():
    repository = Path(__file__).parents[2]
    missing = []
    for path in [*repository.glob("benchmarks/*.py"), *repository.glob("datasets/*/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit"):
                module = importlib.import_module(node.module)
                for name in (alias.name for alias in node.names):
                    if not hasattr(module, name) and not importlib.util.find_spec(f"{node.module}.{name}"):
                        missing.append(f"{path.name}: {node.module}.{name}")
    assert missing == []
