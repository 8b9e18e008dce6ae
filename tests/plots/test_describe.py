"""A figure's description has the points themselves, as a table."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.plots.describe import SHOWN_ROWS, describe, thinned


def test_the_table_has_every_point_under_the_axes_titles():
    figure = go.Figure(go.Scatter(x=[1, 2], y=[0.5, 0.7], name="one-core · measured"))
    figure.add_scatter(x=[1], y=[0.6], name="one-core · measured")
    figure.update_xaxes(title_text="Time (s)").update_yaxes(title_text="AUC")
    assert describe(figure).table.to_dict("list") == {
        "series": ["one-core · measured", "one-core · measured", "one-core · measured (2)"],
        "Time (s)": [1, 2, 1],
        "AUC": [0.5, 0.7, 0.6],
    }


def test_decoration_is_not_in_the_table():
    figure = go.Figure(go.Scatter(x=[1], y=[2], name="a"))
    figure.add_scatter(x=[0], y=[9], name="band", hoverinfo="skip")
    assert describe(figure).table["series"].tolist() == ["a"]


def test_a_heat_map_becomes_a_row_a_column():
    figure = go.Figure(go.Heatmap(x=[10, 20], z=[[1, 2], [3, 6]], name="energy"))
    assert describe(figure).table.to_dict("list") == {
        "series": ["energy", "energy"], "x": [10, 20], "mean": [2.0, 4.0], "least": [1.0, 2.0], "greatest": [3.0, 6.0],
    }  # fmt: skip


def test_panels_have_their_own_axes():
    figure = make_subplots(cols=2)
    figure.add_scatter(x=[1], y=[2], name="left", row=1, col=1).add_scatter(x=[1], y=[3], name="right", row=1, col=2)
    figure.update_yaxes(title_text="AUC", col=1).update_yaxes(title_text="Memory (GiB)", col=2)
    table = describe(figure).table
    assert table.loc[table["series"] == "right", "Memory (GiB)"].tolist() == [3]


def test_long_series_are_thinned_in_the_notebook_only():
    figure = go.Figure(go.Scatter(x=list(range(500)), y=list(range(500)), name="<b>long</b>"))
    description = describe(figure)
    html = description._repr_mimebundle_()["text/html"]
    assert len(description.table) == 500
    assert html.count("<tr>") == SHOWN_ROWS and "(12 of 500 rows)" in html and ">499<" in html
    assert "<b>long" not in html


def test_thinning_keeps_the_first_and_the_last():
    rows = thinned(pd.DataFrame({"x": np.arange(101)}), 5)
    assert rows["x"].tolist() == [0, 25, 50, 75, 100]


def test_an_empty_figure_has_words_and_no_table():
    description = describe(go.Figure())
    assert str(description).startswith("Empty chart")
    assert description.table.empty and "<details>" not in description._repr_mimebundle_()["text/html"]
