"""A figure shown in a notebook cannot be uploaded from its toolbar, and is described in words."""

from __future__ import annotations

import subprocess
import sys

import plotly.graph_objects as go

from labkit.plots.show import show


def test_show_is_offline_and_describes(monkeypatch, capsys):
    configs = []
    monkeypatch.setattr(go.Figure, "show", lambda figure, config: configs.append(config))
    show(go.Figure(go.Bar(x=["a", "b"], y=[1, 3], name="time · measured")))
    assert configs[0]["plotlyServerURL"] == ""
    assert "sendChartToCloud" in configs[0]["modeBarButtonsToRemove"]
    assert "Bar chart" in capsys.readouterr().out


def test_the_grammar_of_addresses_is_not_compiled_and_can_still_be_imported():
    program = (
        "import sys\nfrom labkit.widgets.live_figure import live_figure\n"
        "live_figure()\n"
        "assert 'nbformat' in sys.modules and 'rfc3987_syntax' not in sys.modules\n"
        "import rfc3987_syntax"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
