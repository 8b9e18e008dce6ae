import pandas as pd

from labkit.plots.budget_shares import figure_budget_shares
from labkit.plots.describe import describe

SHARES = pd.DataFrame(
    [
        ("one-core", "arithmetic", 60.0, "emulated"),
        ("one-core", "arithmetic", 50.0, "predicted"),
        ("one-core", "bandwidth", 90.0, "emulated"),
        ("jetson-nano-like", "arithmetic", 99.0, "emulated"),
        ("jetson-nano-like", "bandwidth", 97.0, "emulated"),
        ("jetson-nano-like", "bandwidth", 64.0, "predicted"),
    ],
    columns=["budget", "quantity", "share", "provenance"],
)


def test_found_and_predicted_shares_stand_side_by_side():
    figure = figure_budget_shares(SHARES)
    bars = {trace.name: dict(zip(trace.x, trace.y, strict=True)) for trace in figure.data}
    assert bars == {
        "arithmetic · emulated": {"one-core": 60, "jetson-nano-like": 99},
        "arithmetic · predicted": {"one-core": 50},
        "bandwidth · emulated": {"one-core": 90, "jetson-nano-like": 97},
        "bandwidth · predicted": {"jetson-nano-like": 64},
    }
    assert figure.layout.yaxis.title.text == "Of the whole device (%)"


def test_bars_differ_in_colour_by_quantity_and_in_pattern_each():
    looks = {
        trace.name: (trace.marker.color, trace.marker.pattern.shape) for trace in figure_budget_shares(SHARES).data
    }
    assert len(set(looks.values())) == 4
    assert len({pattern for _, pattern in looks.values()}) == 4
    assert looks["arithmetic · emulated"][0] == looks["arithmetic · predicted"][0]


def test_the_description_tells_what_was_found():
    said = str(describe(figure_budget_shares(SHARES)))
    assert "one-core: 60 % of the arithmetic and 90 % of the bandwidth" in said
