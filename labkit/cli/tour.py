"""`labkit tour`: every job under every budget of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli.flags import add_flags
from labkit.errors import UserError

if TYPE_CHECKING:
    from labkit.launch import TourRun


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "tour",
        help="train both jobs to their targets under every budget of this machine, and write the report",
        description="Train a DLRM and a speech recogniser to their targets under every budget this machine offers, "
        "two seeds each; then print the table and write the page.",
    )
    parser.add_argument("--jobs", nargs="+", choices=("dlrm", "speech"), default=["dlrm", "speech"], help="which jobs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1], metavar="N", help="which seeds (default: 0 1)")
    add_flags(parser, "runs_dir")
    parser.add_argument("--out", type=Path, default=Path("report/index.html"), metavar="FILE", help="the page to write")
    parser.set_defaults(run=run_tour)


def run_tour(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console, print_frame
    from labkit.cli.display import TourDisplay
    from labkit.launch import plan_tour, run_tour

    console = Console()
    tour = plan_tour(args.jobs, args.seeds)
    console.print(
        f"{len(tour)} runs, one after another: {', '.join(args.jobs)} × budgets × seeds. Ctrl-C keeps what is done."
    )
    with TourDisplay(console) as display:
        run_tour(tour, args.runs_dir, display.show)
    folders = [run.folder for run in tour if run.folder is not None]
    if folders:
        from labkit.report import headline, notes, terminal_frames, write_report
        from labkit.tta import curves, run_table, summary

        runs = run_table(folders)
        results = summary(curves(folders, runs=runs), runs)
        for title, frame in terminal_frames(results):
            print_frame(console, frame, title)
        for line in [*notes(results), *(headline(job) for _, job in results.groupby("job", sort=False))]:
            console.print(line, highlight=False)
        page = write_report(folders, args.out)
        console.print(f"The plots: {page}", soft_wrap=True)
    for run in tour:
        if run.state == "stopped" and run.folder is not None:
            console.print(f"Go on with: labkit train {run.job} --resume {run.folder}", soft_wrap=True)
    return exit_status(tour)


def exit_status(tour: list[TourRun]) -> int:
    """0 when every run reached its target, 130 when stopped, 2 when all that failed is the user's to mend, else 1."""
    if any(run.state in ("stopped", "waiting") for run in tour):
        return 130
    failures = [run.error for run in tour if run.error is not None]
    if failures and all(isinstance(error, UserError) for error in failures):
        return 2
    return 0 if all(run.reached_target for run in tour) else 1
