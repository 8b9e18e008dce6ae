"""A figure's description in words and as a table, how it is shown, and the colours that it may have."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from labkit.plots.descriptions import SHOWN_ROWS, describe, show, thinned
from labkit.plots.theme import BACKGROUNDS, INK, PALETTES, encoding

OKABE_ITO = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}


def contrast(first: str, second: str) -> float:
    """WCAG 2.2's contrast of two #rrggbb colours, 1 to 21."""

    def luminance(color: str) -> float:
        channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_table_has_every_point_under_the_axes_titles_but_no_decoration():
    figure = go.Figure(go.Scatter(x=[1, 2], y=[0.5, 0.7], name="one-core · measured"))
    figure.add_scatter(x=[1], y=[0.6], name="one-core · measured")
    figure.add_scatter(x=[0], y=[9], name="band", hoverinfo="skip")
    figure.update_xaxes(title_text="Time (s)").update_yaxes(title_text="AUC")
    assert describe(figure).table.to_dict("list") == {
        "series": ["one-core · measured", "one-core · measured", "one-core · measured (2)"],
        "Time (s)": [1, 2, 1],
        "AUC": [0.5, 0.7, 0.6],
    }


def test_panels_have_their_own_axes():
    figure = make_subplots(cols=2)
    figure.add_scatter(x=[1], y=[2], name="left", row=1, col=1).add_scatter(x=[1], y=[3], name="right", row=1, col=2)
    figure.update_yaxes(title_text="AUC", col=1).update_yaxes(title_text="Memory (GiB)", col=2)
    description = describe(figure)
    assert description.table["Memory (GiB)"].tolist()[1:] == [3]
    assert "Line chart in 2 panels. Panel 1. Horizontal axis from 1 to 1. Vertical axis: AUC," in str(description)


def test_long_series_are_thinned_in_the_notebook_only():
    figure = go.Figure(go.Scatter(x=list(range(500)), y=list(range(500)), name="<b>long</b>"))
    description = describe(figure)
    html = description._repr_mimebundle_()["text/html"]
    assert len(description.table) == 500
    assert html.count("<tr>") == SHOWN_ROWS and "(12 of 500 rows)" in html and ">499<" in html
    assert "<b>long" not in html
    assert thinned(pd.DataFrame({"x": np.arange(101)}), 5)["x"].tolist() == [0, 25, 50, 75, 100]


def test_show_is_offline_and_describes(monkeypatch, capsys):
    configs = []
    monkeypatch.setattr(go.Figure, "show", lambda figure, config: configs.append(config))
    show(go.Figure(go.Bar(x=["a", "b"], y=[1, 3], name="time · measured")))
    assert configs[0]["plotlyServerURL"] == ""
    assert "sendChartToCloud" in configs[0]["modeBarButtonsToRemove"]
    assert "Bar chart" in capsys.readouterr().out


@pytest.mark.parametrize("template", PALETTES)
def test_every_colour_is_okabe_and_ito_and_reaches_3_to_1_on_its_background_and_text_7_to_1(template):
    for color in PALETTES[template]:
        assert color in OKABE_ITO
        # the ratio as WCAG tools print it, with two decimals: #CC79A7 on white is 3.00
        assert round(contrast(color, BACKGROUNDS[template]), 2) >= 3
    assert contrast(INK[template], BACKGROUNDS[template]) >= 7


def test_thirty_series_all_look_different_and_the_first_five_without_colour():
    looks = [encoding(index) for index in range(30)]
    assert len({(look.color, look.dash, look.marker) for look in looks}) == 30
    assert len({(look.dash, look.marker) for look in looks[:5]}) == 5
