import pandas as pd

from labkit.plots.describe import describe
from labkit.plots.observer_effect import figure_observer_effect

EFFECTS = pd.DataFrame(
    {
        "observer": ["sampler", "profiler", "nsys"],
        "ratio": [1.0, 1.2, 1.02],
        "low": [0.98, 1.15, 0.99],
        "high": [1.02, 1.25, 1.03],
        "load": ["light", "light", "MNIST"],
        "provenance": ["measured", "measured", "published, somewhere"],
    }
)


def test_each_observer_has_a_mark_and_an_interval_and_names_its_source():
    figure = figure_observer_effect(EFFECTS)
    assert [trace.name for trace in figure.data] == ["light · measured", "MNIST · published, somewhere"]
    own = figure.data[0]
    assert list(own.y) == ["sampler", "profiler"] and list(own.x) == [1.0, 1.2]
    assert list(own.error_x.array.round(3)) == [0.02, 0.05] and list(own.error_x.arrayminus.round(3)) == [0.02, 0.05]
    assert "ratio" in figure.layout.xaxis.title.text
    assert "profiler costs the most: 1.20 times as long on the light load; 2 of 3 intervals" in str(describe(figure))
