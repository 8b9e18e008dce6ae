"""The views of a profile: each a figure, and the line of code that draws it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.memory_held import figure_memory_held
from labkit.plots.roofline import figure_roofline
from labkit.plots.step_bars import figure_icicle, figure_phases, figure_timeline
from labkit.plots.words import rate_text
from labkit.profiling.call_tree import call_tree
from labkit.profiling.diagnosis import Finding
from labkit.profiling.profile import Profile
from labkit.profiling.roofline import roofline_frames
from labkit.profiling.traces.memory import memory_over_time
from labkit.profiling.traces.timeline import timeline


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


def _finding_html(finding: Finding) -> str:
    advice = finding.advice[0].upper() + finding.advice[1:]
    bound = f"{finding.claimed_share:.0%} of the step, training at most {finding.bound_text} as fast, predicted"
    text = escape(f"({bound}): {finding.evidence}. {advice}.")
    with_code = re.sub("`([^`]*)`", r"<code>\1</code>", text)
    return f"<strong>{escape(finding.name)}</strong> {with_code}"


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
    nothing = ["Nothing worth more than 5 % of the step was found."]
    return [_finding_html(finding) for finding in profile.findings] or nothing


def phase_bars(profile: Profile, template: str = "labkit_light") -> go.Figure:
    """The phases of a step as one bar."""
    phases = profile.phases.assign(step=profile.folder.name, time_ms=profile.phases["time_us"] / 1e3)
    return figure_phases(phases, provenance=profile.provenance, template=template)


def _without_shapes(profile: Profile) -> str | None:
    return None if profile.settings.shapes else "Shapes were not recorded: profile again without --no-shapes."


def _without_memory(profile: Profile) -> str | None:
    return "Memory was not recorded: profile again with --memory." if profile.trace.allocations.empty else None


def _icicle(profile: Profile, template: str) -> go.Figure:
    return figure_icicle(call_tree(profile.time), provenance=profile.provenance, template=template)


def _timeline(profile: Profile, template: str) -> go.Figure:
    return figure_timeline(timeline(profile.trace), provenance=profile.provenance, template=template)


def _roofline(profile: Profile, template: str) -> go.Figure:
    return figure_roofline(*roofline_frames(profile), template=template)


def _memory(profile: Profile, template: str) -> go.Figure:
    return figure_memory_held(memory_over_time(profile.trace), provenance=profile.provenance, template=template)


VIEWS = (
    View("Phases", "Where the step goes, on average over the recorded steps.", "phase_bars(profile)", phase_bars,
         height="240px"),
    View("Icicle", "What calls what: below each call those that it makes, added up over the recorded steps.",
         "figure_icicle(call_tree(profile.time))", _icicle),
    View("Timeline", "What ran when in the step of median length, on each thread of the host and each stream of a GPU.",
         "figure_timeline(timeline(profile.trace))", _timeline),
    View("Roofline", "What the operators achieved, beside what this machine can do, measured right after the steps.",
         "figure_roofline(*roofline_frames(profile))", _roofline, _without_shapes),
    View("Memory", "What the allocator held beyond what was there before the recording.",
         "figure_memory_held(memory_over_time(profile.trace))", _memory, _without_memory),
)  # fmt: skip
