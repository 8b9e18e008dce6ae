"""A static site of the executed notebooks, which works from a file, without a network: nbconvert with our templates."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import plotly.io as pio
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter

from labkit import __version__
from labkit.errors import UserError
from labkit.plots import MIME as PLOTLY, in_the_dark
from labkit.report import json_for_html
from labkit.runs import replace_text
from labkit_course.notebook_file import read_notebook

PAGES = Path(__file__).parent / "pages"
SHOWN = [PLOTLY, "text/html", "text/markdown", "image/png", "text/plain"]
"""The types of outputs that a page can show, the richest first."""
CODE_STYLES = {"light": "xcode", "dark": "github-dark"}


def build_site(executed: Path, out: Path) -> Path:
    """Make the site of the executed notebooks in a folder, as `labkit course run` leaves them; return its index.

    Raises:
        UserError: there are no executed notebooks.
    """
    notebooks = {path.stem: read_notebook(path) for path in sorted(executed.glob("*.ipynb"))}
    if not notebooks:
        raise UserError(
            f"{executed}: there are no executed notebooks: make them with `labkit course run --out {executed}`."
        )
    exporter = HTMLExporter(template_file=str(PAGES / "notebook.html.j2"))
    exporter.config.NbConvertBase.display_data_priority = SHOWN
    # of pandas' HTML, the attributes that HTML no longer has, and a style of its own
    odd = re.compile(r' (border="1"|style="text-align: right;")|<style scoped>.*?</style>', re.DOTALL)
    exporter.register_filter("tidied", lambda html: odd.sub("", html))
    exporter.register_filter("json_for_html", json_for_html)
    pages = [_page(stem, notebook, set(notebooks), exporter) for stem, notebook in notebooks.items()]
    template = exporter.environment.get_template("page.html.j2")
    assets = out / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    for before, page, after in zip([None, *pages], pages, [*pages[1:], None], strict=False):
        html = template.render(page=page, before=before, after=after, version=__version__)
        replace_text(out / f"{page['stem']}.html", html)
    index = out / "index.html"
    replace_text(index, template.render(pages=pages, version=__version__))
    themes = {name: pio.templates[f"labkit_{name}"].to_plotly_json() for name in CODE_STYLES}
    # as a script, not as JSON: a page opened from a file may load the one and not the other
    data = f"window.labkitSite = {json_for_html({'themes': themes, 'dark': in_the_dark()})};\n"
    replace_text(assets / "data.js", data)
    replace_text(assets / "plotly.min.js", get_plotlyjs())
    shutil.copy(PAGES / "site.js", assets)
    css = (PAGES / "site.css").read_text(encoding="utf-8") + _code_css()
    replace_text(assets / "site.css", css)
    return index


def _page(stem: str, notebook: NotebookNode, stems: set[str], exporter: HTMLExporter) -> dict[str, Any]:
    """What the template of a page shows of one notebook."""

    def link(match: re.Match) -> str:
        return f"[{match[1]}]({match[2]}.html)" if match[2] in stems else match[1]

    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # badges lead out of this site, and need a network
            cell.source = re.sub(r"\[!\[[^]]*\]\([^)]*badge[^)]*\)\]\([^)]*\)", "", cell.source)
            cell.source = re.sub(r"\[([^]]*)\]\(([\w-]+)\.ipynb\)", link, cell.source)
    body, _ = exporter.from_notebook_node(notebook)
    headings = re.findall(r'<h([12]) id="(.*?)">(.*?)<a class="anchor-link"', body)
    goals = re.search(r"<ul>.*?</ul>", body, re.DOTALL)
    return {
        "stem": stem,
        "title": next((re.sub(r"<[^>]+>", "", title) for level, _, title in headings if level == "1"), "Notebook"),
        "contents": [(anchor, title) for level, anchor, title in headings if level == "2"],
        "body": re.sub(r'<a class="anchor-link".*?</a>', "", body),
        "goals": goals[0] if goals else "",
        "run": notebook.metadata.get("papermill", {}),
    }


def _code_css() -> str:
    light, dark = (HtmlFormatter(style=style).get_style_defs("") for style in CODE_STYLES.values())
    return (
        f"\n.highlight {{{light}}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) .highlight {{{dark}}} }}\n"
        f":root[data-theme=dark] .highlight {{{dark}}}\n"
    )
