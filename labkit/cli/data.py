"""`labkit data`: list the datasets, make a click log, prepare one before training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING

from labkit.errors import UserError

if TYPE_CHECKING:
    from labkit.data.store import Progress


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("data", help="list, make and prepare datasets")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="every dataset that has a name, and whether it is here")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=run_list)

    make = commands.add_parser("make", help="generate a dataset into a file")
    kinds = make.add_subparsers(title="kinds", metavar="KIND", required=True)
    clicks = kinds.add_parser("clicks", help="a click log with a planted teacher")
    add = clicks.add_argument
    add("--rows", type=int, default=100_000, metavar="N", help="default: 100000")
    add("--seed", type=int, default=0, metavar="N", help="of the teacher and the rows; default: 0")
    add("--out", required=True, metavar="FILE", help="a name ending in .gz is packed")
    layout = "criteo: 40 fields, tabs, no header (default); csv and parquet have a header"
    add("--format", default="criteo", choices=("criteo", "csv", "parquet"), help=layout)
    add("--dense-dim", type=int, metavar="N", help="number of dense features; default: 13")
    add("--num-rows", type=int, nargs="+", metavar="N", help="rows of each table; default: 26, from 200 to 30000")
    add("--zipf-exponent", type=float, metavar="X", help="skew of the categories; default: 1.05")
    add("--bayes-auc", type=float, metavar="X", help="AUC of the true probabilities; default: 0.8")
    add("--base-rate", type=float, metavar="X", help="share of clicks; default: 0.25")
    add("--overwrite", action="store_true", help="replace the file if it is there")
    clicks.set_defaults(run=run_make_clicks)

    prepare = commands.add_parser("prepare", help="download if need be, check and prepare a dataset")
    add, policy = prepare.add_argument, "stop at a bad row, or count and list it"
    add("data", metavar="NAME|PATH", help="a name from `labkit data list`, a file or a folder")
    add("--schema", metavar="FILE", help="what the columns of a table mean; see datasets/schemas")
    add("--on-bad-row", choices=("error", "skip"), default="error", help=policy)
    add("--seed", type=int, default=0, metavar="N", help="of a generator or a random split; default: 0")
    prepare.set_defaults(run=run_prepare)


def run_list(args: argparse.Namespace) -> int:
    from labkit.data.catalog import list_datasets
    from labkit.data.store import prepared_root

    datasets = list_datasets()
    if args.json:
        rows = [vars(item) | {"state": item.state()} for item in datasets]
        print(json.dumps([{key: row[key] for key in row if key != "archives"} for row in rows], indent=2))
        return 0

    from labkit.cli.console import Console, print_frame

    console, rows = Console(), []
    for item in datasets:
        size_mb = None if item.size_bytes is None else f"{item.size_bytes / 1e6:,.0f}"
        told = {"name": item.name, "kind": item.kind, "extent": item.extent, "MB": size_mb, "here?": item.state()}
        rows.append(told | {"licence": item.licence, "source": item.source})
    print_frame(console, rows)
    console.print(f"Prepared data is kept in {prepared_root()} (LABKIT_CACHE chooses another folder).", soft_wrap=True)
    return 0


def run_make_clicks(args: argparse.Namespace) -> int:
    from pathlib import Path

    from labkit.data.clicks.generate import GeneratorConfig
    from labkit.data.clicks.synthetic import write_clicks

    out = Path(args.out)
    if out.exists() and not args.overwrite:
        raise UserError(f"{out} is there already: choose another --out, or replace it with --overwrite.")
    if args.rows < 1:
        raise UserError(f"--rows is {args.rows}: give a whole number of at least 1.")
    given = {field.name: getattr(args, field.name, None) for field in fields(GeneratorConfig)}
    given = {name: value for name, value in given.items() if value is not None}
    config = GeneratorConfig(**given | {"train_rows": args.rows})
    with shown_progress() as progress:
        write_clicks(out, args.rows, config, args.format, progress)
    print(f"Wrote {args.rows:,} rows to {out} ({out.stat().st_size / 1e6:,.1f} MB).")
    return 0


def run_prepare(args: argparse.Namespace) -> int:
    from labkit.data.catalog import DOWNLOADS, fetch, kind_of

    data = args.data
    with shown_progress() as progress:
        if data in DOWNLOADS:
            data = str(fetch(data, DOWNLOADS[data].archives, progress=progress))
        options = {"on_bad_row": args.on_bad_row, "progress": progress, "seed": args.seed}
        if args.schema is None and kind_of(data) == "speech":
            from labkit.data.speech import load_speech

            prepared = load_speech(data, **options)
        else:
            from labkit.data.clicks import load_clicks

            prepared = load_clicks(data, schema=args.schema, **options)
    print(prepared)
    if data != args.data:
        print(f"Downloaded to {data}: train on it with --data and that path.")
    if "bayes_auc" in prepared.info:
        print(f"The true probabilities reach AUC {prepared.info['bayes_auc']:.4f} on the test rows.")
    skipped = prepared.info.get("skipped", {"rows": 0, "first": []})
    if skipped["rows"]:
        print(f"Bad rows skipped: {skipped['rows']:,}; the first of them:")
        for row in skipped["first"][:5]:
            print(f"  {row['file']}, line {row['line']}: {row['reason']}")
    print(f"Prepared in {prepared.folder}")
    return 0


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Shows on standard error how far it is; what a preflight says (fraction 0) stays on the screen."""
    from labkit.cli.console import Console
    from labkit.cli.display import Display

    with Display(Console(stderr=True)) as display:

        def show(fraction: float, text: str) -> None:
            if fraction == 0.0:
                display.print(text)
            display.says("", f"{fraction:4.0%}  {text}")

        yield show
