"""Generated click logs by name, prepared once and memory-mapped."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.data.clicks import load_clicks
from labkit.data.clicks.generate import ClickGenerator
from labkit.data.clicks.metrics import auc
from labkit.data.clicks.prepared import ClickWriter
from labkit.data.clicks.synthetic import SYNTHETIC
from labkit.errors import UserError


def test_a_generated_log_is_prepared_once_and_memory_mapped(tmp_path, monkeypatch):
    seen = []
    log = load_clicks("synthetic-small", cache_dir=tmp_path, progress=lambda fraction, text: seen.append(fraction))
    assert seen == sorted(seen) and seen[-1] == 1.0
    train = log.split("train")
    assert isinstance(train.dense, np.memmap) and not train.dense.flags.writeable
    assert (train.dense.dtype, train.categorical.dtype, train.label.dtype) == (np.float32, np.int32, np.uint8)
    assert train.dense.shape == (50_000, 13) and train.categorical.shape == (50_000, 8, 1)
    assert (train.categorical.max((0, 2)) < log.table_rows).all()
    monkeypatch.setattr("labkit.data.clicks.load.prepare_synthetic", lambda *_, **__: pytest.fail("prepared again"))
    again = load_clicks("synthetic-small", cache_dir=tmp_path)
    assert again.fingerprint == log.fingerprint and again.folder == log.folder
    blocks = ClickGenerator(SYNTHETIC["synthetic-small"]).blocks("test", 6000)
    truth = np.concatenate([block.probability for block in blocks])
    assert log.info["bayes_auc"] == pytest.approx(auc(np.array(log.split("test").label), truth), abs=1e-12)
    assert log.info["bayes_auc"] == pytest.approx(0.80, abs=0.02)  # four standard deviations on 6,000 rows
    assert log.info["bayes_auc_validation"] != log.info["bayes_auc"]


def test_options_and_seed_make_another_log(tmp_path):
    sizes = {"train_rows": 500, "validation_rows": 100, "test_rows": 100}
    logs = [
        load_clicks("synthetic-small", cache_dir=tmp_path, **sizes, **options)
        for options in ({}, {"seed": 1}, {"pooling_factor": 3}, {"dense_dim": 2})
    ]
    assert len({log.folder for log in logs}) == 4
    assert logs[2].pooling_factor == 3 and logs[2].split("test").categorical.shape == (100, 8, 3)
    assert logs[3].split("test").dense.shape == (100, 2)


def test_generated_tables_can_be_bounded_like_any(tmp_path):
    sizes = {"train_rows": 500, "validation_rows": 100, "test_rows": 100}
    log = load_clicks("synthetic-small", cache_dir=tmp_path, max_rows_per_table=100, **sizes)
    assert log.table_rows == (50, 84, 100, 100, 100, 100, 100, 100)
    assert log.split("train").categorical.max() < 100


def test_bad_options_and_disks_that_are_too_small_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="'dens_dim' is unknown: did you mean 'dense_dim'"):
        load_clicks("synthetic-small", cache_dir=tmp_path, dens_dim=3)
    monkeypatch.setattr("labkit.data.store.free_disk_bytes", lambda folder: 1000)
    with pytest.raises(UserError, match="needs about"):
        load_clicks("synthetic-small", cache_dir=tmp_path)


def test_arrays_grow_by_blocks_and_are_ordinary_npy_files(tmp_path):
    with ClickWriter(tmp_path, 2, 1) as writer:
        for rows in (3, 0, 4):
            writer.append(np.ones((rows, 2)), np.full((rows, 1, 1), 5), np.zeros(rows))
    dense = np.load(tmp_path / "dense.npy")
    assert dense.shape == (7, 2) and dense.dtype == np.float32 and (dense == 1).all()
    assert np.load(tmp_path / "categorical.npy").tolist() == [[[5]]] * 7
    assert np.load(tmp_path / "label.npy").shape == (7,)
