"""One self-contained page from any set of runs: it opens from a file, without a network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from labkit import __version__
from labkit.plots import OFFLINE, PALETTES, in_the_dark
from labkit.report.headlines import frames_facts, page_facts
from labkit.report.section import build_section
from labkit.report.table import HEADINGS, OF_TARGET, bracketed
from labkit.runs import Frames, note_left_out, notes_kept, readable_runs, replace_text
from labkit.tta import curves as read_curves, table_of

FOLDER = Path(__file__).parent


def write_report(folders: Frames | Iterable[Path | str], out: Path | str, *, undisturbed: bool = False) -> Path:
    """Write the page about these runs; finished, failed and interrupted ones alike.

    Args:
        folders: run folders; or frames, as `labkit.runs.recorded` gives.
        out: the file to write; its folder is made, an older file is replaced once the new one is whole.
        undisturbed: leave out runs that other programs disturbed.

    Returns:
        The file's absolute path.
    """
    if isinstance(folders, Frames):
        return write_page(out, build_page(folders.curves, folders.runs, frames_facts(folders.runs)))
    with notes_kept() as left_out:
        records = readable_runs(folders)
        runs = table_of(records, undisturbed=undisturbed)
        curves = read_curves(runs["folder"], runs=runs)
    shown = set(runs["run"])
    facts = page_facts([record for folder, record in records if folder.name in shown], left_out)
    return write_page(out, build_page(curves, runs, facts))


def build_page(curves: pd.DataFrame, runs: pd.DataFrame, facts: dict[str, str]) -> str:
    """The page as text, from `labkit.tta.curves`, `labkit.tta.run_table`, and the terms and words of its head."""
    sections, errors = [], []
    with notes_kept() as left_out:
        for number, ((job, _), own) in enumerate(runs.groupby(["job", "metric"], sort=False, dropna=False)):
            try:
                sections.append(build_section(f"job{number}", curves[curves["run"].isin(own["run"])], own))
            except Exception as error:  # whatever the numbers of one job do, the page of the others stays
                errors.append(error)
                note_left_out(Path(str(job)), str(error))
    if errors and not sections:
        raise errors[0]
    if left_out:
        facts = facts | {"Left out": " ".join([facts.get("Left out", ""), *left_out]).strip()}
    data = {
        "jobs": [section.pop("payload") for section in sections],
        "columns": OF_TARGET,
        "config": {**OFFLINE, "responsive": True},
        "dark": in_the_dark(),
    }
    told = {"facts": facts, "palettes": PALETTES, "headings": HEADINGS, "data": json_for_html(data)}
    return render("page.html", sections=sections, script=Markup((FOLDER / "page.js").read_text("utf-8")), **told)


def render(template: str, **values: Any) -> str:
    """A template of this folder with these values, whose text is escaped."""
    loader = jinja2.FileSystemLoader(FOLDER, encoding="utf-8")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["bracketed"] = bracketed
    files = {"css": Markup((FOLDER / "page.css").read_text("utf-8")), "plotly": Markup(get_plotlyjs())}
    return environment.get_template(template).render(version=__version__, **files, **values)


def write_page(out: Path | str, html: str) -> Path:
    """Write a page, whose folder is made, and return its absolute path."""
    out = Path(out).absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, html)
    return out


def json_for_html(data: object) -> Markup:
    r"""JSON that cannot end the script element it stands in, whatever its strings hold.

    >>> print(json_for_html({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    return htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False)
