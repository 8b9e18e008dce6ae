"""`labkit runs`: list runs, show one, ask one to stop."""

from __future__ import annotations

import argparse
import json
from typing import Any

from labkit import UserError, project, runs
from labkit.cli.flags import RUN, add_flags

IMPORTER = f"python {project.shipped_datasets() / 'recorded' / 'published.py'}"
"""The command that makes a recording of files that others published"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("runs", help="list runs, show one, ask one to stop")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, run, words in (
        ("list", run_list, "one line per run, oldest first"),
        ("show", run_show, "everything that a run recorded about itself"),
        ("stop", run_stop, "ask a run to end after the current step, with everything saved"),
    ):
        command = commands.add_parser(name, help=words)
        command.set_defaults(run=run)
        if name != "list":
            command.add_argument("which", **RUN)
        add_flags(command, "runs_dir", *["json"] * (name != "stop"))
    command = commands.add_parser("import")  # not listed in the help; it names what replaced it
    command.add_argument("rest", nargs=argparse.REMAINDER)
    command.set_defaults(run=run_import)


def run_list(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console, print_frame

    rows = runs.list_rows(args.runs_dir)
    if args.json:
        print(json.dumps(rows))
    elif not rows:
        print(f"no runs in {args.runs_dir}: start one with `labkit train dlrm` or `labkit tour`.")
    else:
        marked = sorted({row["provenance"] for row in rows} - {"measured"})
        console = Console()
        print_frame(console, [_line_of(row) for row in rows])
        console.print(f"Measured here{', but for * ' + ', '.join(marked) if marked else ''}.")
    for card in [] if args.json else sorted(args.runs_dir.glob(f"*/{runs.CARD}")):
        print(f"{card.parent} is a recording: `labkit data recorded show {card.parent}`.")
    return 0


def _line_of(row: dict[str, Any]) -> dict[str, str]:
    status = "profiled" if row["profiled"] and row["status"] == "done" else row["status"]
    status = "energy trial" if row["trial"] and row["status"] in ("done", "stopped") else status
    return {
        "run": row["run"],
        "budget": row["budget"] + ("" if row["provenance"] == "measured" else "*"),
        "seed": str(row["seed"]),
        "status": status + (", disturbed" if row["disturbed"] else ""),
        "target": "–" if row["target"] is None else f"{row['target_metric']} {row['target']:g}",
        "reached": "–" if row["time_to_target_s"] is None else f"{row['time_to_target_s']:.1f} s",
    }


def run_import(args: argparse.Namespace) -> int:
    raise UserError(f"`labkit runs import` is now a script: run {IMPORTER} with the same files and options.")


def run_show(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    import pandas as pd

    from labkit.cli.console import Console, marked, print_frame

    folder = runs.find_run(args.which, args.runs_dir)
    record, events = runs.read_run(folder), runs.read_events(folder)
    if args.json:
        print(json.dumps(asdict(record) | {"folder": str(folder), "events": events}))
        return 0
    console = Console()
    head = marked("[bold]{}[/bold]  {}  ({})", record.id, record.status, folder)
    console.print(head, highlight=False, soft_wrap=True)
    provenance = record.provenance
    console.print(f"{provenance.kind} by {provenance.by} on {record.host}, {provenance.when} {provenance.note}")
    print_frame(console, [_event_row(event) for event in events if event["event"] != "checkpoint"], "what happened")
    logged = runs.read_metrics([folder]).groupby("name")["value"].agg(["last", "size"])
    if len(logged):
        rows = [
            {"logged": each.Index, "last": f"{each.last:.6g}", "times": f"{each.size:,}"}
            for each in logged.itertuples()
        ]
        print_frame(console, rows)
    for title, content in (("result", record.result or {}), ("config", record.config), ("software", record.software)):
        flat = pd.json_normalize(content).iloc[:1].astype(str)
        print_frame(console, pd.DataFrame({title: [*flat], "": [*flat.to_numpy().ravel()]}))
    return 0


def run_stop(args: argparse.Namespace) -> int:
    folder = runs.find_run(args.which, args.runs_dir)
    runs.request_stop(folder)
    print(f"Asked {folder.name} to stop; `labkit runs show {folder.name}` says when it has.")
    return 0


def _event_row(event: dict[str, Any]) -> dict[str, str]:
    others = {k: v for k, v in event.items() if k not in ("event", "time", "wall_s", "train_s", "samples", "step")}
    metrics = {name: round(value, 5) for name, value in event.get("metrics", {}).items() if value is not None}
    return {
        "event": event["event"],
        "wall s": f"{event['wall_s']:.2f}" if "wall_s" in event else "",
        "samples": f"{event['samples']:,}" if "samples" in event else "",
        "what": ", ".join(f"{name} {value}" for name, value in (metrics or others).items()),
    }
