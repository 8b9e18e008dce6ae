"""The page of one profile: it opens from a file, without a network."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import pandas as pd
from plotly.offline import get_plotlyjs

from labkit import __version__
from labkit.plots.describe import describe
from labkit.plots.show import OFFLINE
from labkit.profiling.profile import Profile
from labkit.profiling.traces.memory import alive_at_peak
from labkit.report.profile_views import VIEWS, View, html_table, operator_columns, what_to_try
from labkit.runs import read_run
from labkit.runs.atomic import replace_text

PAGE = "profile.html"
MOST_TENSORS = 40


def write_profile_page(profile: Profile, out: Path | None = None) -> Path:
    """Write the page.

    Args:
        profile: what it is about.
        out: the file; None writes it beside the trace.

    Returns:
        The file's absolute path.
    """
    out = (out or profile.folder / "trace" / PAGE).absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, build_profile_page(profile))
    return out


def build_profile_page(profile: Profile) -> str:
    """The page as text."""
    folder = files("labkit.report")
    template = Template(folder.joinpath("profile.html").read_text(encoding="utf-8"))
    sections = [_view(view, profile) for view in VIEWS]
    sections.insert(3, _operators(profile))
    sections.append(_tensors(profile))
    return template.substitute(
        title=f"labkit profile: {escape(profile.folder.name)}",
        version=escape(__version__),
        css=folder.joinpath("page.css").read_text(encoding="utf-8"),
        headline=escape(profile.headline),
        answers="".join(f"<li>{line}</li>" for line in what_to_try(profile)),
        facts="".join(f"<div><dt>{escape(term)}</dt><dd>{escape(words)}</dd></div>" for term, words in _facts(profile)),
        sections=f"<script>{get_plotlyjs()}</script>\n" + "\n".join(filter(None, sections)),
    )


def _facts(profile: Profile) -> list[tuple[str, str]]:
    record, card, (gflops, gb) = read_run(profile.folder), profile.card, profile.work
    done = f"{gflops:,.3g} GFLOP/s, {gb:,.3g} GB/s" if profile.settings.shapes else "not known without shapes"
    faults = profile.faults.in_words if profile.faults is not None else "not counted"
    return [
        ("Run", profile.folder.name),
        ("Machine", f"{card.device}, {card.threads} threads, on {card.when}"),
        ("Provenance", f"{record.provenance.kind} by {record.provenance.by}, {record.provenance.when}"),
        (
            "Its limits, measured",
            f"{card.fp32_gflops:,.0f} GFLOP/s in fp32, {card.bf16_gflops:,.0f} in bf16, "
            f"{card.bandwidth_gb_per_s:.3g} GB/s",
        ),
        ("The step as a whole", done),
        ("Fresh memory", faults),
        ("Schedule", profile.settings.in_words()),
    ]


def _view(view: View, profile: Profile) -> str:
    if why := view.missing(profile):
        return _section(view.title, f"<p>{escape(why)}</p>")
    figure = view.draw(profile, "labkit_light")
    # a copy, from which plotly takes what it does not know
    plot = figure.to_html(full_html=False, include_plotlyjs=False, config=dict(OFFLINE), default_height=view.height)
    words = describe(figure)
    return _section(
        view.title,
        f"<p>{escape(view.about)}</p><figure>{plot}<figcaption>{escape(words.text)}</figcaption></figure>"
        + words.details(),
    )


def _section(title: str, content: str) -> str:
    name = title.lower().replace(" ", "-")
    return (
        f'<section class="job" id="{name}" aria-labelledby="{name}-title"><header><h2 id="{name}-title">'
        f"{escape(title)}</h2></header>{content}</section>"
    )


def _operators(profile: Profile) -> str:
    columns = operator_columns(profile.operators)
    table = html_table(
        {f'<button type="button">{head}</button>': texts for head, texts in columns.items()}, 'id="operator-table"'
    )
    return _section(
        "Operators",
        '<p>By their own time in one step. Press a head to sort.</p><label class="filter">Only names with '
        f'<input type="search" id="filter"></label><div class="scroll tall" tabindex="0">{table}</div>',
    )


def _tensors(profile: Profile) -> str:
    alive = alive_at_peak(profile.trace)
    if alive.empty:
        return ""
    total, shown = alive["bytes"].sum(), alive.head(MOST_TENSORS)
    table = html_table(
        {
            "allocated in": shown["operator"],
            "MiB": [f"{size / 2**20:,.3f}" for size in shown["bytes"]],
            "share": [f"{size / total:.1%}" for size in shown["bytes"]],
            "from (ms)": map(_ms, shown["allocated_us"]),
            "to (ms)": map(_ms, shown["freed_us"]),
        }
    )
    rest = len(alive) - MOST_TENSORS
    more = f"<p>And {rest:,} smaller ones.</p>" if rest > 0 else ""
    return _section(
        "Tensors alive at the peak",
        f"<p>What made up {total / 2**20:,.3f} MiB, by the operator that allocated it.</p>"
        f'<div class="scroll tall" tabindex="0">{table}</div>{more}',
    )


def _ms(time_us: float) -> str:
    return "–" if pd.isna(time_us) else f"{time_us / 1e3:,.2f}"
