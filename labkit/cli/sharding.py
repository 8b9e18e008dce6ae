"""`labkit whatif sharding`: on which process each embedding table goes, predicted, and then measured."""

from __future__ import annotations

import argparse
import json

from labkit.cli.predict import add_card
from labkit.errors import UserError
from labkit.hardware import read_cpu

EXAMPLE = {"rows": (1_000_000, 500_000, 200_000, 100_000, 50_000, 20_000), "lookups": (1, 1, 4, 1, 20, 40)}
MOST_BYTES = 2**31


def add_parser(commands: argparse._SubParsersAction) -> None:
    words = "place embedding tables on processes of this machine"
    parser = commands.add_parser("sharding", help=words, description=words)
    add_card(parser)
    for name, own in EXAMPLE.items():
        shown = ",".join(map(str, own))
        parser.add_argument(
            f"--{name}", type=numbers, default=own, metavar="N,N,…", help=f"of each table (default: {shown})"
        )
    for name, value, help in (
        ("dim", 64, "of a row"), ("batch-size", 2048, "samples of all processes together"), ("processes", 2, "gloo's"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"{help} (default: {value})")
    parser.add_argument("--measure", action="store_true", help="then measure each placement")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def run(args: argparse.Namespace) -> int:
    for name in ("rows", "lookups"):
        if min(getattr(args, name)) < 1:
            raise UserError(f"--{name}: give whole numbers of at least 1.", field=name)
    if len(args.rows) != len(args.lookups):
        said = f"--rows names {len(args.rows)} tables and --lookups {len(args.lookups)}: give one number a table."
        raise UserError(said, field="lookups")
    if args.processes > (cores := read_cpu().available_cores):
        raise UserError(
            f"--processes {args.processes}: this process may use {cores} cores, and each process needs its own.",
            field="processes",
        )
    if args.processes < 2 or args.dim < 1 or args.batch_size < 1 or args.batch_size % args.processes:
        raise UserError(
            f"--processes {args.processes}, --batch-size {args.batch_size}: give at least 2 processes, and a batch "
            "that they can share evenly.",
            field="processes",
        )
    if (needed := 4 * args.dim * sum(args.rows)) > MOST_BYTES:
        raise UserError(f"--rows: these tables take {needed / 2**30:.1f} GiB; 2 are the most here.", field="rows")
    from labkit.perfmodel import read_card

    card = read_card(args.card)
    from labkit.perfmodel import (
        bus_factor,
        fit_transfer,
        sharding,  # torch comes with it
    )

    tables = sharding.Tables(args.rows, args.lookups, args.dim, args.batch_size)
    ways = sharding.placements(tables, args.processes)
    factor = bus_factor("all_to_all", args.processes)
    times = sharding.time_collectives(args.processes)["all_to_all"]
    exchange = fit_transfer(sharding.SIZES, times, factor)
    predicted = {
        name: sharding.predict_placement(tables, way, args.processes, card, exchange) for name, way in ways.items()
    }
    measured = sharding.measure_placements(tables, ways, args.processes) if args.measure else {}
    rows = [
        {
            "placement": name,
            "processes": list(ways[name]),
            "predicted_ms": 1e3 * seconds,
            "measured_ms": 1e3 * measured[name] if measured else None,
        }
        for name, seconds in sorted(predicted.items(), key=lambda each: each[1])
    ]
    if args.json:
        print(json.dumps({"device": card.device, "threads": card.threads, "placements": rows}))
        return 0
    from labkit.cli.console import Console, print_frame

    console = Console(highlight=False)
    if card.threads != 1:
        console.print(
            f"This card is of {card.threads} threads, and each process has one: `labkit calibrate --budget one-core` "
            "makes the card that fits."
        )
    print_frame(
        console,
        [
            {
                "placement": row["placement"],
                "process of each table": " ".join(map(str, row["processes"])),
                "predicted, ms": f"{row['predicted_ms']:.3g}",
                **({"measured, ms": f"{row['measured_ms']:.3g}"} if measured else {}),
            }
            for row in rows
        ],
    )
    console.print(
        f"A step of the slowest of {args.processes} processes, with both exchanges (gloo, measured here: "
        f"{1e6 * exchange.start_s:.0f} µs, and {1e6 * exchange.byte_s * 2**20:.0f} µs a MiB)."
    )
    return 0
