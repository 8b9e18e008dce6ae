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
from labkit.report.profile_views import VIEWS, View, finding_html
from labkit.runs import read_run
from labkit.runs.atomic import replace_text

PAGE = "profile.html"
MOST_TENSORS = 40
HEADS = ("operator", "calls a step", "own time (ms)", "share", "GFLOP/s", "GB/s", "of the limit")


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
        answers="".join(f"<li>{line}</li>" for line in _answers(profile)),
        facts="".join(f"<div><dt>{escape(term)}</dt><dd>{escape(words)}</dd></div>" for term, words in _facts(profile)),
        sections=f"<script>{get_plotlyjs()}</script>\n" + "\n".join(filter(None, sections)),
    )


def _answers(profile: Profile) -> list[str]:
    if not profile.findings:
        return ["Nothing worth more than 5 % of the step was found."]
    return [finding_html(finding) for finding in profile.findings]


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
    heads = "".join(
        f'<th scope="col"{" class=name" * (not number)}><button type="button">{escape(head)}</button></th>'
        for number, head in enumerate(HEADS)
    )
    body = "".join(_row(row) for row in profile.operators.itertuples(index=False))
    return _section(
        "Operators",
        '<p>By their own time in one step. Press a head to sort.</p><label class="filter">Only names with '
        '<input type="search" id="filter"></label><div class="scroll tall" tabindex="0">'
        f'<table id="operator-table"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>',
    )


def _row(row: tuple) -> str:
    cells = [
        (row.calls, f"{row.calls:,.1f}".removesuffix(".0")),
        (row.self_us, f"{row.self_us / 1e3:.3f}"),
        (row.share, f"{row.share:.1%}"),
        (row.gflop_per_s, f"{row.gflop_per_s:,.3g}"),
        (row.gb_per_s, f"{row.gb_per_s:,.3g}"),
        (row.of_peak, f"{row.of_peak:.0%}"),
    ]
    name = escape(row.operator)
    shown = "".join(
        f'<td data-value="{value:.6g}">{text}</td>' if value > 0 else '<td data-value="0">–</td>'  # nor where it is NaN
        for value, text in cells
    )
    return f'<tr><th scope="row" class="name" data-value="{name}">{name}</th>{shown}</tr>'


def _tensors(profile: Profile) -> str:
    alive = alive_at_peak(profile.trace)
    if alive.empty:
        return ""
    total = alive["bytes"].sum()
    rows = "".join(
        f'<tr><th scope="row" class="name">{escape(row.operator)}</th><td>{row.bytes / 2**20:,.3f}</td>'
        f"<td>{row.bytes / total:.1%}</td><td>{_ms(row.allocated_us)}</td><td>{_ms(row.freed_us)}</td></tr>"
        for row in alive.head(MOST_TENSORS).itertuples()
    )
    rest = len(alive) - MOST_TENSORS
    more = f"<p>And {rest:,} smaller ones.</p>" if rest > 0 else ""
    return _section(
        "Tensors alive at the peak",
        f"<p>What made up {total / 2**20:,.3f} MiB, by the operator that allocated it.</p>"
        '<div class="scroll tall" tabindex="0"><table><thead><tr><th scope="col" class="name">allocated in</th>'
        '<th scope="col">MiB</th><th scope="col">share</th><th scope="col">from (ms)</th><th scope="col">to (ms)</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>{more}",
    )


def _ms(time_us: float) -> str:
    return "–" if pd.isna(time_us) else f"{time_us / 1e3:,.2f}"
