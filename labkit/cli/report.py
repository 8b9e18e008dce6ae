"""`labkit report`: the page about any set of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from labkit import UserError, plots, report
from labkit.cli.flags import add_flags, read_only

MOST_LINES = 40
"""Most series that a page of a recording shows"""


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "report",
        help="write one offline page, with time-to-accuracy plots, about a folder of runs",
    )
    add, runs, page = parser.add_argument, Path("runs"), Path("report/index.html")
    add("runs_dir", nargs="?", type=Path, default=runs, metavar="RUNS_DIR", help="folder of runs (default: runs)")
    add("--out", type=Path, default=page, metavar="FILE", help=f"the page to write (default: {page})")
    add("--undisturbed", action="store_true", help="leave out runs that other programs disturbed")
    add("--recorded", metavar="NAME", help="report on a recording instead: its name, or the folder of your own")
    add_flags(parser, "only")
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    from labkit.runs import list_runs, recorded, run_folders

    if args.only and not args.recorded:
        raise UserError("--only chooses runs of a recording: name the recording with --recorded, or omit --only.")
    if args.recorded:
        frames = recorded(args.recorded, **read_only(args.only))
        if (lines := len(frames.runs[["budget", "setting"]].drop_duplicates())) > MOST_LINES:
            raise UserError(f"these are {lines} series, too many for a page: choose some, as --only power_limit_w=max.")
        page = report.write_report(frames, args.out)
        print(f"{plots.counted(len(frames.runs), 'recorded run')} in {page}\nOpen it in a browser: {page.as_uri()}")
        return 0
    runs = list_runs(args.runs_dir)
    profiled, trials = (runs[name].astype(bool) for name in ("profiled", "trial"))
    disturbed = ~(profiled | trials) & (runs["disturbed"] != "") & args.undisturbed
    for kind, left_out, words in (
        ("profiled run", profiled, ": `labkit profile show RUN` shows one."),
        ("energy trial", trials, ": `labkit energy RUN` reports one."),
        ("disturbed run", disturbed, "; `labkit runs list` names them."),
    ):
        if left_out.any():
            print(f"{plots.counted(left_out.sum(), kind)} left out{words}")
    count = len(runs) - int((profiled | trials | disturbed).sum())
    if not count:
        raise UserError(
            f"{args.runs_dir} holds no {'other ' * bool(len(runs))}runs: make some with `labkit train dlrm` or "
            "`labkit tour`, or give the folder that holds them."
        )
    # of all folders: the page names those that cannot be read
    page = report.write_report(run_folders(args.runs_dir), args.out, undisturbed=args.undisturbed)
    print(f"{plots.counted(count, 'run')} in {page}\nOpen it in a browser: {page.as_uri()}")
    return 0
