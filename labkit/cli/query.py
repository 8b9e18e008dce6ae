"""`labkit query`: SQL over the runs of several folders."""

import argparse
from pathlib import Path

from labkit import runs
from labkit.cli.console import Console, plain, print_frame
from labkit.cli.flags import add_command
from labkit.cli.printing import print_json

SHOWN = 100
"""Rows of an answer that a table shows"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    add = add_command(subparsers, "query", run=run, flags="json").add_argument
    add("sql", nargs="?", metavar="SELECT", help="what to ask; without it, tables, views and examples are listed")
    add("folders", nargs="*", type=Path, metavar="RUNS_DIR", help="folders of runs, or runs (default: runs)")
    add("--recorded", action="store_true", help="also read the recordings that ship (`labkit data recorded list`)")
    add("--csv", action="store_true", help="print the answer as CSV")


def run(args: argparse.Namespace) -> None:
    console = Console()
    folders = args.folders or [Path("runs")] * (Path("runs").is_dir() or not args.recorded)
    if args.sql is None:
        print_frame(console, [{"table": name, "": words} for name, words in runs.TABLES.items()])
        print_frame(console, [{"view": name, "": view.words} for name, view in runs.VIEWS.items()])
        for words, sql in runs.EXAMPLES.items():
            console.print_line(f'\n{words}:\n  labkit query "{sql.replace(chr(10), " ")}"')
        console.print_line('\nColumns of one: labkit query "DESCRIBE runs"')
        return
    with runs.Database(*folders, recorded=args.recorded) as database:
        if args.json:
            return print_json(plain(database.arrow(args.sql).to_pylist()))
        frame = database.query(args.sql)
    if args.csv:
        print(frame.to_csv(index=False), end="")
        return
    print_frame(console, frame.head(SHOWN))
    if len(frame) > SHOWN:
        console.print_line(f"{SHOWN} of {len(frame):,} rows: --csv and --json print all of them.")
