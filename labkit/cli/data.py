"""`labkit data`: list the datasets, make a click log, prepare one before training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
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
    clicks.add_argument("--rows", type=int, default=100_000, metavar="N", help="default: 100000")
    clicks.add_argument("--seed", type=int, default=0, metavar="N", help="of the teacher and the rows; default: 0")
    clicks.add_argument("--out", required=True, metavar="FILE", help="a name ending in .gz is packed")
    layout = "criteo: 40 fields, tabs, no header (default); csv and parquet have a header"
    clicks.add_argument("--format", default="criteo", choices=("criteo", "csv", "parquet"), help=layout)
    clicks.add_argument("--dense-dim", type=int, metavar="N", help="number of dense features; default: 13")
    tables = "rows of each table; default: 26, from 200 to 30000"
    clicks.add_argument("--num-rows", type=int, nargs="+", metavar="N", help=tables)
    clicks.add_argument("--zipf-exponent", type=float, metavar="X", help="skew of the categories; default: 1.05")
    clicks.add_argument("--bayes-auc", type=float, metavar="X", help="AUC of the true probabilities; default: 0.8")
    clicks.add_argument("--base-rate", type=float, metavar="X", help="share of clicks; default: 0.25")
    clicks.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
    clicks.set_defaults(run=run_make_clicks)

    prepare = commands.add_parser("prepare", help="download if need be, check and prepare a dataset")
    prepare.add_argument("data", metavar="NAME|PATH", help="a name from `labkit data list`, a file or a folder")
    prepare.add_argument("--schema", metavar="FILE", help="what the columns of a table mean; see datasets/schemas")
    policy = "stop at a bad row, or count and list it"
    prepare.add_argument("--on-bad-row", choices=("error", "skip"), default="error", help=policy)
    prepare.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of a generator or a random split; default: 0"
    )
    prepare.set_defaults(run=run_prepare)


def run_list(args: argparse.Namespace) -> int:
    """Print the catalogue."""
    from labkit.data.catalog import list_datasets
    from labkit.data.store import prepared_root

    datasets = list_datasets()
    if args.json:
        rows = [vars(item) | {"state": item.state()} for item in datasets]
        print(json.dumps([{key: row[key] for key in row if key != "archives"} for row in rows], indent=2))
        return 0

    import pandas as pd

    from labkit.cli.console import Console, print_frame

    columns = ("name", "kind", "extent", "MB", "here?", "licence", "source")
    sizes_mb = [None if item.size_bytes is None else f"{item.size_bytes / 1e6:,.0f}" for item in datasets]
    lines = [
        (item.name, item.kind, item.extent, size_mb, item.state(), item.licence, item.source)
        for item, size_mb in zip(datasets, sizes_mb, strict=True)
    ]
    console = Console()
    print_frame(console, pd.DataFrame(lines, columns=columns))
    console.print(f"Prepared data is kept in {prepared_root()} (LABKIT_CACHE chooses another folder).", soft_wrap=True)
    return 0


def run_make_clicks(args: argparse.Namespace) -> int:
    """Generate a click log into a file."""
    from pathlib import Path

    from labkit.data.clicks.generate import GeneratorConfig
    from labkit.data.clicks.synthetic import write_clicks

    out = Path(args.out)
    if out.exists() and not args.overwrite:
        raise UserError(f"{out} is there already: choose another --out, or replace it with --overwrite.")
    if args.rows < 1:
        raise UserError(f"--rows is {args.rows}: give a whole number of at least 1.")
    names = ("dense_dim", "num_rows", "zipf_exponent", "bayes_auc", "base_rate")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    config = GeneratorConfig(train_rows=args.rows, seed=args.seed, **given)
    with progress_bar() as progress:
        write_clicks(out, args.rows, config, args.format, progress)
    print(f"Wrote {args.rows:,} rows to {out} ({out.stat().st_size / 1e6:,.1f} MB).")
    return 0


def run_prepare(args: argparse.Namespace) -> int:
    """Prepare one dataset and say what it holds."""
    from labkit.data.catalog import DOWNLOADS, kind_of
    from labkit.data.fetch import fetch

    data = args.data
    with progress_bar() as progress:
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
def progress_bar() -> Iterator[Progress]:
    """A live bar on standard error, with the words of each new stage kept above it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from labkit.cli.console import Console

    words = (TextColumn("{task.percentage:3.0f} %"), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(BarColumn(), *words, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def show(fraction: float, text: str) -> None:
            # What a preflight says (fraction 0) stays on the screen.
            if fraction == 0.0:
                bar.console.print(text, soft_wrap=True, highlight=False)
            bar.update(task, completed=fraction, description=text)

        yield show
