"""`labkit tiers`: the catalogue of hardware, with the source of every figure."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.hardware.tiers import Figure, Tier

COLUMNS = {
    "memory_gb": "memory\nGB",
    "bandwidth_gb_s": "bandwidth\nGB/s",
    "fp32_tflops": "FP32\nTFLOP/s",
    "tf32_tflops": "TF32\nTFLOP/s",
    "bf16_tflops": "BF16\nTFLOP/s",
    "l2_mb": "L2\nMB",
    "sms": "SMs\n",
    "power_w": "power\nW",
    "list_price_usd": "list\n$",
    "rental_price_usd_per_h": "rent\n$/h",
}


TABLE_WIDTH = 112
"""Characters the catalogue needs"""

LEGEND = """
TFLOP/s are dense peaks.  - no source found, or there is none.  * not read in the source named.
`labkit tiers NAME` shows the source and date of every figure."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("tiers", help="the catalogue of hardware tiers, from laptops to the H200")
    parser.add_argument("name", nargs="?", metavar="NAME", help="show one tier with the source of every figure")
    parser.add_argument("--json", action="store_true", help="print JSON, every figure with its source and date")
    parser.set_defaults(run=run_tiers)


def run_tiers(args: argparse.Namespace) -> int:
    """Print the catalogue, or one tier of it."""
    from labkit.hardware.tiers import get_tier, load_tiers

    if args.name:
        tier = get_tier(args.name)
        print(json.dumps(tier.to_dict(), indent=2)) if args.json else _print_tier(tier)
    elif args.json:
        print(json.dumps([tier.to_dict() for tier in load_tiers().values()], indent=2))
    else:
        _print_catalogue(list(load_tiers().values()))
    return 0


def _print_catalogue(tiers: list[Tier]) -> None:
    from rich.table import Table

    from labkit.cli.console import Console

    table = Table(title="Hardware tiers", title_justify="left", header_style="bold", padding=(0, 1), box=None)
    table.add_column("tier\n", style="bold", no_wrap=True)
    table.add_column("year\n", justify="right")
    table.add_column("cores\n", justify="right")
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    kind = None
    for tier in tiers:
        if kind not in (None, tier.kind):
            table.add_section()
            table.add_row()
        kind = tier.kind
        cells = [_cell(tier.figure(name)) for name in COLUMNS]
        table.add_row(tier.name, _or_dash(tier.year), _or_dash(tier.cores), *cells)
    # The table is wider than a classic terminal: better long lines than columns cut to nothing.
    width = max(Console().width, TABLE_WIDTH)
    Console(markup=True, highlight=False, width=width).print(table)
    print(LEGEND)


def _print_tier(tier: Tier) -> None:
    from rich.table import Table

    from labkit.cli.console import Console
    from labkit.hardware.tiers import FIGURES

    console = Console(markup=True, highlight=False)
    about = ", ".join(str(part) for part in (tier.kind, tier.year, tier.cores and f"{tier.cores} cores") if part)
    console.print(f"[bold]{tier.label}[/bold]   [dim]{tier.name}: {about}[/dim]")
    if tier.note:
        console.print(tier.note)
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("figure", "value", "source", "date"):
        table.add_column(column, justify="right" if column == "value" else "left", no_wrap=column in ("value", "date"))
    for name, meaning in FIGURES.items():
        figure = tier.figure(name)
        remarks = [figure.note] if figure.note else []
        if not figure.checked:
            remarks.append("not read in the source named")
        source = [figure.source] if figure.source else []
        table.add_row(meaning, _cell(figure), "\n".join([*source, *remarks]), figure.date or "")
    console.print(table)
    pages = {figure.source: figure.url for figure in tier.figures.values() if figure.source}
    for title, url in pages.items():
        console.print(f"[dim]{title}[/dim]\n  {url}", soft_wrap=True)


def _cell(figure: Figure) -> str:
    if figure.value is None:
        return "[dim]-[/dim]"
    return f"{figure.value:,g}" + ("" if figure.checked else "[yellow]*[/yellow]")


def _or_dash(value: object) -> str:
    return "[dim]-[/dim]" if value is None else str(value)
