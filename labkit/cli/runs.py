"""`labkit runs list` and `labkit runs show`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

WIDTH_FOR_PROGRAMS = 200
"""Characters a line where no terminal says otherwise, so that nothing is cut off for `grep`."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("runs", help="list runs, or show one")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="one line a run, oldest first")
    listing.set_defaults(run=run_list)
    show = commands.add_parser("show", help="all that one run recorded about itself")
    show.add_argument("which", metavar="RUN", help="a run's folder, id, or the beginning of its id")
    show.set_defaults(run=run_show)
    stop = commands.add_parser("stop", help="ask a run to end after its step under way, with everything saved")
    stop.add_argument("which", metavar="RUN", help="a run's folder, id, or the beginning of its id")
    stop.set_defaults(run=run_stop)
    stop.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    for command in (listing, show):
        command.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
        command.add_argument("--json", action="store_true", help="print JSON")


def run_list(args: argparse.Namespace) -> int:
    from rich.table import Table

    from labkit.cli.console import Console
    from labkit.runs.query import list_rows

    rows = list_rows(args.runs_dir)
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    if not rows:
        print(f"no runs in {args.runs_dir}: `labkit train dlrm` or `labkit tour` makes some.")
        return 0
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("run", no_wrap=True)
    for title in ("budget", "seed", "status", "target", "reached"):
        table.add_column(title, no_wrap=title == "status")
    for row in rows:
        target = "–" if row["target"] is None else f"{row['target_metric']} {row['target']:g}"
        after = "–" if row["time_to_target_s"] is None else f"{row['time_to_target_s']:.1f} s"
        table.add_row(
            row["run"],
            row["budget"] + ("" if row["provenance"] == "measured" else "*"),
            str(row["seed"]),
            "profiled" if row["profiled"] and row["status"] == "done" else row["status"],
            target,
            after,
        )
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH_FOR_PROGRAMS)
    console.print(table)
    marked = sorted({row["provenance"] for row in rows} - {"measured"})
    console.print(f"Measured here{', but for * ' + ', '.join(marked) if marked else ''}.")
    return 0


def run_show(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from labkit.cli.console import Console, marked
    from labkit.runs import find_run, read_events, read_run

    folder = find_run(args.which, args.runs_dir)
    record, events = read_run(folder), read_events(folder)
    if args.json:
        print(json.dumps(asdict(record) | {"folder": str(folder), "events": events}, indent=1))
        return 0
    console = Console()
    head = marked("[bold]{}[/bold]  {}  ({})", record.id, record.status, folder)
    console.print(head, highlight=False, soft_wrap=True)
    provenance = record.provenance
    console.print(f"{provenance.kind} by {provenance.by} on {record.host}, {provenance.when} {provenance.note}")
    console.print(_evaluations(events))
    for title, content in (("result", record.result or {}), ("config", record.config), ("software", record.software)):
        console.print(_fields(title, content))
    return 0


def run_stop(args: argparse.Namespace) -> int:
    from labkit.runs import find_run, request_stop

    folder = find_run(args.which, args.runs_dir)
    request_stop(folder)
    print(f"Asked {folder.name} to stop; `labkit runs show {folder.name}` says when it has.")
    return 0


def _fields(title: str, content: dict[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
    for name, value in _flat(content):
        table.add_row(name, str(value))
    return table


def _flat(content: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows = []
    for name, value in content.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows


def _evaluations(events: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title="what happened", title_justify="left", box=box.SIMPLE)
    for name in ("event", "wall s", "samples", "what"):
        table.add_column(name)
    for event in events:
        if event["event"] == "checkpoint":
            continue
        rest = {k: v for k, v in event.items() if k not in ("event", "time", "wall_s", "train_s", "samples", "step")}
        if event["event"] == "evaluated":
            metrics = {name: value for name, value in event.get("metrics", {}).items() if value is not None}
            rest = {name: round(metrics[name], 5) for name in metrics if event.get("metric") in (None, name)}
        elif event["event"] == "resumed":
            rest = {"after step": event["step"], "on": event.get("host")}
        what = ", ".join(f"{name} {value}" for name, value in rest.items())
        wall = f"{event['wall_s']:.2f}" if "wall_s" in event else ""
        table.add_row(event["event"], wall, f"{event['samples']:,}" if "samples" in event else "", what)
    return table
