"""`labkit tiers`: the catalogue of hardware, with the source of each figure."""

from __future__ import annotations

import argparse
import json

from labkit import hardware

TABLE_WIDTH = 116
"""Width of the catalogue in characters. On a narrower terminal, long lines are better than numbers cut in two."""
LEGEND = """FP32, TF32, BF16: dense peaks in TFLOP/s. $: list price. $/h: rental price.
-: no source found.  *: not verified in the named source.  Figures of a server are per device.
`labkit tiers NAME` shows the source and date of each figure."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("tiers", help="list the catalogue of hardware tiers, from laptops to servers")
    parser.add_argument("name", nargs="?", metavar="NAME", help="show one tier, with the source of each figure")
    parser.add_argument("--json", action="store_true", help="print JSON, with the source and date of each figure")
    parser.set_defaults(run=run_tiers)


def run_tiers(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console, print_frame

    tiers = [hardware.get_tier(args.name)] if args.name else list(hardware.load_tiers().values())
    if args.json:
        content = [tier.to_dict() for tier in tiers]
        print(json.dumps(content[0] if args.name else content, indent=2))
    elif args.name:
        _print_tier(tiers[0])
    else:
        rows = [
            {"tier": tier.name, "year": str(tier.year or "-"), "cores": tier.cores or "-"}
            | {heading: _cell(tier.figure(name)) for name, (heading, _) in hardware.FIGURES.items()}
            for tier in tiers
        ]
        print_frame(Console(width=max(Console().width, TABLE_WIDTH)), rows)
        print(LEGEND)
    return 0


def _print_tier(tier: hardware.Tier) -> None:
    from labkit.cli.console import Console, print_frame

    console = Console(highlight=False)
    about = ", ".join(str(part) for part in (tier.kind, tier.year, tier.cores and f"{tier.cores} cores") if part)
    console.print("\n".join(filter(None, [f"{tier.label}   {tier.name}: {about}", tier.note])))
    rows = []
    for name, figure in tier.figures.items():
        _, meaning = (hardware.FIGURES | hardware.SERVER_FIGURES)[name]
        remarks = [figure.source, figure.note, None if figure.checked else "not verified in the named source"]
        row = {"figure": meaning, "value": _cell(figure), "source": "\n".join(filter(None, remarks))}
        rows.append(row | {"date": figure.date})
    print_frame(console, rows)
    pages = {figure.source: figure.url for figure in tier.figures.values() if figure.source}
    for title, url in pages.items():
        console.print(f"{title}\n  {url}", soft_wrap=True)


def _cell(figure: hardware.Figure) -> str:
    return "-" if figure.value is None else f"{figure.value:,g}" + ("" if figure.checked else "*")
