"""The interactive view of a profile: where its steps go, what calls what, what ran when, rooflines and memory."""

from __future__ import annotations

from html import escape
from pathlib import Path

import ipywidgets as widgets
import plotly.graph_objects as go

from labkit import profiling, report
from labkit.widgets.figure_views import FigureView, PictureButton

SHOWN_OPERATORS = 12


def profile_view(run: Path | str | profiling.Profile) -> ProfileView:
    """Look at a profiled run.

    Args:
        run: its folder, or its profile where that is read already.

    Returns:
        A widget; its `figure` is a plain figure of what is shown.

    Raises:
        UserError: the run was not profiled.
    """
    return ProfileView(run if isinstance(run, profiling.Profile) else profiling.read_profile(run))


class ProfileView(FigureView):
    """What to try, a choice of views, the figure with its description, and the most expensive operators."""

    def __init__(self, profile: profiling.Profile):
        super().__init__()
        self.profile = profile
        self.view = widgets.ToggleButtons(
            options=[(view.title, view) for view in report.VIEWS],
            description="View",
            tooltips=[view.about for view in report.VIEWS],
            style={"button_width": "auto"},
        )
        tries = "".join(f"<li>{line}</li>" for line in report.what_to_try(profile))
        self.answer = widgets.HTML(f"<p>{escape(profile.headline)}</p><ul>{tries}</ul>")
        self.about, self.code = widgets.HTML(), widgets.HTML()
        # whose names are row headers
        table = report.operator_texts(profile.operators.head(SHOWN_OPERATORS)).set_index("operator").rename_axis(None)
        most_expensive = widgets.HTML(table.to_html(border=0))
        operators = widgets.Accordion([most_expensive], titles=[f"The {SHOWN_OPERATORS} most expensive operators"])
        self.view.observe(lambda _: self._show(), names="value")
        self._show()
        self.children = [
            self.answer, self.view, self.about, self.plot, self.words, PictureButton(), operators, self.code,
        ]  # fmt: skip

    def _show(self) -> None:
        view = self.view.value
        why = view.missing(self.profile)
        self.draw(go.Figure() if why else view.draw(self.profile))
        if why:
            self.words.value = ""
        self.about.value = f"<p role='status'>{escape(why or view.about)}</p>"
        self.code.value = (
            f"<p>The same in code: <code>profile = labkit.profiling.read_profile({str(self.profile.folder)!r}); "
            f"labkit.plots.show({escape(view.code)})</code></p>"
        )
