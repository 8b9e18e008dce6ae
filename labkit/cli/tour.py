"""`labkit tour`: every job under every budget of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from labkit import launch, report, tracking, tta
from labkit.cli.flags import add_flags


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
    from labkit.launch import run_tour

    console = Console()
    tour = launch.plan_tour(args.jobs, args.seeds, args.runs_dir)
    console.print(
        f"{len(tour)} runs, one after another: {', '.join(args.jobs)} × budgets × seeds. Ctrl-C keeps what is done."
    )
    with tracking.StopRequest() as stop, TourDisplay(console, args.runs_dir) as display:
        launches = run_tour(tour, args.runs_dir, display.show_part, stop)
    folders = [launches.run_folder(part) for part in launches.parts.values() if part.run is not None]
    if folders:
        runs = tta.run_table(folders)
        results = tta.summary(tta.curves(folders, runs=runs), runs)
        for title, frame in report.terminal_frames(results):
            print_frame(console, frame, title)
        for line in [*report.notes(results), *(report.headline(job) for _, job in results.groupby("job", sort=False))]:
            console.print(line, highlight=False)
        page = report.write_report(folders, args.out)
        console.print(f"The plots: {page}", soft_wrap=True)
    for part in launches.parts.values():
        if part.status == "stopped" and part.run is not None:
            folder = launches.run_folder(part)
            console.print(f"Go on with: labkit train {part.launch.label} --resume {folder}", soft_wrap=True)
    return exit_status(launches)


def exit_status(tour: launch.Launches) -> int:
    """0 when every run reached its target, 130 when stopped, 2 when the user can fix all that failed, else 1."""
    parts = tour.parts.values()
    if any(part.status in ("stopped", "waiting") for part in parts):
        return 130
    failed = [part for part in parts if part.status in ("failed", "out_of_memory")]
    if failed and all(part.more.get("refused") for part in failed):
        return 2
    records = [tour.record_of(part) for part in parts]
    return 0 if all(record and record.result and record.result["target_reached"] for record in records) else 1
