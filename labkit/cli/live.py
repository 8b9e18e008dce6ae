"""`labkit live`: the page over all runs of some folders, served while they go on."""

import argparse
import webbrowser
from pathlib import Path

from labkit import UserError
from labkit.cli.flags import add_command


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    about = (
        "Serves the report's page over all runs of these folders on 127.0.0.1, with new points as they come, until "
        "Ctrl-C. The address that it prints ends in a token: who does not have it gets nothing."
    )
    add = add_command(subparsers, "live", description=about, run=run_live).add_argument
    words = "folders of runs (default: runs)"
    add("runs_dirs", nargs="*", type=Path, default=[Path("runs")], metavar="RUNS_DIR", help=words)
    add("--port", type=int, default=0, metavar="N", help="port of 127.0.0.1 (default: a free one)")
    add("--no-browser", action="store_true", help="print the address only")


def run_live(args: argparse.Namespace) -> None:
    from labkit import live

    if not 0 <= args.port < 65536:
        raise UserError(f"--port is {args.port}: give a number from 1 to 65535, or 0 for a free one.")

    def ready(address: str) -> None:
        print(f"The page is at {address}\nCtrl-C ends it; the runs go on.", flush=True)
        if not args.no_browser:
            webbrowser.open(address)

    live.serve(args.runs_dirs, port=args.port, ready=ready)
