"""`labkit whatif sharding`: the best process for each embedding table, predicted, and then measured."""

from __future__ import annotations

import argparse
import json

from labkit.cli.predict import add_card

EXAMPLE = {"rows": (1_000_000, 500_000, 200_000, 100_000, 50_000, 20_000), "lookups": (1, 1, 4, 1, 20, 40)}


def add_parser(commands: argparse._SubParsersAction) -> None:
    words = "place embedding tables on processes of this machine"
    parser = commands.add_parser("sharding", help=words, description=words)
    add_card(parser)
    for name, own in EXAMPLE.items():
        words = f"of each table (default: {','.join(map(str, own))})"
        parser.add_argument(f"--{name}", type=_numbers, default=own, metavar="N,N,…", help=words)
    for name, value, help in (
        ("dim", 64, "length of a row"), ("batch-size", 2048, "samples of all processes"), ("processes", 2, "number"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"{help} (default: {value})")
    parser.add_argument("--measure", action="store_true", help="then measure each placement")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def run(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console, print_frame
    from labkit.perfmodel import Tables, compare_placements, read_card

    tables, card = Tables(args.rows, args.lookups, args.dim, args.batch_size), read_card(args.card)
    rows, exchange = compare_placements(tables, args.processes, card, measure=args.measure)
    if args.json:
        print(json.dumps({"device": card.device, "threads": card.threads, "placements": rows}))
        return 0
    console = Console(highlight=False)
    if card.threads != 1:
        console.print(
            f"This card is of {card.threads} threads, and each process has one: make a card that fits with `labkit "
            "calibrate --budget one-core`."
        )
    shown = [
        {
            "placement": row["placement"],
            "process of each table": " ".join(map(str, row["processes"])),
            "predicted, ms": f"{row['predicted_ms']:.3g}",
            **({"measured, ms": f"{row['measured_ms']:.3g}"} if args.measure else {}),
        }
        for row in rows
    ]
    print_frame(console, shown)
    console.print(
        f"A step of the slowest of {args.processes} processes, with both exchanges (gloo, measured here: "
        f"{1e6 * exchange.start_s:.0f} µs, and {1e6 * exchange.byte_s * 2**20:.0f} µs per MiB)."
    )
    return 0
