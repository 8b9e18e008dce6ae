"""A profile in a terminal: the answer first."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from labkit.cli.console import Console, marked

if TYPE_CHECKING:
    from labkit.profiling.comparison import Comparison
    from labkit.profiling.profile import Profile

SHOWN_OPERATORS = 5


def print_profile(profile: Profile) -> None:
    """Print where a step goes, its dearest operators, and what to try."""
    from labkit.profiling.traces.device_time import kernel_breakdown

    console = Console()
    console.print(profile.headline, style="bold", highlight=False)
    console.print()
    console.print(_phases(profile))
    if len(profile.device):
        for row in profile.device.itertuples():
            console.print(
                f"GPU {row.device}: computing {row.compute_share:.0%}, copying and communicating "
                f"{row.non_compute_share:.0%}, idle {row.idle_share:.0%} of the time.",
                highlight=False,
            )
        kinds = kernel_breakdown(profile.trace).groupby("kind")["share"].mean()
        said = ", ".join(f"{kind.lower()} {share:.0%}" for kind, share in kinds.sort_values(ascending=False).items())
        console.print(f"Of what it did: {said}.", highlight=False)
    if profile.faults is not None:
        console.print(f"Fresh memory: {profile.faults.in_words}.", highlight=False)
    console.print(_operators(profile))
    console.print(_limits(profile), highlight=False)
    console.print()
    _print_findings(console, profile)
    console.print(f"\nThe interactive view: labkit profile show {profile.folder}", highlight=False, soft_wrap=True)


def _phases(profile: Profile) -> Any:
    table = _table("Where the step goes")
    for name, justify in (("phase", "left"), ("ms", "right"), ("share", "right"), ("", "left")):
        table.add_column(name, justify=justify)
    for row in profile.phases.itertuples():
        table.add_row(row.phase, f"{row.time_us / 1e3:.3f}", f"{row.share:.1%}", "█" * round(30 * row.share))
    return table


def _operators(profile: Profile) -> Any:
    from rich.table import Table

    from labkit.plots.words import rate_text

    table = Table(
        title="\nThe dearest operators, by their own time", title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("operator", overflow="fold")
    on_gpu = "device_us" in profile.operators
    for name in ("calls", *(["GPU ms"] if on_gpu else []), "ms", "share", "GFLOP/s", "GB/s", "of limit"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in profile.operators.head(SHOWN_OPERATORS).itertuples():
        table.add_row(
            row.operator, f"{row.calls:,.0f}", *([f"{row.device_us / 1e3:.3f}"] if on_gpu else []),
            f"{row.self_us / 1e3:.3f}", f"{row.share:.1%}", rate_text(row.gflop_per_s), rate_text(row.gb_per_s),
            "–" if math.isnan(row.of_peak) else f"{row.of_peak:.0%}",
        )  # fmt: skip
    return table


def _table(title: str | None) -> Any:
    from rich.table import Table

    return Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))


def _limits(profile: Profile) -> str:
    card, (gflops, gb) = profile.card, profile.work
    said = (
        f"This machine's limits, measured on {card.when}: {card.fp32_gflops:,.0f} GFLOP/s in fp32, "
        f"{card.bf16_gflops:,.0f} in bf16, {card.bandwidth_gb_per_s:.3g} GB/s of memory (a cache gives more)."
    )
    if not profile.settings.shapes:
        return f"{said} Without shapes, nothing can be said of what the step achieved."
    return f"{said} The step as a whole: {gflops:,.3g} GFLOP/s, {gb:,.3g} GB/s."


def _print_findings(console: Console, profile: Profile) -> None:
    if not profile.findings:
        console.print(
            marked("[bold]What to try:[/bold] nothing worth more than 5 % of the step was found."), highlight=False
        )
        return
    console.print(
        marked("[bold]What to try[/bold], the largest share first, and a bound of what it can gain (predicted):")
    )
    for number, finding in enumerate(profile.findings, start=1):
        bound = f"{finding.claimed_share:.0%} of the step, training at most {finding.bound_text} as fast"
        line = marked("{}. [bold]{}[/bold] ({}): {}.", number, finding.name, bound, finding.evidence)
        console.print(line, highlight=False)
        console.print(f"   {finding.advice[0].upper()}{finding.advice[1:]}.", highlight=False)


def as_dict(profile: Profile) -> dict[str, Any]:
    """The answer for programs; a figure that is not known is null."""
    operators = profile.operators.astype(object).where(profile.operators.notna(), None)
    gflops, gb = profile.work
    return {
        "run": profile.folder.name,
        "folder": str(profile.folder),
        "step_us": profile.time.step_us,
        "steps": profile.time.steps,
        "unprofiled_step_us": profile.unprofiled_step_us,
        "overhead": profile.overhead,
        "page_faults": profile.faults and asdict(profile.faults),
        "phases": profile.phases.to_dict("records"),
        "device": profile.device.to_dict("records"),
        "operators": operators.to_dict("records"),
        "gflop_per_s": gflops,
        "gb_per_s": gb,
        "card": asdict(profile.card),
        "findings": [asdict(finding) | {"bound": min(finding.bound, 1e9)} for finding in profile.findings],
    }


def print_diff(difference: Comparison, rows: int) -> None:
    """Print what makes two steps differ, the largest difference first."""
    console = Console()
    console.print(difference.headline(), highlight=False)
    table = _table(None)
    table.add_column("operator", overflow="fold")
    for name in ("calls", "ms before", "ms after", "difference", "of all"):
        table.add_column(name, justify="right", no_wrap=True)
    frame, total = difference.operators, difference.total_us
    shown, rest = frame.head(rows), frame.iloc[rows:]
    for row in shown.itertuples():
        calls = f"{row.calls_before:,.0f} → {row.calls_after:,.0f}" if row.calls_before or row.calls_after else ""
        table.add_row(row.operator, calls, *_times(row.before_us, row.after_us, row.difference_us, total))
    if len(rest):
        sums = rest[["before_us", "after_us", "difference_us"]].sum()
        table.add_row(f"({len(rest)} others)", "", *_times(*sums, total))
    table.add_row(Text("the step", "bold"), "", *_times(difference.before_us, difference.after_us, total, total))
    console.print(table)


def _times(before_us: float, after_us: float, difference_us: float, total_us: float) -> tuple[str, ...]:
    share = difference_us / total_us if total_us else math.nan
    return (
        f"{before_us / 1e3:.3f}", f"{after_us / 1e3:.3f}", f"{difference_us / 1e3:+.3f}",
        "–" if math.isnan(share) else f"{share:.0%}",
    )  # fmt: skip
