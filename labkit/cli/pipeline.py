"""`labkit pipeline`: whole pipelines under a budget: their stages, where memory ends them, their figure of merit."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import UserError, errors, hardware, jobs, pipelines, runs
from labkit.cli.console import Console, json_rows, print_frame
from labkit.cli.flags import RUN, add_command, add_flags, add_harness_flags, commands_of, refuse_unless_positive
from labkit.cli.printing import print_json
from labkit.cli.run import harness_command, print_help, run_here

if TYPE_CHECKING:
    import pandas as pd

RUNS_DIR: dict[str, Any] = {"nargs": "?", "type": Path, "default": Path("runs"), "metavar": "RUNS_DIR"}
RATES = "100,200,400,800"


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    about = "Run whole pipelines, from loading to serving, and say which stage takes what, and what limits it."
    commands = commands_of(add_command(subparsers, "pipeline", description=about))
    words = "run one: seconds, memory, joules and bytes of its stages"
    command = add_command(commands, "run", words, add_help=False)
    names = "; ".join(f"{name}: {kind.words}" for name, kind in pipelines.PIPELINES.items())
    command.add_argument("name", metavar="NAME", nargs="?", help=names)
    add_harness_flags(command)
    command.add_argument("--help", "-h", action="store_true", help="show this, and the flags of the pipeline NAME")
    command.set_defaults(run=run_pipeline, parser=command, passes_on=True)

    command = add_command(commands, "show", "the stages of a run, and the bytes that would leave the machine")
    command.add_argument("RUN", **RUN)
    add_flags(command, "runs_dir", "json", run=show)

    words = "the scale at which memory ends each pipeline, and in which stage, from runs at two scales"
    command = add_command(commands, "limits", words)
    command.add_argument("folder", **RUNS_DIR)
    more = "a tier or budget that limits memory, such as memory=400MiB; may be repeated (default: every edge board)"
    command.add_argument("--budget", action="append", metavar="B", help=more)
    add_flags(command, "json", run=limits)

    command = add_command(commands, "merit", "the figure of merit of the newest run of each pipeline, and per watt")
    command.add_argument("folder", **RUNS_DIR)
    command.add_argument("--power", type=float, metavar="W", help="predict with this power where none was measured")
    add_flags(command, "json", run=merit)

    command = add_command(commands, "ways", "make the features of trips in every way, with one result, and time it")
    command.add_argument("--scale", type=float, default=0.5, help="size of the data (default: 0.5)")
    command.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds, in turn (default: 3)")
    add_flags(command, "json", run=ways)

    command = add_command(commands, "serve", "serve the model of trips here, under an open loop of requests")
    command.add_argument("--rates", default=RATES, metavar="R,R", help=f"requests per second (default: {RATES})")
    command.add_argument("--seconds", type=float, default=5.0, metavar="S", help="seconds at each rate (default: 5)")
    words = "milliseconds for which a micro-batch collects; 0 predicts each request alone (default: 0,4)"
    command.add_argument("--wait-ms", default="0,4", metavar="W,W", help=words)
    command.add_argument("--port", type=int, default=0, help="where to listen on 127.0.0.1 (default: a free port)")
    add_flags(command, "json", run=serve)


def run_pipeline(args: argparse.Namespace) -> int | None:
    kind = pipelines.PIPELINES.get(args.name)
    if args.help:
        return args.parser.print_help() if kind is None else print_help(args.parser, kind)
    if kind is None:
        hint = errors.did_you_mean(args.name or "", pipelines.PIPELINES)
        raise UserError(f"there is no pipeline {args.name!r}: {hint}")
    job = kind.from_settings(jobs.read_flags(kind, args.passed_on, prog=f"labkit pipeline run {args.name}"))
    before = {folder.name for folder in runs.run_folders(args.runs_dir)}
    try:
        return run_here(harness_command(args, job.command()), args.json)
    finally:
        new = [each for each in runs.run_folders(args.runs_dir) if each.name not in before]
        if new and not args.json:
            _print_stages(pipelines.read_pipeline(new[-1]))


def show(args: argparse.Namespace) -> None:
    run = pipelines.read_pipeline(runs.find_run(args.RUN, args.runs_dir))
    if args.json:
        answer = {"stages": json_rows(pipelines.stage_table(run)), "shipped": json_rows(pipelines.shipped(run))}
        return print_json(answer | {"pipeline": run.pipeline, "scale": run.scale, "unfinished": run.unfinished})
    _print_stages(run)


def _print_stages(run: "pipelines.PipelineRun") -> None:
    table, console = pipelines.stage_table(run), Console()
    size = table["bytes_per_item"]
    columns = {
        "stage": table["stage"],
        "seconds": table["seconds"].astype(object).fillna("not finished"),
        "memory": table["peak_bytes"].map(hardware.size_text, na_action="ignore"),
        "joules": table["energy_j"],
        "MB made": table["bytes"] / 1e6,
        "bytes per item": size,
        "times fewer than raw": size.iloc[:1].sum() / size,
        "items": table["items"],
        "of": table["of"],
    }
    title = f"{run.pipeline} at scale {run.scale:g} ({run.record.provenance.kind})"
    print_frame(console, table[[]].assign(**columns), title)
    console.print_line(
        "Memory is the most that was held in the stage. Bytes are computed from rows and types: what would leave the "
        "machine if only this stage's result did."
    )
    for note in sorted(set(filter(None, table["energy_note"].dropna()))):
        console.print_line(f"Joules: {note}.")


def limits(args: argparse.Namespace) -> None:
    table = pipelines.limits_table(pipelines.pipeline_runs(args.folder), args.budget or pipelines.EDGE)
    if table.empty:
        two = "`labkit pipeline run trips --scale 1` and then `--scale 2`"
        raise UserError(f"{args.folder} has no pipeline that ran at two scales: {two}.")
    shown = table.assign(memory=table["memory_bytes"].map(hardware.size_text))
    shown = shown[["pipeline", "budget", "memory", "fitted", "breaks_at", "stage", "seen"]]
    shown = shown.rename(columns={"breaks_at": "breaks at scale", "fitted": "fitted at"})
    note = (
        "Predicted by a line per stage through the peaks that were measured; what an operating system and other "
        "programs of a board hold is not in it."
    )
    _print(args, table, note, shown)


def merit(args: argparse.Namespace) -> None:
    refuse_unless_positive(power=args.power)
    table = pipelines.merit_table(pipelines.pipeline_runs(args.folder), args.power)
    if table.empty:
        raise UserError(f"{args.folder} has no finished run of a pipeline: `labkit pipeline run trips` makes one.")
    names = {"per_minute": "pipelines/minute", "watts": "W", "per_minute_w": "pipelines/minute/W", "kind": "times"}
    note = f"60 · S · N / (load · prepare · train · serve)^¼, after TPCx-AI; {pipelines.NOT_COMPARABLE}."
    _print(args, table, note, table.rename(columns=names))


def ways(args: argparse.Namespace) -> None:
    table = pipelines.time_ways(args.scale, args.rounds)
    unequal = table.loc[table["difference"] > pipelines.TOLERANCE, "way"]
    who = f"Not equal: {', '.join(unequal)}. The others" if len(unequal) else "All ways"
    _print(args, table, f"{who} are equal within {pipelines.TOLERANCE:g} of the largest value of a column.")


def serve(args: argparse.Namespace) -> None:
    try:
        rates, waits = ([float(part) for part in text.split(",")] for text in (args.rates, args.wait_ms))
    except ValueError:
        raise UserError("--rates and --wait-ms: write numbers with commas between them, such as 100,400.") from None
    with Console(stderr=args.json).doing("making the model of trips ..."):
        model, rows = pipelines.make_model(pipelines.TripsJob())
    table = pipelines.serve_at(model.predict, rows, rates, waits, args.seconds, port=args.port)
    note = (
        "Latencies count from the planned times. The generator's own lateness (late_p99_ms) is in them: it shares this "
        "machine with the server."
    )
    _print(args, table, note)


def _print(args: argparse.Namespace, table: "pd.DataFrame", note: str, shown: "pd.DataFrame | None" = None) -> None:
    """Print a table for programs, or for people what is shown of it, with a note below."""
    if args.json:
        return print_json(json_rows(table))
    console = Console()
    print_frame(console, table if shown is None else shown)
    console.print_line(note)
