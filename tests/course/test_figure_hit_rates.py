"""The figure of hit rates: a panel a skew, a line a policy and source, with what is measured told from the rest."""

import pandas as pd

from labkit.placement import hit_rates
from labkit.plots.descriptions import describe
from labkit_course.apparatus import figure_hit_rates


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
