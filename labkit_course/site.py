"""Pages and slides of the notebooks, which work from files, without a network: nbconvert's own."""

import re
from html import escape
from pathlib import Path
from typing import Any

import nh3
import plotly.io as pio
from jinja2 import DictLoader, pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter, SlidesExporter
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

# nbconvert's page without the scripts that it loads from the network (require.js, widgets, MathJax, Mermaid), and with
# colours that reach 4.5:1
PAGE = """\
{% extends 'lab/index.html.j2' %}
{% block html_head_js %}<script src="plotly.min.js"></script>{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block input_group -%}
{% if cell.source.count("\\n") < 5 or cell.metadata.get("nbgrader") %}{{ super() }}
{%- else %}<details class="given"><summary>Given code</summary>{{ super() }}</details>{% endif %}
{%- endblock %}
{% block html_head_css %}<style>
@media (prefers-color-scheme: dark) {
  html { background: #fff; filter: invert(0.93) hue-rotate(180deg); }
  img { filter: invert(1) hue-rotate(180deg); }
}
details.given > summary { color: var(--jp-content-font-color2, #555); cursor: pointer; }
.jp-RenderedMarkdown > :not(table, pre, figure) { max-width: 80ch; }
main { max-width: 70rem; margin: auto; }
a { text-decoration: underline !important; }
.ansi-red-fg { color: #a00 !important; }
body {
  --jp-mirror-editor-comment-color: #2a6060; --jp-mirror-editor-number-color: #060;
  --jp-mirror-editor-operator-color: #80c;
}
</style>{% endblock %}
"""

# nbconvert's slides, with reveal.js if it lies next to them; else slides stand one below the other, a screen each
SLIDES = """\
{% extends 'reveal/index.html.j2' %}
{% block html_head_js %}<script src="plotly.min.js"></script>{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_css %}<style>
.reveal .slides section { text-align: left; }
.reveal svg { max-height: 55vh; }
html { scroll-snap-type: y proximity; }
body:not(.reveal-viewport) .slides > section {
  box-sizing: border-box; min-height: 100vh; padding: 6vh 8vw; scroll-snap-align: start; break-after: page;
  font-size: 1.4rem;
}
body:not(.reveal-viewport) .notes { display: none; }
</style>{% endblock %}
{% block footer_js %}
<script src="reveal.js/dist/reveal.js"></script>
<script src="reveal.js/dist/plugin/notes.js"></script>
<script>
if (window.Reveal)
  Reveal.initialize({ hash: true, slideNumber: "c", width: 1100, height: 700, plugins: [RevealNotes] });
</script>
{% endblock %}
"""
MOST_SLIDES = 8
"""Of a lab: its title, its recap, and sections between them"""
SENTENCE = re.compile(r"(?<=[.?!:]) (?=[A-Z*`])")

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


class _Pages(HTMLExporter):
    page = PAGE

    def __init__(self) -> None:
        super().__init__(template_file="page.html.j2", extra_loaders=[DictLoader({"page.html.j2": self.page})])
        self.exclude_anchor_links = self.exclude_input_prompt = self.exclude_output_prompt = True

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        return _clean(super().markdown2html(context, source))


class _Slides(_Pages, SlidesExporter):
    page = SLIDES


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
    exporter = _Pages()
    out.mkdir(parents=True, exist_ok=True)
    replace_text(out / "plotly.min.js", get_plotlyjs())
    rows = ""
    for stem, notebook in notebooks.items():
        title = re.search(r"^# (.*)", "\n".join(cell.source for cell in notebook.cells), re.MULTILINE)
        rows += f'<li><a href="{stem}.html">{escape(title[1] if title else stem)}</a></li>\n'
        _adapt(notebook, set(notebooks))
        html, _ = exporter.from_notebook_node(notebook)
        replace_text(out / f"{stem}.html", html)
    head = '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>The cost of training</title>\n'
    replace_text(out / "index.html", f"{head}<main><h1>The cost of training</h1>\n<ol>\n{rows}</ol></main></html>\n")
    return out / "index.html"


def _adapt(notebook: NotebookNode, stems: set[str]) -> None:
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


def build_slides(lab: Path, out: Path) -> tuple[Path, int]:
    """Make the slides of a lab; return their file and their number, which is at most `MOST_SLIDES`.

    A slide is a section: its heading, its first sentences or list, and its first drawing or figure. The speaker's notes
    have the whole text of its first cell.

    Args:
        lab: a notebook, authored or executed; figures are only in an executed one.
        out: the folder of the slides; reveal.js is used if its package lies in `reveal.js` there.
    """
    notebook = read_notebook(lab)
    _adapt(notebook, set())
    chosen = _chosen(_sections(notebook))
    exporter = _Slides()
    exporter.exclude_input, exporter.reveal_url_prefix = True, "reveal.js"
    exporter.reveal_theme = "white"  # which asks no server for fonts
    cells = [cell for section in chosen for cell in _slide(section)]
    html, _ = exporter.from_notebook_node(v4.new_notebook(cells=cells), {"metadata": {"name": lab.stem}})
    out.mkdir(parents=True, exist_ok=True)
    replace_text(out / "plotly.min.js", get_plotlyjs())
    replace_text(out / f"{lab.stem}.slides.html", html)
    return out / f"{lab.stem}.slides.html", len(chosen)


def _sections(notebook: NotebookNode) -> list[list[NotebookNode]]:
    """The cells of a notebook, cut at its headings of the second level."""
    sections: list[list[NotebookNode]] = [[]]
    for cell in notebook.cells:
        above, *parts = re.split("^(?=## )", cell.source, flags=re.MULTILINE) if cell.cell_type == "markdown" else [""]
        if cell.cell_type == "code" or above.strip():
            sections[-1].append(v4.new_markdown_cell(above) if above else cell)
        sections += [[v4.new_markdown_cell(part)] for part in parts]
    return sections


def _chosen(sections: list[list[NotebookNode]]) -> list[list[NotebookNode]]:
    """As many sections as there are slides: the first, the last, and those that show something before the others."""

    def rank(place: int) -> tuple:
        source = "\n".join(cell.source for cell in sections[place])
        between = 0 < place < len(sections) - 1
        return between, "drawing(" not in source, "figure" not in source, source.startswith("## Judge"), place

    return [sections[place] for place in sorted(sorted(range(len(sections)), key=rank)[:MOST_SLIDES])]


def _slide(section: list[NotebookNode]) -> list[NotebookNode]:
    """The cells of a slide: what is said first, a picture if there is one, and the speaker's notes."""
    heading, _, text = section[0].source.partition("\n\n")
    first, following = [*(each for each in text.split("\n\n") if not each.startswith("#")), "", ""][:2]
    lead = first if first.startswith("- ") else " ".join(SENTENCE.split(first)[:2])
    said = [heading, lead, following if following.startswith(("- ", "1. ", "| ")) else ""]
    pictures = [
        v4.new_code_cell(outputs=[output])
        for cell in code_cells(NotebookNode(cells=section))
        for output in cell.outputs
        if output.get("data", {}).get("text/html", "").startswith(('<div role="figure"', "<svg"))
    ]
    made = [v4.new_markdown_cell("\n\n".join(said)), *pictures[:1], v4.new_markdown_cell(text)]
    for cell, kind in ((made[0], "slide"), (made[-1], "notes")):
        cell.metadata.slideshow = {"slide_type": kind}
    return made
