"""A profile in a terminal: the answer first."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from labkit.cli.console import Console, marked, print_frame
from labkit.report import operator_texts

if TYPE_CHECKING:
    from labkit.profiling import Comparison, Profile, ToolProfile

SHOWN_OPERATORS, SHOWN_OF_TOOLS = 5, 8


def print_profile(profile: Profile) -> None:
    """Print where a step goes, its dearest operators, and what to try."""
    console = Console(highlight=False)
    console.print(profile.headline, style="bold")
    phases = profile.phases
    bars = ["█" * round(30 * share) for share in phases["share"]]
    shown = {"phase": phases["phase"], "ms": _ms(phases["time_us"]), "share": _shares(phases["share"]), "": bars}
    print_frame(console, pd.DataFrame(shown), "Where the step goes")
    for row in profile.device.itertuples():
        console.print(
            f"GPU {row.device}: computing {row.compute_share:.0%}, copying and communicating "
            f"{row.non_compute_share:.0%}, idle {row.idle_share:.0%} of the time."
        )
    if profile.faults is not None:
        console.print(f"Fresh memory: {profile.faults.in_words}.")
    print_frame(console, operator_texts(profile.operators.head(SHOWN_OPERATORS)), "The dearest operators")
    (gflops, gb), limits = profile.work, f"This machine's limits, measured on {profile.card.when}: {profile.limits}"
    step = f"The step as a whole: {gflops:,.3g} GFLOP/s, {gb:,.3g} GB/s."
    if not profile.settings.shapes:
        step = "Without shapes, nothing can be said of what the step achieved."
    console.print(f"{limits} of memory (a cache gives more). {step}")
    if profile.findings:
        words = ", the largest share first, and a bound of what it can gain (predicted):"
    else:
        words = ": nothing worth more than 5 % of the step was found."
    console.print(marked(f"\n[bold]What to try[/bold]{words}"))
    for number, finding in enumerate(profile.findings, start=1):
        bound = f"{finding.claimed_share:.0%} of the step, training at most {finding.bound_text} as fast"
        console.print(marked("{}. [bold]{}[/bold] ({}): {}.", number, finding.name, bound, finding.evidence))
        console.print(f"   {finding.advice[0].upper()}{finding.advice[1:]}.")
    console.print(f"\nThe interactive view: labkit profile show {profile.folder}", soft_wrap=True)


def print_diff(difference: Comparison, rows: int) -> None:
    """Print what makes two steps differ, the largest difference first."""
    console, total, frame = Console(highlight=False), difference.total_us, difference.operators
    console.print(difference.headline())
    times = ["before_us", "after_us", "difference_us"]
    rest, sums = frame.iloc[rows:], {"before_us": difference.before_us, "after_us": difference.after_us}
    added = [{"operator": f"({len(rest)} others)", **rest[times].sum()}] if len(rest) else []
    added.append({"operator": "the step", "difference_us": total, **sums})
    shown = pd.concat([frame.head(rows), pd.DataFrame(added)], ignore_index=True)
    calls = shown[["calls_before", "calls_after"]].itertuples(index=False)
    columns = {
        "operator": shown["operator"],
        "calls": [f"{one:,.0f} → {other:,.0f}" if one >= 0 else "" for one, other in calls],
        "ms before": _ms(shown["before_us"]),
        "ms after": _ms(shown["after_us"]),
        "difference": [f"{us / 1e3:+.3f}" for us in shown["difference_us"]],
        "of all": [f"{us / total:.0%}" if total else "–" for us in shown["difference_us"]],
    }
    print_frame(console, pd.DataFrame(columns))


def print_tool_profile(profile: ToolProfile) -> None:
    """Print what a tool saw, dearest first."""
    console, facts = Console(highlight=False), profile.facts
    steps, seconds, threads = facts["steps"], facts["window_s"], facts["threads"]
    each = f"{1e3 * seconds / steps:.4g} ms a step under it (measured on {facts['device']}, threads: {threads})"
    looked = f"{facts['tool']} looked at {steps:,} steady steps, {seconds:.3g} s in all"
    console.print(f"{looked}: {each}.", style="bold")
    if profile.functions is not None:
        table = profile.functions.head(SHOWN_OF_TOOLS)
        lines = table["line"].astype(object).where(table["line"].notna(), "?")
        shown = {
            "function": table["function"],
            "own": _shares(table["share"]),
            "with callees": _shares(table["with_callees"]),
            "file:line": [
                f"{'/'.join(Path(file).parts[-3:])}:{line}" for file, line in zip(table["file"], lines, strict=True)
            ],
        }
        print_frame(console, pd.DataFrame(shown), "Python functions with most samples of their own")
    if profile.text:
        console.print(profile.text, soft_wrap=True)  # tables of its own
    console.print(f"The rest: {profile.where_to_look}.", soft_wrap=True)


def _ms(times_us: Iterable[float]) -> list[str]:
    return [f"{us / 1e3:,.3f}" for us in times_us]


def _shares(shares: Iterable[float]) -> list[str]:
    return [f"{share:.1%}" for share in shares]
