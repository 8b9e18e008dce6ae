"""The views of a profile, each a figure and the line of code that draws it, and their page, which needs no network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from labkit import __version__
from labkit.plots.describe import describe
from labkit.plots.gantt import figure_icicle, figure_phases, figure_timeline
from labkit.plots.memory_held import figure_memory_held
from labkit.plots.roofline import figure_roofline
from labkit.plots.show import OFFLINE
from labkit.plots.words import rate_text
from labkit.profiling.call_tree import call_tree
from labkit.profiling.profile import Profile, roofline_frames
from labkit.profiling.traces.memory import alive_at_peak, memory_over_time
from labkit.profiling.traces.timeline import timeline
from labkit.runs import read_run
from labkit.runs.atomic import replace_text

MOST_TENSORS = 40


@dataclass(frozen=True)
class View:
    """One way to look at a profile."""

    title: str
    about: str
    """What it shows, in a sentence"""
    code: str
    """The expression that draws it, of a `profile`"""
    draw: Callable[[Profile, str], go.Figure]
    """From the profile and the name of a template"""
    missing: Callable[[Profile], str | None] = lambda profile: None
    """Why there is nothing to draw; None where there is"""
    height: str = "460px"
    """On the page"""


def html_table(columns: dict[str, Iterable[str]], attributes: str = "") -> str:
    """A table of texts, the first of a row being its head; the columns' names are HTML."""
    head, *others = columns
    heads = f'<th scope="col" class="name">{head}</th>' + "".join(f'<th scope="col">{name}</th>' for name in others)
    rows = "".join(
        f'<tr><th scope="row" class="name">{escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for name, *cells in zip(*columns.values(), strict=True)
    )
    return f"<table {attributes}><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def operator_columns(operators: pd.DataFrame) -> dict[str, Iterable[str]]:
    """Operators of a step as texts, by `html_table`."""
    return {
        "operator": operators["operator"],
        "calls a step": [f"{calls:,.1f}".removesuffix(".0") for calls in operators["calls"]],
        "own time (ms)": [f"{us / 1e3:.3f}" for us in operators["self_us"]],
        "share": [f"{share:.1%}" for share in operators["share"]],
        "GFLOP/s": map(rate_text, operators["gflop_per_s"]),
        "GB/s": map(rate_text, operators["gb_per_s"]),
        "of the limit": [f"{share:.0%}" if share > 0 else "–" for share in operators["of_peak"]],
    }


def what_to_try(profile: Profile) -> list[str]:
    """The findings, as the content of items of a list."""
    told = []
    for finding in profile.findings:
        bound = f"{finding.claimed_share:.0%} of the step, training at most {finding.bound_text} as fast, predicted"
        advice = finding.advice[0].upper() + finding.advice[1:]
        text = re.sub("`([^`]*)`", r"<code>\1</code>", escape(f"({bound}): {finding.evidence}. {advice}."))
        told.append(f"<strong>{escape(finding.name)}</strong> {text}")
    return told or ["Nothing worth more than 5 % of the step was found."]


def phase_bars(profile: Profile, template: str = "labkit_light") -> go.Figure:
    """The phases of a step as one bar."""
    phases = profile.phases.assign(step=profile.folder.name, time_ms=profile.phases["time_us"] / 1e3)
    return figure_phases(phases, provenance=profile.provenance, template=template)


def _style(profile: Profile, template: str) -> dict[str, str]:
    return {"provenance": profile.provenance, "template": template}


def _without_shapes(profile: Profile) -> str | None:
    return None if profile.settings.shapes else "Shapes were not recorded: profile again without --no-shapes."


def _without_memory(profile: Profile) -> str | None:
    return "Memory was not recorded: profile again with --memory." if profile.trace.allocations.empty else None


VIEWS = (
    View("Phases", "Where the step goes, on average over the recorded steps.", "phase_bars(profile)", phase_bars,
         height="240px"),
    View("Icicle", "What calls what: below each call those that it makes, added up over the recorded steps.",
         "figure_icicle(call_tree(profile.time))",
         lambda profile, look: figure_icicle(call_tree(profile.time), **_style(profile, look))),
    View("Timeline", "What ran when in the step of median length, on each thread of the host and each stream of a GPU.",
         "figure_timeline(timeline(profile.trace))",
         lambda profile, look: figure_timeline(timeline(profile.trace), **_style(profile, look))),
    View("Roofline", "What the operators achieved, beside what this machine can do, measured right after the steps.",
         "figure_roofline(*roofline_frames(profile))",
         lambda profile, look: figure_roofline(*roofline_frames(profile), template=look), _without_shapes),
    View("Memory", "What the allocator held beyond what was there before the recording.",
         "figure_memory_held(memory_over_time(profile.trace))",
         lambda profile, look: figure_memory_held(memory_over_time(profile.trace), **_style(profile, look)),
         _without_memory),
)  # fmt: skip


def write_profile_page(profile: Profile, out: Path | None = None) -> Path:
    """Write the page, beside the trace where no file is given, and return its absolute path."""
    out = (out or profile.folder / "trace" / "profile.html").absolute()
    folder = files("labkit.report")
    template = Template(folder.joinpath("profile.html").read_text(encoding="utf-8"))
    sections = [_view(view, profile) for view in VIEWS]
    sections.insert(3, _operators(profile))
    sections.append(_tensors(profile))
    page = template.substitute(
        title=f"labkit profile: {escape(profile.folder.name)}",
        version=escape(__version__),
        css=folder.joinpath("page.css").read_text(encoding="utf-8"),
        headline=escape(profile.headline),
        answers="".join(f"<li>{line}</li>" for line in what_to_try(profile)),
        facts="".join(f"<div><dt>{escape(term)}</dt><dd>{escape(words)}</dd></div>" for term, words in _facts(profile)),
        sections=f"<script>{get_plotlyjs()}</script>\n" + "\n".join(filter(None, sections)),
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, page)
    return out


def _facts(profile: Profile) -> list[tuple[str, str]]:
    record, card, (gflops, gb) = read_run(profile.folder), profile.card, profile.work
    done = f"{gflops:,.3g} GFLOP/s, {gb:,.3g} GB/s" if profile.settings.shapes else "not known without shapes"
    return [
        ("Run", profile.folder.name),
        ("Machine", f"{card.device}, {card.threads} threads, on {card.when}"),
        ("Provenance", f"{record.provenance.kind} by {record.provenance.by}, {record.provenance.when}"),
        ("Its limits, measured", profile.limits),
        ("The step as a whole", done),
        ("Fresh memory", profile.faults.in_words if profile.faults is not None else "not counted"),
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
