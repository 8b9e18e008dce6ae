"""`labkit tiers`: the catalogue of hardware, with the source of every figure."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from labkit.hardware.tiers import Figure, Tier

TABLE_WIDTH = 116
"""Characters the catalogue needs"""
LEGEND = """FP32, TF32, BF16: dense peaks in TFLOP/s. $: list price, $/h: rent.
- no source found, or there is none.  * not read in the source named.
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
    from labkit.cli.console import Console
    from labkit.hardware.tiers import FIGURES

    rows = [
        [tier.name, str(tier.year or "-"), str(tier.cores or "-"), *(_cell(tier.figure(name)) for name in FIGURES)]
        for tier in tiers
    ]
    # wider than a classic terminal: better long lines than numbers cut in two
    console = Console(width=max(Console().width, TABLE_WIDTH))
    console.print(_table(["tier", "year", "cores", *(heading for heading, _ in FIGURES.values())], rows))
    print(LEGEND)


def _table(headings: list[str], rows: list[list[str]], left: tuple[int, ...] = (0,)) -> Table:
    """Not `print_frame`: the catalogue is there at once, without pandas."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _print_tier(tier: Tier) -> None:
    from labkit.cli.console import Console
    from labkit.hardware.tiers import FIGURES

    console = Console(highlight=False)
    about = ", ".join(str(part) for part in (tier.kind, tier.year, tier.cores and f"{tier.cores} cores") if part)
    console.print(f"{tier.label}   {tier.name}: {about}")
    if tier.note:
        console.print(tier.note)
    rows = []
    for name, (_, meaning) in FIGURES.items():
        figure = tier.figure(name)
        remarks = [figure.source, figure.note, None if figure.checked else "not read in the source named"]
        said = "\n".join(filter(None, remarks))
        rows.append([meaning, _cell(figure), said, figure.date or ""])
    console.print(_table(["figure", "value", "source", "date"], rows, left=(0, 2, 3)))
    pages = {figure.source: figure.url for figure in tier.figures.values() if figure.source}
    for title, url in pages.items():
        console.print(f"{title}\n  {url}", soft_wrap=True)


def _cell(figure: Figure) -> str:
    return "-" if figure.value is None else f"{figure.value:,g}" + ("" if figure.checked else "*")
