import pandas as pd

from labkit.plots.describe import describe
from labkit.plots.utilisation import figure_busy, figure_kernel_shapes

BUSY = pd.DataFrame(
    {
        "load": ["chase", "product"],
        "cpu_percent": [99.0, 98.0],
        "share_of_peak": [0.0, 90.0],
        "share_of_bandwidth": [1.0, 20.0],
        "provenance": "measured",
    }
)
SHAPES = pd.DataFrame(
    {
        "blocks": [1, 131072],
        "threads": [1, 1024],
        "gpu_utilisation": [91.0, 100.0],
        "sm_active": [0.2, 99.5],
        "sm_occupancy": [0.0, 78.2],
        "provenance": "published, somewhere",
    }
)


def test_each_load_has_a_bar_for_its_utilisation_and_for_its_work():
    figure = figure_busy(BUSY)
    assert [list(trace.y) for trace in figure.data] == [[99, 98], [0, 90], [1, 20]]
    assert all(trace.name.endswith("· measured") for trace in figure.data)
    assert figure.layout.yaxis.title.text == "Share (%)"
    assert "chase 0 % of the arithmetic and 1 % of the bandwidth" in str(describe(figure))


def test_bars_are_told_apart_by_more_than_colour():
    for figure in (figure_busy(BUSY), figure_kernel_shapes(SHAPES)):
        assert len({trace.marker.pattern.shape for trace in figure.data}) == len(figure.data)
        assert len({trace.marker.color for trace in figure.data}) == len(figure.data)


def test_the_shapes_of_a_kernel_name_their_source():
    figure = figure_kernel_shapes(SHAPES)
    assert list(figure.data[0].x) == ["1 × 1", "131,072 × 1,024"]
    assert all(trace.name.endswith("· published, somewhere") for trace in figure.data)
    assert "With 1 × 1 the utilisation is 91 %, and 0.2 %" in str(describe(figure))
