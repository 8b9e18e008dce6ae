"""`labkit report`: the page about any set of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from labkit.errors import UserError


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "report",
        help="write one offline page, with time-to-accuracy plots, about a folder of runs",
    )
    add, runs, page = parser.add_argument, Path("runs"), Path("report/index.html")
    add("runs_dir", nargs="?", type=Path, default=runs, metavar="RUNS_DIR", help="folder of runs (default: runs)")
    add("--out", type=Path, default=page, metavar="FILE", help=f"the page to write (default: {page})")
    add("--undisturbed", action="store_true", help="leave out runs that other programs disturbed")
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    from labkit.plots.words import counted
    from labkit.report import write_report
    from labkit.runs import list_runs
    from labkit.runs.query import run_folders

    runs = list_runs(args.runs_dir)
    profiled = runs["profiled"].astype(bool)
    disturbed = ~profiled & (runs["disturbed"] != "") & args.undisturbed
    for kind, left_out, words in (
        ("profiled", profiled, ": `labkit profile show RUN` shows one."),
        ("disturbed", disturbed, "; `labkit runs list` names them."),
    ):
        if left_out.any():
            print(f"{counted(left_out.sum(), f'{kind} run')} left out{words}")
    count = len(runs) - int((profiled | disturbed).sum())
    if not count:
        raise UserError(
            f"{args.runs_dir} holds no {'other ' * bool(len(runs))}runs: make some with `labkit train dlrm` or "
            "`labkit tour`, or give the folder that holds them."
        )
    # of all: the page names those that cannot be read
    page = write_report(run_folders(args.runs_dir), args.out, undisturbed=args.undisturbed)
    print(f"{counted(count, 'run')} in {page}\nOpen it in a browser: {page.as_uri()}")
    return 0
