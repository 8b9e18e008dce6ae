"""`labkit runs`: list runs, show one, ask one to stop. `labkit report`: the page about any set of runs."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labkit import UserError, plots, report, runs
from labkit.cli.bridges import add_commands
from labkit.cli.flags import RUN, add_command, commands_of, read_only
from labkit.cli.printing import plain_table, print_json, say

LATE = 0.05
"""Share of the training time from which a rank that others wait for is named"""
MOST_LINES = 40
"""Most series that a page of a recording shows"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    commands = commands_of(add_command(subparsers, "runs"))
    add_command(commands, "list", "one line per run, oldest first", run=run_list, flags="runs_dir json")
    show = add_command(commands, "show", "everything that a run recorded", run=run_show, flags="runs_dir json")
    words = "ask a run to end after the current step, with everything saved"
    stop = add_command(commands, "stop", words, run=run_stop, flags="runs_dir")
    for command in (show, stop):
        command.add_argument("which", **RUN)
    add_commands(commands)

    parser = add_command(subparsers, "report", run=run_report, flags="out only")
    add, words = parser.add_argument, "folder of runs (default: runs)"
    add("runs_dir", nargs="?", type=Path, default=Path("runs"), metavar="RUNS_DIR", help=words)
    add("--undisturbed", action="store_true", help="leave out runs that other programs disturbed")
    add("--recorded", metavar="NAME", help="report on a recording instead: its name, or the folder of your own")


def run_list(args: argparse.Namespace) -> None:
    rows = [runs.list_row(*each) for each in runs.readable_runs(runs.run_folders(args.runs_dir))]
    if args.json:
        return print_json(rows)
    if not rows:
        print(f"no runs in {args.runs_dir}: start one with `labkit train dlrm` or `labkit tour`.")
    else:
        elsewhere = sorted({row["provenance"] for row in rows} - {"measured"})
        lines = [_line_of(row) for row in rows]
        if (table := plain_table(lines)) is not None:
            say(table)
        else:
            from labkit.cli.console import Console, print_frame

            print_frame(Console(), lines)
        say(f"Measured here{', but for * ' + ', '.join(elsewhere) if elsewhere else ''}.")
    for card in sorted(args.runs_dir.glob(f"*/{runs.CARD}")):
        print(f"{card.parent} is a recording: `labkit data recorded show {card.parent}`.")


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


def run_show(args: argparse.Namespace) -> None:
    import pandas as pd

    from labkit.cli.console import Console, marked, print_frame

    folder = runs.find_run(args.which, args.runs_dir)
    record, events = runs.read_run(folder), runs.read_events(folder)
    if args.json:
        return print_json(asdict(record) | {"folder": str(folder), "events": events})
    console = Console()
    console.print_line(marked("[bold]{}[/bold]  {}  ({})", record.id, record.status, folder))
    provenance, result = record.provenance, dict[str, Any](record.result or {})
    console.print(f"{provenance.kind} by {provenance.by} on {record.host}, {provenance.when} {provenance.note}")
    if ranks := _rank_rows(folder, record):
        hosts = len({row["host"] for row in ranks})
        console.print(f"{len(ranks)} processes on {plots.counted(hosts, 'host')}")
        print_frame(console, ranks, "ranks (exchange and waiting: measured, main threads that do not compute)")
        late, train_s = runs.late_rank(result.get("ranks", ())), result.get("train_s")
        if late is not None and train_s and (share := late[1] / train_s) >= LATE:
            console.print_line(f"rank {late[0]} is late: the others waited for it in {share:.0%} of the training time")
        if record.status != "done" and (found := runs.first_failure(runs.read_ranks(folder))) is not None:
            console.print_line(f"failed first: {found[1]}")
    print_frame(console, [_event_row(event) for event in events if event["event"] != "checkpoint"], "what happened")
    logged = runs.read_metrics([folder]).groupby("name")["value"].agg(["last", "size"])
    if len(logged):
        named = zip(logged.index, logged["last"], logged["size"], strict=True)
        rows = [{"logged": name, "last": f"{last:.6g}", "times": f"{size:,}"} for name, last, size in named]
        print_frame(console, rows)
    result.pop("ranks", None)  # they have a table of their own
    for title, content in (("result", result), ("config", record.config), ("software", record.software)):
        flat = pd.json_normalize(dict(content)).iloc[:1].astype(str)
        print_frame(console, pd.DataFrame({title: [*flat], "": [*flat.to_numpy().ravel()]}))


def _rank_rows(folder: Path, record: runs.RunRecord) -> list[dict[str, Any]]:
    """A row for each rank of a run: where it ran, how it ended, its memory, its seconds of exchange and waiting."""
    ranks = (record.result or {}).get("ranks") or [asdict(word) for word in runs.read_ranks(folder)]
    phases = runs.exchange_s(ranks)
    rows = []
    for place, row in enumerate(ranks):
        waited = {name: (exchange, waits[place]) for name, (exchange, waits) in phases.items()}
        cells = {"rank": str(row["rank"]), "host": row["host"], "process": str(row["pid"])}
        cells["ended"] = row["ended"] or "without a word"
        cells["peak memory"] = f"{row['peak_memory_bytes'] / 2**30:.2f} GiB"
        for which, head in enumerate(("exchange", "waiting")):
            long = {name: seconds[which] for name, seconds in waited.items() if seconds[which] >= 0.05}
            cells[head] = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in long.items())
        rows.append(cells)
    return rows


def run_stop(args: argparse.Namespace) -> None:
    folder = runs.find_run(args.which, args.runs_dir)
    runs.request_stop(folder)
    print(f"Asked {folder.name} to stop; `labkit runs show {folder.name}` says when it has.")


def _event_row(event: dict[str, Any]) -> dict[str, str]:
    others = {k: v for k, v in event.items() if k not in ("event", "time", "wall_s", "train_s", "samples", "step")}
    metrics = {name: round(value, 5) for name, value in event.get("metrics", {}).items() if value is not None}
    return {
        "event": event["event"],
        "wall s": f"{event['wall_s']:.2f}" if "wall_s" in event else "",
        "samples": f"{event['samples']:,}" if "samples" in event else "",
        "what": ", ".join(f"{name} {value}" for name, value in (metrics or others).items()),
    }


def run_report(args: argparse.Namespace) -> None:
    if args.only and not args.recorded:
        raise UserError("--only chooses runs of a recording: name the recording with --recorded, or omit --only.")
    if args.recorded:
        frames = runs.recorded(args.recorded, **read_only(args.only))
        if (lines := len(frames.runs[["budget", "setting"]].drop_duplicates())) > MOST_LINES:
            raise UserError(f"these are {lines} series, too many for a page: choose some, as --only power_limit_w=max.")
        page = report.write_report(frames, args.out)
        print(f"{plots.counted(len(frames.runs), 'recorded run')} in {page}\nOpen it in a browser: {page.as_uri()}")
        return
    found = runs.list_runs(args.runs_dir)
    profiled, trials = (found[name].astype(bool) for name in ("profiled", "trial"))
    disturbed = ~(profiled | trials) & (found["disturbed"] != "") & args.undisturbed
    for kind, left_out, words in (
        ("profiled run", profiled, ": `labkit profile show RUN` shows one."),
        ("energy trial", trials, ": `labkit energy RUN` reports one."),
        ("disturbed run", disturbed, "; `labkit runs list` names them."),
    ):
        if left_out.any():
            print(f"{plots.counted(left_out.sum(), kind)} left out{words}")
    count = len(found) - int((profiled | trials | disturbed).sum())
    if not count:
        raise UserError(
            f"{args.runs_dir} holds no {'other ' * bool(len(found))}runs: make some with `labkit train dlrm` or "
            "`labkit tour`, or give the folder that holds them."
        )
    # of all folders: the page names those that cannot be read
    page = report.write_report(runs.run_folders(args.runs_dir), args.out, undisturbed=args.undisturbed)
    print(f"{plots.counted(count, 'run')} in {page}\nOpen it in a browser: {page.as_uri()}")
