"""What is compared computes the same, and what is said of it is what was measured."""

import ast
import importlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from labkit.data.clicks import GeneratorConfig, load_clicks, write_clicks


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


def test_a_way_with_other_losses_is_no_peer(capsys):
    from same_model import Way, refuse_other_losses

    def way(loss):
        return Way(lambda batch: batch, lambda batch: torch.tensor(loss))

    refuse_other_losses("tiny", {"one": way(0.5), "two": way(0.5), "three, bf16": way(0.505)}, None)
    assert "losses of 3 steps agree: 0.50000" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="not the same model"):
        refuse_other_losses("tiny", {"one": way(0.5), "two": way(0.501)}, None)
