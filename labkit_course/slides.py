"""Slides of a lab, from its headings: nbconvert's own, which work from files, without a network."""

import re
from pathlib import Path

from nbconvert import SlidesExporter
from nbformat import NotebookNode, v4
from plotly.offline import get_plotlyjs

from labkit.runs import replace_text
from labkit_course.notebook_file import code_cells, read_notebook
from labkit_course.site import Pages, adapt

MOST_SLIDES = 8
"""Of a lab: its title, its recap, and sections between them"""
SENTENCE = re.compile(r"(?<=[.?!:]) (?=[A-Z*`])")


class _Slides(Pages, SlidesExporter):
    page = "slides.html.j2"


def build_slides(lab: Path, out: Path) -> tuple[Path, int]:
    """Make the slides of a lab; return their file and their number, which is at most `MOST_SLIDES`.

    A slide is a section: its heading, its first sentences or list, and its first drawing or figure. The speaker's notes
    have the whole text of its first cell.

    Args:
        lab: a notebook, authored or executed; figures are only in an executed one.
        out: the folder of the slides; reveal.js is used if its package lies in `reveal.js` there.
    """
    notebook = read_notebook(lab)
    adapt(notebook, set())
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
