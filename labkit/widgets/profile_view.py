"""The interactive view of a profile: where its steps go, what calls what, what ran when, rooflines and memory."""

from __future__ import annotations

from html import escape
from pathlib import Path

import ipywidgets as widgets
import plotly.graph_objects as go

from labkit.plots.words import rate_text
from labkit.profiling.profile import Profile, read_profile
from labkit.report.profile_views import VIEWS, finding_html
from labkit.widgets.figures import FigureView, PictureButton

SHOWN_OPERATORS = 12


def profile_view(run: Path | str | Profile, *, template: str = "labkit_light") -> ProfileView:
    """Look at a profiled run.

    Args:
        run: its folder, or its profile where that is read already.
        template: "labkit_light" or "labkit_dark".

    Returns:
        A widget; its `figure` is a plain figure of what is shown.

    Raises:
        UserError: the run was not profiled.
    """
    return ProfileView(run if isinstance(run, Profile) else read_profile(run), template)


class ProfileView(FigureView):
    """What to try, a choice of views, the figure with its words, and the dearest operators."""

    def __init__(self, profile: Profile, template: str = "labkit_light"):
        super().__init__(template)
        self.profile = profile
        self.view = widgets.ToggleButtons(
            options=[(view.title, view) for view in VIEWS],
            description="View",
            tooltips=[view.about for view in VIEWS],
            style={"button_width": "auto"},
        )
        self.answer, self.about, self.code = widgets.HTML(_answer(profile)), widgets.HTML(), widgets.HTML()
        operators = widgets.Accordion(
            [widgets.HTML(_operators(profile))], titles=[f"The {SHOWN_OPERATORS} dearest operators"]
        )
        self.view.observe(lambda _: self._show(), names="value")
        self._show()
        self.children = [
            self.answer, self.view, self.about, self.plot, self.words, PictureButton(), operators, self.code,
        ]  # fmt: skip

    def _show(self) -> None:
        view = self.view.value
        why = view.missing(self.profile)
        self.draw(go.Figure() if why else view.draw(self.profile, self.template))
        if why:
            self.words.value = ""
        self.about.value = f"<p role='status'>{escape(why or view.about)}</p>"
        self.code.value = (
            f"<p>The same in code: <code>profile = read_profile({str(self.profile.folder)!r}); "
            f"show({escape(view.code)})</code></p>"
        )


def _answer(profile: Profile) -> str:
    lines = [f"<li>{finding_html(finding)}</li>" for finding in profile.findings]
    tries = f"<ol>{''.join(lines)}</ol>" if lines else "<p>Nothing worth more than 5 % of the step was found.</p>"
    return f"<p>{escape(profile.headline)}</p>{tries}"


def _operators(profile: Profile) -> str:
    heads = "".join(f"<th scope='col'>{head}</th>" for head in ("operator", "calls", "ms", "share", "GFLOP/s", "GB/s"))
    rows = "".join(
        f"<tr><td>{escape(row.operator)}</td><td>{row.calls:,.0f}</td><td>{row.self_us / 1e3:.3f}</td>"
        f"<td>{row.share:.1%}</td><td>{rate_text(row.gflop_per_s)}</td><td>{rate_text(row.gb_per_s)}</td></tr>"
        for row in profile.operators.head(SHOWN_OPERATORS).itertuples()
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
