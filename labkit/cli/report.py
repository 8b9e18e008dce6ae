"""`labkit report`: the page about any set of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from labkit.errors import UserError


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "report",
        help="write one offline page about a folder of runs",
        description="Write one self-contained page, with time-to-accuracy plots, about the runs in a folder.",
    )
    parser.add_argument(
        "runs_dir",
        nargs="?",
        type=Path,
        default=Path("runs"),
        metavar="RUNS_DIR",
        help="folder of runs (default: runs)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("report/index.html"),
        metavar="FILE",
        help="the page to write (default: report/index.html)",
    )
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    from labkit.report import write_report
    from labkit.runs import list_runs
    from labkit.runs.query import run_folders

    if not args.runs_dir.is_dir():
        raise UserError(
            f"{args.runs_dir} is no folder, so there are no runs to report on: give the folder that holds "
            "them, or make some with `labkit train dlrm` or `labkit tour`."
        )
    runs = list_runs(args.runs_dir)
    folders = [Path(folder) for folder in runs.loc[~runs["profiled"].astype(bool), "folder"]]
    if left_out := len(runs) - len(folders):
        print(f"{left_out} profiled run{'s' * (left_out != 1)} left out: `labkit profile show RUN` shows one.")
    if not folders:
        raise UserError(
            f"{args.runs_dir} holds no {'other ' * bool(left_out)}runs: make some with `labkit train dlrm` or "
            "`labkit tour`, or give the folder that holds them."
        )
    page = write_report(run_folders(args.runs_dir), args.out)  # the page names those that cannot be read
    print(f"{len(folders)} run{'s' * (len(folders) != 1)} in {page}")
    print(f"Open it in a browser: {page.as_uri()}")
    return 0
