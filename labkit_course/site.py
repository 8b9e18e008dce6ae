"""A static site of the notebooks, which works from files, without a network: nbconvert's own pages."""

import re
from html import escape
from pathlib import Path
from typing import Any

import nh3
import plotly.io as pio
from jinja2 import FileSystemLoader, pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbformat import NotebookNode, v4
from plotly.offline import get_plotlyjs

from labkit.errors import UserError
from labkit.plots import MIME as PLOTLY
from labkit.runs import replace_text
from labkit_course.build import exercise_version
from labkit_course.drawing import DRAWINGS
from labkit_course.exercise import Explanation
from labkit_course.lab import all_exercises
from labkit_course.notebook_file import code_cells, read_notebook

PAGES = Path(__file__).with_name("pages")
"""What pages and slides have instead of blocks of nbconvert's templates"""
DRAWN = (
    "svg g path rect circle ellipse line polyline polygon text tspan defs marker title desc use "
    "math mi mn mo mtext mrow msub msup msubsup mfrac msqrt mroot mover munder munderover mtable mtr mtd mspace mstyle"
)
"""Elements of drawings and of formulas, which pages may have besides those of text"""
DRAWN_BY = (
    "class id role style open viewBox width height x y x1 y1 x2 y2 cx cy r rx ry d points transform fill fill-opacity "
    "stroke stroke-width stroke-dasharray opacity font-size font-family font-weight text-anchor dominant-baseline "
    "marker-end marker-start markerWidth markerHeight refX refY orient xmlns display mathvariant stretchy"
)
"""Their attributes"""
FORMULA = re.compile(r"(`[^`]*`)|\$\$(.+?)\$\$|\$(?!\s)([^$\n`]+?)(?<!\s)\$", re.DOTALL)
"""LaTeX in Markdown; code is matched first, for its dollars mean none"""


class Pages(HTMLExporter):
    """nbconvert's pages, without anything that runs or comes from the network."""

    page = "page.html.j2"

    def __init__(self) -> None:
        super().__init__(template_file=self.page, extra_loaders=[FileSystemLoader(PAGES)])
        self.exclude_anchor_links = self.exclude_input_prompt = self.exclude_output_prompt = True

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        return _clean(super().markdown2html(context, source))


def _clean(html: str) -> str:
    """HTML that runs nothing: a notebook may come from anyone."""
    html = re.sub(r"(?i)@import|url\s*\((?!\s*['\"]?#)", "", html)  # of style sheets, which would load something
    attributes = nh3.ALLOWED_ATTRIBUTES | {"*": set(DRAWN_BY.split())}
    return nh3.clean(
        html,
        tags=nh3.ALLOWED_TAGS | set(DRAWN.split()) | {"figure", "figcaption", "style", "section"},
        clean_content_tags={"script"},
        attributes=attributes,
        generic_attribute_prefixes={"aria-"},
        link_rel=None,
    )


def build_site(folder: Path, out: Path, *, students: bool = False) -> Path:
    """Make a site of the notebooks in a folder; return its index.

    Args:
        folder: executed notebooks, as `labkit course run` leaves them, or authored ones.
        out: the folder of the site.
        students: whether solutions, guesses and outputs are left out; else explanations show all that graders see.

    Raises:
        UserError: there are no notebooks.
    """
    notebooks = {path.stem: read_notebook(path) for path in sorted(folder.glob("*.ipynb"))}
    if not notebooks:
        raise UserError(
            f"{folder}: there are no executed notebooks: make them with `labkit course run --out {folder}`."
        )
    if students:
        notebooks = {stem: exercise_version(notebook) for stem, notebook in notebooks.items()}
    exporter = Pages()
    out.mkdir(parents=True, exist_ok=True)
    replace_text(out / "plotly.min.js", get_plotlyjs())
    rows = ""
    for stem, notebook in notebooks.items():
        title = re.search(r"^# (.*)", "\n".join(cell.source for cell in notebook.cells), re.MULTILINE)
        rows += f'<li><a href="{stem}.html">{escape(title[1] if title else stem)}</a></li>\n'
        adapt(notebook, set(notebooks))
        html, _ = exporter.from_notebook_node(notebook)
        replace_text(out / f"{stem}.html", html)
    head = '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>The cost of training</title>\n'
    replace_text(out / "index.html", f"{head}<main><h1>The cost of training</h1>\n<ol>\n{rows}</ol></main></html>\n")
    return out / "index.html"


def adapt(notebook: NotebookNode, stems: set[str]) -> None:
    """Draw figures and formulas, link the pages with each other, and drop the badges, which lead to the network.

    What needs no kernel is shown where nothing was executed: drawings, and the rubrics of the authored notebooks.
    """

    def link(match: re.Match) -> str:
        return f"[{match[1]}]({match[2]}.html)" if match[2] in stems else match[1]

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\[!\[[^]]*\]\([^)]*badge[^)]*\)\]\([^)]*\)", "", cell.source)
            cell.source = re.sub(r"\[([^]]*)\]\(([\w-]+)\.ipynb\)", link, cell.source)
            cell.source = FORMULA.sub(lambda match: match[1] or convert(match[2] or match[3]), cell.source)
    for cell in code_cells(notebook):
        if html := _known(cell):
            cell.outputs = [v4.new_output("display_data", {"text/html": html})]
        for place, output in enumerate(cell.outputs):
            data = output.get("data", {})
            if figure := data.get(PLOTLY):
                drawn = pio.to_html(figure, include_plotlyjs=False, full_html=False, validate=False)
                words = (
                    cell.outputs[place + 1].get("data", {}).get("text/plain", "") if cell.outputs[place + 1 :] else ""
                )
                output.data = {
                    "text/html": f'<div role="figure" aria-label="{escape(words, quote=True)}">{drawn}</div>'
                }
                continue
            data.pop("application/javascript", None)
            for kind in data.keys() & {"text/html", "image/svg+xml"}:
                data[kind] = _clean(data[kind])


def _known(cell: NotebookNode) -> str:
    """What a cell shows on any machine, as HTML: a drawing, or all that graders see of an explanation that is given."""
    drawn = re.search(r'^(?:labkit_course\.)?drawing\("(\w+)"\)$', cell.source, re.MULTILINE)
    if drawn and (svg := DRAWINGS / f"{drawn[1]}.svg").is_file():
        return svg.read_text(encoding="utf-8")
    if explained := re.search(r'^answer = model_answer\("((\d\d)\.\w+)"\)$', cell.source, re.MULTILINE):
        exercise = all_exercises(explained[2]).get(explained[1])
        return exercise.for_graders() if isinstance(exercise, Explanation) else ""
    return ""
