"""The views of a profile, each a figure and the line of code that draws it, and their page, which needs no network."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup, escape

from labkit import plots, profiling, runs
from labkit.report.page import render, write_page


@dataclass(frozen=True)
class View:
    """One way to look at a profile."""

    title: str
    about: str
    """Sentence that says what it shows"""
    code: str
    """Expression that draws it from a `profile`, after `import labkit`"""
    draw: Callable[[profiling.Profile], go.Figure]
    missing: Callable[[profiling.Profile], str | None] = lambda profile: None
    """Why there is nothing to draw; None where there is"""


def operator_texts(operators: pd.DataFrame) -> pd.DataFrame:
    """Operators of a step as a table of texts."""
    calls = [f"{calls:,.1f}".removesuffix(".0") for calls in operators["calls"]]
    texts = {"operator": operators["operator"], "calls per step": calls}
    if "device_us" in operators:
        texts["GPU time (ms)"] = [f"{us / 1e3:.3f}" for us in operators["device_us"]]
    texts["own time (ms)"] = [f"{us / 1e3:.3f}" for us in operators["self_us"]]
    texts["share"] = [f"{share:.1%}" for share in operators["share"]]
    for rate, column in (("GFLOP/s", "gflop_per_s"), ("GB/s", "gb_per_s")):
        texts[rate] = operators[column].map(plots.rate_text)
    texts["of the limit"] = [f"{share:.0%}" if share > 0 else "–" for share in operators["of_peak"]]
    return pd.DataFrame(texts)


def what_to_try(profile: profiling.Profile) -> list[Markup]:
    """The findings, as the content of items of a list."""
    answers = []
    for finding in profile.findings:
        bound = f"{finding.claimed_share:.0%} of the step, training at most {finding.bound_text} as fast, predicted"
        text = f"({bound}): {finding.evidence}. {finding.advice[0].upper()}{finding.advice[1:]}."
        code = re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text)))
        answers.append(Markup(f"<strong>{escape(finding.name)}</strong> {code}"))
    return answers or [Markup("Nothing worth more than 5 % of the step was found.")]


def phase_bars(profile: profiling.Profile) -> go.Figure:
    """The phases of a step as one bar."""
    phases = profile.phases.assign(step=profile.folder.name, time_ms=profile.phases["time_us"] / 1e3)
    return plots.figure_phases(phases, provenance=profile.provenance)


def _without_shapes(profile: profiling.Profile) -> str | None:
    if profile.limits is None:
        return "A trace file does not have its machine's limits."
    return None if profile.settings.shapes else "Shapes were not recorded: profile again without --no-shapes."


VIEWS = (
    View("Phases", "Where the step goes, on average over the recorded steps.", "labkit.report.phase_bars(profile)",
         phase_bars),
    View("Icicle", "What calls what: below each call those that it makes, added up over the recorded steps.",
         "labkit.plots.figure_icicle(labkit.profiling.call_tree(profile.time))",
         lambda own: plots.figure_icicle(profiling.call_tree(own.time), provenance=own.provenance)),
    View("Timeline", "What ran when in the step of median length, on each thread of the host and each stream of a GPU.",
         "labkit.plots.figure_timeline(labkit.profiling.timeline(profile.trace))",
         lambda own: plots.figure_timeline(profiling.timeline(own.trace), provenance=own.provenance)),
    View("Roofline", "What the operators achieved, and what this machine can do, measured right after the steps.",
         "labkit.plots.figure_roofline(*labkit.profiling.roofline_frames(profile))",
         lambda own: plots.figure_roofline(*profiling.roofline_frames(own)), _without_shapes),
    View("Memory", "What the allocator held beyond what was there before the recording.",
         "labkit.plots.figure_memory_held(labkit.profiling.memory_over_time(profile.trace))",
         lambda own: plots.figure_memory_held(profiling.memory_over_time(own.trace), provenance=own.provenance),
         lambda own: "Memory was not recorded: profile again with --memory." if own.trace.allocations.empty else None),
)  # fmt: skip


def write_profile_page(profile: profiling.Profile, out: Path | None = None) -> Path:
    """Write the page, next to the trace unless a file is given, and return its absolute path."""
    place = profile.folder
    next_to = place.with_name(f"{place.name.split('.json')[0]}.profile.html")
    own = next_to if profile.limits is None else place / "trace" / "profile.html"
    return write_page(out or own, profile_page(profile))


def profile_page(profile: profiling.Profile) -> str:
    """The page as text."""
    return render(
        "profile.html",
        name=profile.folder.name,
        headline=profile.headline,
        answers=what_to_try(profile),
        facts=_facts(profile),
        views=[_drawn(view, profile) for view in VIEWS],
        operators=operator_texts(profile.operators),
    )


def _drawn(view: View, profile: profiling.Profile) -> dict[str, str]:
    if why := view.missing(profile):
        return {"title": view.title, "missing": why}
    figure = view.draw(profile)
    # a copy of the settings: plotly removes what it does not know
    plot = figure.to_html(full_html=False, include_plotlyjs=False, config=dict(plots.OFFLINE))
    words = plots.describe(figure)
    shown = {"title": view.title, "missing": "", "about": view.about, "text": words.text}
    return shown | {"plot": Markup(plot), "table": Markup(words.html())}


def _facts(profile: profiling.Profile) -> dict[str, str]:
    limits, (gflops, gb) = profile.limits, profile.work
    done = f"{gflops:,.3g} GFLOP/s, {gb:,.3g} GB/s" if profile.settings.shapes else "not known without shapes"
    unused = {"Not used": profile.trace.unused_text} if profile.trace.unused else {}
    if limits is None:
        return {"Trace": str(profile.folder), "The step as a whole": done} | unused
    record = runs.read_run(profile.folder)
    return {
        "Run": profile.folder.name,
        "Machine": f"{limits.device}, {limits.threads} threads, on {limits.when}",
        "Provenance": f"{record.provenance.kind} by {record.provenance.by}, {record.provenance.when}",
        "Its limits, measured": profile.limits_text,
        "The step as a whole": done,
        "Fresh memory": profile.faults.in_words if profile.faults is not None else "not counted",
        "Schedule": profile.settings.in_words(),
    } | unused
