"""The figure of hit rates: a panel a skew, a line a policy and source, with what is measured told from the rest."""

import numpy as np
import pandas as pd
import pytest

from labkit.plots.descriptions import describe
from labkit_course.apparatus import figure_hit_rates, hit_rates, simulate_hit_rate
from labkit_course.apparatus.cache_hit_rates import expected_hit_rate, zipf_bound


def test_each_skew_has_a_panel_with_a_line_a_policy_and_source():
    rates = hit_rates((0.0, 1.1), (0.01, 0.1), num_rows=500, lookups=64, batches=5)
    own = rates[(rates["source"] == "simulated") & (rates["policy"] == "lru")]
    figure = figure_hit_rates(pd.concat([rates, own.assign(source="measured")]))
    drawn = {(trace.name, trace.yaxis): list(trace.y) for trace in figure.data}
    assert set(drawn) == {
        ("LRU cache, simulated · predicted", "y"), ("LRU cache, simulated · predicted", "y2"),
        ("LFU cache, simulated · predicted", "y"), ("LFU cache, simulated · predicted", "y2"),
        ("the most popular rows · predicted", "y"), ("the most popular rows · predicted", "y2"),
        ("LRU cache, rows moved · measured", "y"), ("LRU cache, rows moved · measured", "y2"),
        ("heuristic for uniform rows · predicted", "y"),
    }  # fmt: skip
    skewed = own[own["zipf_exponent"] == 1.1]
    assert drawn["LRU cache, rows moved · measured", "y2"] == list(skewed["hit_rate"])
    assert [figure.layout[axis].title.text for axis in ("yaxis", "yaxis2")] == [
        "Hit rate, Zipf 0",
        "Hit rate, Zipf 1.1",
    ]
    assert sum(trace.showlegend for trace in figure.data) == 5
    best = rates.loc[rates["policy"].notna() & (rates["zipf_exponent"] == 1.1), "hit_rate"].max()
    assert f"{best:.4g} at Zipf exponent 1.1" in describe(figure).text


def test_the_hit_rate_of_a_large_cache_is_one_less_each_row_once():
    assert simulate_hit_rate([np.array([1, 1, 2]), np.array([2, 2, 7])], 10, 10) == pytest.approx(1 - 3 / 6)


def test_the_heuristic_by_hand():
    # E 4, BL 2: U = 4 (1 - (3/4)^2) = 1.75; with room for both, 1 - 1.75/2; with X = 1, 1 - (1 + 1 * 3/4) / 2
    assert expected_hit_rate(4, 2, 4) == pytest.approx(0.125)
    assert expected_hit_rate(4, 2, 1) == pytest.approx(0.125)
    assert expected_hit_rate(100, 50, 10) == pytest.approx(1 - (10 + 40 * 90 / 100) / 50)


def test_single_lookups_come_near_the_bound_and_never_pass_it():
    frame = hit_rates([0.0, 1.1], [0.1, 0.5], num_rows=400, lookups=1, batches=4000).set_index(
        ["zipf_exponent", "cache_share", "policy", "source"]
    )["hit_rate"]
    for exponent in (0.0, 1.1):
        for share in (0.1, 0.5):
            bound = zipf_bound(400, exponent, round(400 * share))
            lru, lfu = (frame[exponent, share, policy, "simulated"] for policy in ("lru", "lfu"))
            # of 4000 draws the rate varies by sqrt(1/4 / 4000) = 0.008; four times that
            assert max(lru, lfu) < bound + 0.032
            assert lfu > (bound - 0.08 if exponent else bound - 0.032)
            assert lru > bound - 0.2
    assert frame[1.1, 0.1, "lfu", "simulated"] > frame[1.1, 0.1, "lru", "simulated"]
    assert set(frame.index.get_level_values("source")) == {"simulated", "bound", "heuristic"}
