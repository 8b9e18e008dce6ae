"""Which tiers hold which preset's tables."""

import pytest

from labkit.errors import UserError
from labkit.hardware import get_tier
from labkit.perfmodel.table_plan import PUBLISHED_ROWS, presets_and_tiers, table_bytes, tiers_that_hold


def held_by(frame, **where):
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame.set_index("tier")["holds"].to_dict()


def test_mlperfs_tables_outgrow_every_gpu_but_the_largest_and_fit_a_server_of_eight():
    frame = presets_and_tiers()
    mlperf = frame[(frame["preset"] == "mlperf-v1") & (frame["optimiser"] == "sgd")]
    # 187,767,399 rows of 128 numbers of 4 bytes
    assert mlperf["needed_gb"].unique() == pytest.approx(96.1369, abs=1e-4)
    alone = held_by(mlperf, kind="gpu", memory="one device")
    assert [tier for tier, holds in alone.items() if holds] == ["h200"]
    assert held_by(mlperf, tier="big-basin", memory="one device") == {"big-basin": False}
    assert held_by(mlperf, tier="big-basin", memory="all devices") == {"big-basin": True}
    assert not any(held_by(tiers_that_hold(129e9), tier="big-basin").values())


def test_what_the_catalogue_does_not_know_is_not_said():
    frame = tiers_that_hold(1e9)
    unknown = frame[frame["capacity_gb"].isna()]
    assert {"zion", "big-basin"} <= set(unknown["tier"])
    assert unknown["holds"].isna().all() and frame.loc[~frame["capacity_gb"].isna(), "holds"].notna().all()
    assert get_tier("zion").devices == 8 and get_tier("zion").host_memory_gb is None


def test_an_optimisers_state_counts_as_the_optimiser_keeps_it():
    rows = PUBLISHED_ROWS["kaggle"]
    tables = table_bytes(rows, 16)
    assert table_bytes(rows, 16, "rowwise-adagrad") == tables + 4 * sum(rows)
    assert [table_bytes(rows, 16, each) for each in ("adagrad", "adam")] == [2 * tables, 3 * tables]


def test_a_wrong_question_is_refused():
    with pytest.raises(UserError, match="rowwise-adagrad"):
        table_bytes([10], 4, "rmsprop")
    with pytest.raises(UserError, match="above 0"):
        tiers_that_hold(0)
