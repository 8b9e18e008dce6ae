"""One executed notebook as the body of a page: prose, code, outputs; figures as data for the page's script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape, unescape

from nbconvert.filters import Highlight2HTML, ansi2html, markdown2html
from nbformat import NotebookNode

from labkit.course.results import MIME as RESULTS
from labkit.course.verdict import PLOTLY
from labkit.report.page import json_for_html

_highlight = Highlight2HTML(pygments_lexer="ipython3")


@dataclass(frozen=True)
class Section:
    """A heading and the words under it, for the contents and the search."""

    title: str
    level: int
    anchor: str
    text: str


@dataclass
class Body:
    """A rendered notebook."""

    title: str
    html: str
    sections: list[Section] = field(default_factory=list)


def render(notebook: NotebookNode, *, pages: set[str]) -> Body:
    """Render the cells of a notebook; links to notebooks that are not among `pages` become words."""
    parts, sections, figures = [], [], 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            html, found = _prose(cell.source, sections, pages)
            sections += found
            parts.append(f'<div class="prose">{html}</div>')
        elif cell.cell_type == "code":
            parts.append(f'<div class="code" role="group" aria-label="Code" tabindex="0">{_code(cell)}</div>')
            for output in cell.outputs:
                figures += PLOTLY in output.get("data", {})
                parts.append(_output(output, figures))
            _add_words(sections, cell.source)
    title = next((section.title for section in sections if section.level == 1), "Notebook")
    return Body(title, "\n".join(part for part in parts if part), sections)


def _code(cell: NotebookNode) -> str:
    return _highlight(cell.source)


def _prose(source: str, before: list[Section], pages: set[str]) -> tuple[str, list[Section]]:
    """HTML of a markdown cell, its headings with anchors, and the sections that begin in it."""
    taken = {section.anchor for section in before}
    found: list[Section] = []

    def heading(match: re.Match) -> str:
        level, inner = int(match[1]), re.sub(r'<a class="anchor-link".*?</a>', "", match[2])
        title = unescape(re.sub(r"<[^>]+>", "", inner)).strip()
        anchor = _anchor(title, taken)
        taken.add(anchor)
        found.append(Section(title, level, anchor, ""))
        return f'<h{level} id="{anchor}">{inner}</h{level}>'

    html = re.sub(r"<h([1-6])[^>]*>(.*?)</h\1>", heading, markdown2html(source), flags=re.DOTALL)

    # links between notebooks lead to their pages; badges need a network and lead to other places than this site
    def link(match: re.Match) -> str:
        return f'<a href="{match[1]}.html">{match[2]}</a>' if match[1] in pages else match[2]

    html = re.sub(r'<a href="([\w-]+)\.ipynb">(.*?)</a>', link, html, flags=re.DOTALL)
    html = re.sub(r"<a [^>]*>\s*<img [^>]*badge[^>]*>\s*</a>", "", html)
    words = re.split(r"^#{1,6} .*$", source, flags=re.MULTILINE)
    if words[0].strip():
        _add_words(before, words[0])
    found = [
        Section(section.title, section.level, section.anchor, text)
        for section, text in zip(found, words[1:], strict=False)
    ]
    return html, found


def _add_words(sections: list[Section], words: str) -> None:
    if sections:
        last = sections[-1]
        sections[-1] = Section(last.title, last.level, last.anchor, f"{last.text}\n{words}")


def _anchor(title: str, taken: set[str]) -> str:
    """A name for a heading that is not taken.

    >>> _anchor("How many bytes?", {"how-many-bytes"})
    'how-many-bytes-2'
    """
    base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    anchor, number = base, 1
    while anchor in taken:
        number += 1
        anchor = f"{base}-{number}"
    return anchor


def _output(output: NotebookNode, figure_number: int) -> str:
    if output.output_type == "stream":
        return f'<pre class="output {output.name}" tabindex="0">{ansi2html(output.text)}</pre>'
    if output.output_type == "error":
        words = "\n".join(output.traceback) or f"{output.ename}: {output.evalue}"
        return f'<pre class="output error" tabindex="0">{ansi2html(words)}</pre>'
    return next(_rich(output.data, figure_number), "")


def _rich(data: NotebookNode, figure_number: int) -> Iterator[str]:
    """The richest form that a static page can show, first."""
    if PLOTLY in data:
        payload = json_for_html(data[PLOTLY])
        label = f"Figure {figure_number}; it is described in words below"
        yield (f'<figure class="plot" aria-label="{label}"><script type="application/json">{payload}</script></figure>')
    if RESULTS in data:
        rows = "".join(
            f"<tr><th scope=row>{escape(name)}</th><td>{_number(entry['value'])}</td>"
            f"<td>{_number(entry['low'])} to {_number(entry['high'])}</td></tr>"
            for name, entry in data[RESULTS].items()
        )
        yield (
            '<div class="table" tabindex="0" role="group" aria-label="Results"><table>'
            "<thead><tr><th scope=col>number</th><th scope=col>here</th><th scope=col>bounds</th></tr></thead>"
            f"{rows}</table></div>"
        )
    if "text/html" in data:
        # pandas marks its tables with attributes that HTML no longer has
        html = re.sub(r' (border="1"|style="text-align: right;")', "", data["text/html"])
        html = re.sub(r"<style scoped>.*?</style>", "", html, flags=re.DOTALL)
        if "<table" not in html:
            yield f'<div class="output rich">{html}</div>'
        elif html.startswith("<p"):  # a figure's description, its table folded away
            yield f'<div class="description">{html}</div>'
        else:
            yield f'<div class="table" tabindex="0" role="group" aria-label="Table">{html}</div>'
    if "image/png" in data:
        words, picture = escape(data.get("text/plain", "picture")), data["image/png"]
        yield f'<img class="output" alt="{words}" src="data:image/png;base64,{picture}">'
    if "text/plain" in data:
        yield f'<pre class="output" tabindex="0">{escape(data["text/plain"])}</pre>'


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def search_entries(page: str, body: Body) -> list[dict[str, str]]:
    """What the search knows of a page: one entry a section."""
    return [
        {
            "page": page,
            "anchor": section.anchor,
            "title": section.title,
            "of": body.title,
            "text": " ".join(re.sub(r"[*_`#\[\]()|]+", " ", section.text).split()),
        }
        for section in body.sections
    ]
