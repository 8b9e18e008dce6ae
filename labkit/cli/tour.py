"""`labkit tour`: every job under every budget of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli.flags import add_flags

if TYPE_CHECKING:
    from labkit.launch import Launches


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "tour",
        help="train both jobs to their targets under every budget of this machine, and write the report",
        description="Train a DLRM and a speech recogniser to their targets under every budget this machine offers, "
        "three seeds each; then print the table and write the page.",
    )
    parser.add_argument("--jobs", nargs="+", choices=("dlrm", "speech"), default=["dlrm", "speech"], help="which jobs")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="which seeds (default: 0 1 2)"
    )
    add_flags(parser, "runs_dir")
    parser.add_argument("--out", type=Path, default=Path("report/index.html"), metavar="FILE", help="the page to write")
    parser.set_defaults(run=run_tour)


def run_tour(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console, print_frame
    from labkit.cli.display import TourDisplay
    from labkit.launch import plan_tour, run_tour
    from labkit.tracking import StopRequest

    console = Console()
    tour = plan_tour(args.jobs, args.seeds, args.runs_dir)
    console.print(
        f"{len(tour)} runs, one after another: {', '.join(args.jobs)} × budgets × seeds. Ctrl-C keeps what is done."
    )
    with StopRequest() as stop, TourDisplay(console, args.runs_dir) as display:
        launches = run_tour(tour, args.runs_dir, display.show_part, stop)
    folders = [launches.run_folder(part) for part in launches.parts.values() if part.run is not None]
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
    for part in launches.parts.values():
        if part.status == "stopped" and part.run is not None:
            folder = launches.run_folder(part)
            console.print(f"Go on with: labkit train {part.launch.label} --resume {folder}", soft_wrap=True)
    return exit_status(launches)


def exit_status(tour: Launches) -> int:
    """0 when every run reached its target, 130 when stopped, 2 when the user can fix all that failed, else 1."""
    parts = tour.parts.values()
    if any(part.status in ("stopped", "waiting") for part in parts):
        return 130
    failed = [part for part in parts if part.status in ("failed", "out_of_memory")]
    if failed and all(part.more.get("refused") for part in failed):
        return 2
    records = [tour.record_of(part) for part in parts]
    return 0 if all(record and record.result and record.result["target_reached"] for record in records) else 1
