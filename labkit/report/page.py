"""One self-contained page about any set of runs: it opens from a file, without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from labkit import UserError, __version__, plots, tta
from labkit.report.section import build_section
from labkit.report.summary_text import HEADINGS, OF_TARGET
from labkit.runs import Frames, RunRecord, note_left_out, notes_kept, read_card, readable_runs, replace_text

FOLDER = Path(__file__).parent
PROVENANCE_MEANS = {
    "measured": "measured on this whole machine",
    "emulated": "measured on this machine under a smaller budget",
    "recorded": "measured on another machine and shipped",
    "predicted": "calculated by a model, not run",
}
VERSIONS_SHOWN = ("labkit", "python", "torch", "torchaudio", "numpy", "cuda")


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
        runs = tta.table_of(records, undisturbed=undisturbed)
        curves = tta.with_energy(tta.curves(runs["folder"], runs=runs), runs)
    shown = set(runs["run"])
    facts = page_facts([record for folder, record in records if folder.name in shown], left_out)
    return write_page(out, build_page(curves, runs, facts))


def build_page(curves: pd.DataFrame, runs: pd.DataFrame, facts: dict[str, str]) -> str:
    """The page as text, from `labkit.tta.curves`, `labkit.tta.run_table`, and the facts at its head by their terms."""
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
        "config": {**plots.OFFLINE, "responsive": True},
        "dark": plots.in_the_dark(),
    }
    script = Markup((FOLDER / "page.js").read_text("utf-8"))
    fixed = {"palettes": plots.PALETTES, "headings": HEADINGS, "script": script}
    text = htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False)  # cannot end its script element
    return render("page.html", sections=sections, facts=facts, data=text, **fixed)


def render(template: str, **values: Any) -> str:
    """A template of this folder with these values, whose text is escaped."""
    loader = jinja2.FileSystemLoader(FOLDER, encoding="utf-8")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    files = {"css": Markup((FOLDER / "page.css").read_text("utf-8")), "plotly": Markup(get_plotlyjs())}
    return environment.get_template(template).render(version=__version__, **files, **values)


def write_page(out: Path | str, html: str) -> Path:
    """Write a page, whose folder is made, and return its absolute path."""
    out = Path(out).absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, html)
    return out


def page_facts(records: list[RunRecord], left_out: Sequence[str] = ()) -> dict[str, str]:
    """The facts at the head of the page by their terms, in order; with notes about runs that could not be read."""
    if not records:
        return {}
    status = ", ".join(f"{count} {name}" for name, count in Counter(each.status for each in records).most_common())
    first, last = (pick(record.started_at for record in records)[:16].replace("T", " ") for pick in (min, max))
    kinds = dict.fromkeys(record.provenance.kind for record in records)
    facts = {
        "Runs": f"{plots.count_text(len(records))} ({status})",
        "Machine": _each(map(_machine, records)),
        "When": first if first == last else f"{first} to {last}",
        "Software": _each(map(_versions, records)),
        "Provenance": "; ".join(f"{kind}: {PROVENANCE_MEANS.get(kind, kind)}" for kind in kinds),
    }
    return facts | ({"Left out": " ".join(left_out)} if left_out else {})


def frames_facts(runs: pd.DataFrame) -> dict[str, str]:
    """The same of runs that come as frames: what was recorded by whom, on what, and when.

    Raises:
        UserError: a recording among them has no times, which a page about time to accuracy needs.
    """
    facts = {"Runs": plots.count_text(len(runs))}
    for (host, provenance), own in runs.groupby(["host", "provenance"], sort=False):
        if own["wall_s"].isna().all():
            raise UserError(
                f"recording {host!r} has no times, only how much training a target takes: draw it with "
                "labkit.plots.figure_batch_size."
            )
        if provenance in PROVENANCE_MEANS:
            facts[f"{provenance} on {host}"] = PROVENANCE_MEANS[provenance]
        else:
            card = read_card(own["recording"].iloc[0])
            facts[provenance] = f"{card.authors}, on {', '.join(own['device'].unique())}; {card.date}."
            facts[f"not to be read from {card.cite}"] = card.cannot_say
    return {name[0].upper() + name[1:]: words for name, words in facts.items()}


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts))) or "not recorded"


def _machine(record: RunRecord) -> str:
    devices = []
    for device in record.devices:
        facts = [device.get("name", "unnamed device")]
        cores = device.get("machine_cores") or device.get("cores")  # the second is what a budget left
        facts += [f"{cores} core{'s' * (cores > 1)}"] if cores else []
        facts += [f"{device['memory_bytes'] / 2**30:.1f} GiB"] if device.get("memory_bytes") else []
        devices.append(", ".join(facts))
    return f"{' + '.join(devices)} ({record.host})"


def _versions(record: RunRecord) -> str:
    return ", ".join(f"{name} {record.software[name]}" for name in VERSIONS_SHOWN if record.software.get(name))
