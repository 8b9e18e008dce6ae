"""Puts the site together: a page a notebook, an index by module, and what they share."""

from __future__ import annotations

import re
import shutil
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import plotly.io as pio
from nbformat import NotebookNode
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter

from labkit import __version__
from labkit.course.notebook_file import read_notebook
from labkit.course.site.render import Body, render, search_entries
from labkit.errors import UserError
from labkit.plots.theme import in_the_dark
from labkit.report.page import json_for_html

MODULES = {
    "0": "Start",
    "1": "Recommendation models",
    "2": "Speech recognition",
    "3": "Monitoring and profiling",
    "4": "Sharing a device",
    "5": "Time, cost and energy",
    "6": "Performance models",
    "7": "Other workloads",
    "8": "Electives",
    "9": "Capstone",
}
"""The first digit of a notebook's number is its module."""

CODE_STYLES = {"light": "xcode", "dark": "github-dark"}


def build_site(executed: Path, out: Path) -> Path:
    """Make the site from a folder of executed notebooks.

    Args:
        executed: holds executed notebooks, as `labkit course run` leaves them.
        out: the folder to make; files of an older site in it are replaced.

    Returns:
        The path of the index.

    Raises:
        UserError: there are no executed notebooks.
    """
    paths = sorted(executed.glob("*.ipynb"))
    if not paths:
        raise UserError(
            f"{executed}: there are no executed notebooks: make them with `labkit course run --out {executed}`."
        )
    notebooks = {path.stem: read_notebook(path) for path in paths}
    bodies = {stem: render(notebook, pages=set(notebooks)) for stem, notebook in notebooks.items()}
    assets = out / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    folder = files("labkit.course.site")
    template = Template(folder.joinpath("page.html").read_text(encoding="utf-8"))
    stems = list(bodies)
    for number, (stem, body) in enumerate(bodies.items()):
        neighbours = [stems[at] if 0 <= at < len(stems) else None for at in (number - 1, number + 1)]
        page = template.substitute(
            title=f"{escape(body.title)} · labkit",
            version=escape(__version__),
            contents=_contents(body),
            main=f"<article>{_about(notebooks[stem])}{body.html}</article>{_neighbours(bodies, *neighbours)}",
            plotly='<script src="assets/plotly.min.js"></script>' if 'class="plot"' in body.html else "",
        )
        (out / f"{stem}.html").write_text(page, encoding="utf-8")
    index = out / "index.html"
    index.write_text(
        template.substitute(
            title="The cost of training · labkit",
            version=escape(__version__),
            contents="",
            main=_index(bodies),
            plotly="",
        ),
        encoding="utf-8",
    )
    entries = [entry for stem, body in bodies.items() for entry in search_entries(f"{stem}.html", body)]
    data = {
        "search": entries,
        "themes": {name: _theme(f"labkit_{name}") for name in CODE_STYLES},
        "dark": in_the_dark(),
    }
    # as a script, not as JSON: a page opened from a file may load the one and not the other
    (assets / "data.js").write_text(f"window.labkitSite = {json_for_html(data)};\n", encoding="utf-8")
    (assets / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    (assets / "site.css").write_text(
        folder.joinpath("site.css").read_text(encoding="utf-8") + _code_css(), encoding="utf-8"
    )
    with folder.joinpath("site.js").open("rb") as source, (assets / "site.js").open("wb") as target:
        shutil.copyfileobj(source, target)
    return index


def _contents(body: Body) -> str:
    items = "".join(
        f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>'
        for section in body.sections
        if section.level == 2
    )
    return f'<nav class="contents" aria-label="On this page"><p>On this page</p><ul>{items}</ul></nav>' if items else ""


def _about(notebook: NotebookNode) -> str:
    """When and how long the notebook ran, as papermill noted it."""
    run = notebook.metadata.get("papermill", {})
    if not run.get("end_time"):
        return ""
    profile = run.get("parameters", {}).get("profile", "standard")
    return (
        f'<p class="about">Executed on {escape(str(run["end_time"])[:10])} with profile {escape(str(profile))}, '
        f"in {run['duration']:.0f} s. The numbers below are of that machine; yours will differ.</p>"
    )


def _neighbours(bodies: dict[str, Body], before: str | None, after: str | None) -> str:
    links = []
    for stem, words in ((before, "Before"), (after, "Next")):
        if stem is not None:
            links.append(f'<a href="{stem}.html"><span>{words}</span> {escape(bodies[stem].title)}</a>')
    return f'<nav class="neighbours" aria-label="Other notebooks">{"".join(links)}</nav>'


def _index(bodies: dict[str, Body]) -> str:
    modules: dict[str, list[str]] = {}
    for stem, body in bodies.items():
        goals = re.search(r"<ul>.*?</ul>", body.html, re.DOTALL)
        card = (
            f'<li><h3><a href="{stem}.html">{escape(body.title)}</a></h3>'
            f'<p class="number">Notebook {escape(stem[:2])}</p>{goals[0] if goals else ""}</li>'
        )
        modules.setdefault(stem[0], []).append(card)
    sections = "".join(
        f"<section><h2>{escape(MODULES.get(digit, 'More'))}</h2><ul class='cards'>{''.join(cards)}</ul></section>"
        for digit, cards in modules.items()
    )
    return (
        "<h1>The cost of training</h1>"
        '<p class="lead">What does it cost to reach this accuracy, on this hardware, run this way? Notebooks that '
        f"answer with numbers from your own machine.</p>{sections}"
    )


def _theme(template: str) -> dict:
    return pio.templates[template].to_plotly_json()


def _code_css() -> str:
    light, dark = (HtmlFormatter(style=style).get_style_defs("") for style in CODE_STYLES.values())
    return (
        f"\n.highlight {{{light}}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) .highlight {{{dark}}} }}\n"
        f":root[data-theme=dark] .highlight {{{dark}}}\n"
    )
