"""One self-contained page from any set of runs: it opens from a file, without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import pandas as pd
from plotly.offline import get_plotlyjs

from labkit import __version__
from labkit.plots.show import OFFLINE
from labkit.plots.theme import PALETTES, in_the_dark
from labkit.report.headline import page_facts
from labkit.report.section import build_section
from labkit.report.table import OF_TARGET
from labkit.runs.atomic import replace_text
from labkit.runs.notes import notes_kept
from labkit.runs.query import readable_runs
from labkit.tta import curves as read_curves
from labkit.tta.curves import table_of


def write_report(folders: Iterable[Path | str], out: Path | str, *, undisturbed: bool = False) -> Path:
    """Write the page about these runs; finished, failed and interrupted ones alike.

    Args:
        folders: run folders.
        out: the file to write; its folder is made, an older file is replaced once the new one is whole.
        undisturbed: leave out runs that other programs disturbed.

    Returns:
        The file's absolute path.
    """
    out = Path(out).absolute()
    with notes_kept() as left_out:
        records = readable_runs(folders)
        runs = table_of(records, undisturbed=undisturbed)
        curves = read_curves(runs["folder"], runs=runs)
    shown = set(runs["run"])
    facts = page_facts([record for folder, record in records if folder.name in shown], left_out)
    html = build_page(curves, runs, facts)
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, html)
    return out


def build_page(curves: pd.DataFrame, runs: pd.DataFrame, facts: dict[str, str]) -> str:
    """The page as text.

    Args:
        curves: one row an evaluation (`labkit.tta.curves`).
        runs: one row a run (`labkit.tta.run_table`).
        facts: term and words for the head of the page.
    """
    sections = []
    for number, ((_, _), own) in enumerate(runs.groupby(["job", "metric"], sort=False, dropna=False)):
        sections.append(build_section(f"job{number}", curves[curves["run"].isin(own["run"])], own))
    answers = "".join(f"<li>{_unbroken(escape(section.headline))}</li>" for section in sections)
    terms = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(words)}</dd></div>" for term, words in facts.items())
    data = {
        "jobs": [section.payload for section in sections],
        "columns": OF_TARGET,
        "config": {**OFFLINE, "responsive": True},
        "dark": in_the_dark(),
    }
    folder = files("labkit.report")
    template = Template(folder.joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title="labkit report: what did the accuracy cost?",
        version=escape(__version__),
        css=folder.joinpath("page.css").read_text(encoding="utf-8") + _swatch_css(),
        answers=f'<ul class="answers">{answers}</ul>' if sections else "",
        facts=f'<dl class="facts">{terms}</dl>' if facts else "",
        sections="\n".join(section.html for section in sections) or _EMPTY,
        data=json_for_html(data),
        plotly=get_plotlyjs(),
        script=folder.joinpath("page.js").read_text(encoding="utf-8"),
    )


_EMPTY = """<div class="empty"><h2>No runs yet</h2>
<p>There was no run to report on. Train something first, for example with <code>labkit train dlrm</code>, then
write this page again with <code>labkit report</code>.</p></div>"""


def json_for_html(data: object) -> str:
    r"""JSON that cannot end the script element it stands in, whatever its strings hold.

    >>> json_for_html({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _unbroken(text: str) -> str:
    """Keeps a number and its unit on one line."""
    return re.sub(r"(\d) (?=(?:s|min|h)\b)", "\\1&nbsp;", text)


def _swatch_css() -> str:
    """The series' colours, in a light page and in a dark one."""
    light, dark = (
        "".join(f"--series-{number}:{color};" for number, color in enumerate(PALETTES[name])) for name in PALETTES
    )
    use = "".join(
        f".series-{number}{{color:var(--series-{number})}}" for number in range(len(PALETTES["labkit_light"]))
    )
    return (
        f":root{{{light}}}{use}"
        f'@media screen and (prefers-color-scheme:dark){{:root:not([data-theme="light"]){{{dark}}}}}'
        f'@media screen{{:root[data-theme="dark"]{{{dark}}}}}'
    )
