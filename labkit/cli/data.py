"""`labkit data`: list the datasets, generate a click log, prepare one before training."""

import argparse
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from labkit import UserError, data, project, runs
from labkit.cli.console import Console, Display, print_frame
from labkit.cli.flags import add_command, commands_of, refuse_unless_positive
from labkit.cli.printing import print_json


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    commands = commands_of(add_command(subparsers, "data"))

    words = "all datasets that have a name, and whether they are on this machine"
    add_command(commands, "list", words, run=run_list, flags="json")

    make = add_command(commands, "make", "generate a dataset into a file")
    kinds = make.add_subparsers(title="kinds", metavar="KIND", required=True)
    add = add_command(kinds, "clicks", "a click log with a planted teacher", run=run_make_clicks).add_argument
    add("--rows", type=int, default=100_000, metavar="N", help="default: 100000")
    add("--seed", type=int, default=0, metavar="N", help="seed of the teacher and the rows; default: 0")
    add("--out", required=True, metavar="FILE", help="compressed if the name ends in .gz")
    layout = "criteo: 40 fields, tabs, no header (default); csv and parquet: with a header"
    add("--format", default="criteo", choices=("criteo", "csv", "parquet"), help=layout)
    add("--dense-dim", type=int, metavar="N", help="number of dense features; default: 13")
    add("--num-rows", type=int, nargs="+", metavar="N", help="rows of each table; default: 26, from 200 to 30000")
    add("--zipf-exponent", type=float, metavar="X", help="skew of the categories; default: 1.05")
    add("--bayes-auc", type=float, metavar="X", help="AUC of the true probabilities; default: 0.8")
    add("--base-rate", type=float, metavar="X", help="share of clicks; default: 0.25")
    add("--overwrite", action="store_true", help="replace the file if it is there")

    words = "download if necessary, check and prepare a dataset"
    add = add_command(commands, "prepare", words, run=run_prepare).add_argument
    add("data", metavar="NAME|PATH", help="a name from `labkit data list`, a file or a folder")
    add("--schema", metavar="FILE", help="TOML file with the meaning of the columns of a table; see datasets/schemas")
    unasked = " and ".join(f"{policy} for {what}" for what, policy in data.UNASKED.items())
    add("--on-bad-row", choices=data.POLICIES, help=f"{data.POLICY_WORDS}; default: {unasked}")
    add("--seed", type=int, default=0, metavar="N", help="seed of a generator or a random split; default: 0")

    recorded = commands_of(add_command(commands, "recorded", "published measurements of others on their hardware"))
    words = "the recordings that ship, their devices and authors"
    add_command(recorded, "list", words, run=run_recorded_list, flags="json")
    words = "its card (content, authors, date, derivation, limits) and its columns"
    show = add_command(recorded, "show", words, run=run_recorded_show)
    fetch = add_command(recorded, "fetch", "download the authors' own files and check them", run=run_recorded_fetch)
    for command in (show, fetch):
        command.add_argument("recording", metavar="NAME", help="from `labkit data recorded list`, or a folder")
    fetch.add_argument("--out", default=".", metavar="DIR", help="folder for them (default: this one)")


def run_list(args: argparse.Namespace) -> None:
    datasets = data.list_datasets()
    if args.json:
        rows = [vars(item) | {"state": item.state()} for item in datasets]
        return print_json([{key: row[key] for key in row if key != "archives"} for row in rows], indent=2)
    console, rows = Console(), []
    for item in datasets:
        size_mb = None if item.size_bytes is None else f"{item.size_bytes / 1e6:,.0f}"
        row = {"name": item.name, "kind": item.kind, "extent": item.extent, "MB": size_mb, "here?": item.state()}
        rows.append(row | {"licence": item.licence, "source": item.source})
    print_frame(console, rows)
    console.print_line(f"Prepared data is kept in {data.prepared_root()} (LABKIT_CACHE chooses another folder).")


def run_make_clicks(args: argparse.Namespace) -> None:
    out = Path(args.out)
    if out.exists() and not args.overwrite:
        raise UserError(f"{out} already exists: choose another --out, or replace it with --overwrite.")
    refuse_unless_positive(rows=args.rows)
    given = {field.name: getattr(args, field.name, None) for field in fields(data.clicks.GeneratorConfig)}
    given = {name: value for name, value in given.items() if value is not None}
    config = data.clicks.GeneratorConfig(**given | {"train_rows": args.rows})
    with shown_progress() as progress:
        data.clicks.write_clicks(out, args.rows, config, args.format, progress)
    print(f"Wrote {args.rows:,} rows to {out} ({out.stat().st_size / 1e6:,.1f} MB).")


def run_prepare(args: argparse.Namespace) -> None:
    path = args.data
    with shown_progress() as progress:
        if args.data in data.DOWNLOADS:
            path = str(data.fetch(args.data, data.DOWNLOADS[args.data].archives, progress=progress))
        kind = data.kind_of(path) if args.schema is None else "clicks"
        policy = args.on_bad_row or data.UNASKED[kind]
        options: dict[str, Any] = {"on_bad_row": policy, "progress": progress, "seed": args.seed}
        if kind == "speech":
            prepared = data.speech.load_speech(path, **options)
        else:
            prepared = data.clicks.load_clicks(path, schema=args.schema, **options)
    print(prepared)
    if path != args.data:
        print(f"Downloaded to {path}: train on it with --data and that path.")
    if "bayes_auc" in prepared.info:
        print(f"The true probabilities reach AUC {prepared.info['bayes_auc']:.4f} on the test rows.")
    skipped = prepared.info.get("skipped", {"rows": 0, "first": []})
    if skipped["rows"]:
        print(f"Bad rows skipped: {skipped['rows']:,}; the first ones:")
        for row in skipped["first"][:5]:
            print(f"  {row['file']}, line {row['line']}: {row['reason']}")
    for notice in prepared.info.get("notices", ()):
        print(f"Note: {notice}")
    print(f"Prepared in {prepared.folder}")


def run_recorded_list(args: argparse.Namespace) -> None:
    rows = [
        {"name": card.name, "what": card.title, "devices": ", ".join(card.devices), "by": card.cite, "when": card.date}
        for card in runs.recordings()
    ]
    if args.json:
        return print_json(rows)
    print_frame(Console(), [{key: row[key] for key in ("name", "what", "devices", "by")} for row in rows])
    print("Recorded by others: `labkit data recorded show NAME` lists the limits of each.")


def run_recorded_show(args: argparse.Namespace) -> None:
    import pandas as pd

    card, console = runs.read_card(args.recording), Console()
    for field in ("title", "authors", "devices", "date", "source", "licence", "derived", "cannot_say"):
        value = getattr(card, field)
        words = ", ".join(value) if isinstance(value, list) else value
        console.print(f"{field.replace('_', ' ')}: {words}", soft_wrap=True, markup=False)
    rows = []
    for file in [runs.RUNS, runs.EVALUATIONS] * card.has_runs + [f"{table}.parquet" for table in card.tables]:
        frame = pd.read_parquet(card.folder / file)
        for name in frame:
            values = frame[name].dropna().drop_duplicates().sort_values().astype(str).tolist()
            few = ", ".join(values) if len(values) <= 12 else f"{len(values)} values, {values[0]} … {values[-1]}"
            rows.append({"file": f"{file} ({len(frame):,} rows)", "column": name, "values": few})
    print_frame(console, rows)


def run_recorded_fetch(args: argparse.Namespace) -> None:
    card = runs.read_card(args.recording)
    folder = Path(args.out) / card.name
    if not card.originals:
        raise UserError(f"recording {card.name!r} has no files to download: see its source, {card.source}.")
    with shown_progress() as progress:
        files = [data.download(original, folder, progress) for original in card.originals]
    print(f"{len(files)} files in {folder}, as their authors published them (SHA-256 matches).")
    importer = project.shipped_datasets() / "recorded" / "published.py"
    print(f"To read them: python {importer} {folder}/* --name {card.name} --cite '{card.cite}'")


@contextmanager
def shown_progress() -> "Generator[data.Progress]":
    """Show the progress on standard error; messages of fraction 0, from before the work, stay on the screen."""
    with Display(Console(stderr=True)) as display:

        def show(fraction: float, text: str) -> None:
            if fraction == 0.0:
                display.print(text)
            display.says("", f"{fraction:4.0%}  {text}")

        yield show
