"""Where tables fit, and how fast they are there."""

import shutil
from unittest import mock

import pytest

from labkit.cli.whatif import read_tables
from labkit.errors import UserError
from labkit.perfmodel import table_plan
from labkit.perfmodel.table_plan import TableShape, plan_tables

SMALL = TableShape((3000, 5000), 16, batch_size=64)
MIB = 2**20


def fits(shape: TableShape, memory: int, folder) -> dict[str, bool]:
    with mock.patch.object(table_plan, "_try"):
        plan = plan_tables(shape, memory, folder)
    return dict(zip(plan["placement"], plan["fits"], strict=True))


def test_a_plan_without_a_trial_is_arithmetic(tmp_path):
    everywhere = {"device": True, "host": True, "cached": True, "cached over disk": True, "disk": True, "remote": True}
    large = TableShape((1_000_000,), 64)  # 256 MB
    assert fits(large, 600 * MIB, tmp_path) == everywhere
    assert fits(large, 250 * MIB, tmp_path) == everywhere | {"cached": False}, "its slots come on top of the rows"
    assert [name for name, there in fits(large, 100 * MIB, tmp_path).items() if there] == ["cached over disk", "disk"]


def test_an_optimisers_state_and_a_batch_count(tmp_path):
    assert not fits(TableShape((1_000_000,), 64, optimiser="adam"), 600 * MIB, tmp_path)["device"]
    shape = TableShape((1000,) * 26, 64, batch_size=100_000)
    assert shape.batch_bytes == 4 * 100_000 * 26 * (1 + 2 * 64)
    with pytest.raises(UserError, match="a smaller --batch-size"):
        plan_tables(shape, 1024 * MIB, tmp_path)


def test_each_place_that_fits_is_tried_and_the_fastest_comes_first(tmp_path):
    plan = plan_tables(SMALL, 64 * MIB, tmp_path)
    assert plan["fits"].all() and (plan["step_ms"] > 0).all()
    assert plan["step_ms"].is_monotonic_increasing
    assert plan.set_index("placement").loc["device", "of_device"] == 1
    assert plan["trial_rows"].unique() == [8000], "they are small enough to be tried whole"
    assert not list(tmp_path.iterdir()), "table files go with their trial"


def test_large_tables_are_cut_for_the_trial():
    shape = TableShape((10**9, 10, 1), 64)
    small = shape.cut(MIB)
    assert 0.9 * MIB < small.bytes <= 1.1 * MIB
    assert small.num_rows[1:] == (1, 1), "no table is left without a row"
    assert (small.embedding_dim, small.batch_size) == (shape.embedding_dim, shape.batch_size)
    wide = TableShape((10,) * 64, 8, pooling_factor=128, batch_size=65_536).cut(16 * MIB)
    assert wide.num_rows == (10,) * 64 and 4 * table_plan.STEPS * wide.batch_size * 64 * 128 <= 16 * MIB


def test_tables_that_fit_nowhere_are_refused_with_what_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(table_plan.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 9, 5 * MIB))
    with pytest.raises(UserError, match=r"fit nowhere here: 64 MiB of memory, and 5 MiB are free"):
        plan_tables(TableShape((10_000_000,), 64), 64 * MIB, tmp_path)


def test_the_command_prints_a_plan_and_the_training_it_leads_to(tmp_path, cli):
    said = cli("plan dlrm --tables 2x4000 --memory 64MiB --table-dir", tmp_path).out
    assert "2,048 samples each, with 8,000 rows." in " ".join(said.split())
    assert "labkit train dlrm --placement" in said
    told = cli("plan dlrm --tables 4000 --memory 64MiB --table-dir", tmp_path, "--json").json
    assert {"placement", "fits", "step_ms", "why"} <= set(told[0])


def test_rows_are_read_as_people_write_them():
    assert read_tables("2x1e3, 5") == (1000, 1000, 5)
