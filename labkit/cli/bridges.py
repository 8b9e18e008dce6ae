"""`labkit runs import`, `export`, `archive`, `record` and `reproduce`: runs that come from, or go, elsewhere."""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from labkit import UserError, bridges, hardware, plots, runs, tracking
from labkit.cli.flags import RUN, add_command, add_flags
from labkit.cli.printing import print_json, say

MOST_SAID = 5
"""Runs that were not imported, of which each is named"""
TOOLS = {
    "mlflow": "MLflow: a SQLite file, a folder mlruns, or the address of a server",
    "tensorboard": "TensorBoard: a folder of event files; each folder that has some is a run",
    "trackio": "Trackio: its folder, or the .db file of a project",
    "wandb": "W&B: the folder wandb of runs that were logged offline, or a .wandb file",
    "radt": "radT: its MLflow, or the CSV files that its web page saves",
    "archive": "a file of `labkit runs archive`, whose checksums are verified",
}
"""What can be imported, and from where"""
IMPORT = """examples:
  labkit runs import mlflow mlflow.db --target "val/accuracy >= 0.9"
  labkit runs import tensorboard logs --into runs/old --tier t4
  labkit runs import wandb wandb --target "loss <= 0.5" --seed-from rng
"""


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add the commands to those of `labkit runs`."""
    kinds = "".join(f"\n  {name:12} {words}" for name, words in TOOLS.items())
    words = "make run folders of what was logged with MLflow, TensorBoard, Trackio, W&B or radT"
    about = f"Make run folders of what was logged with another tracker:{kinds}"
    command = add_command(commands, "import", words, examples=IMPORT, description=about)
    add = command.add_argument
    add("tool", choices=list(TOOLS), metavar="TOOL", help=", ".join(TOOLS))
    add("path", metavar="PATH", help="where it keeps its runs")
    add("--target", metavar="T", help='what they were to reach, such as "accuracy >= 0.9"')
    add("--into", type=Path, default=Path("runs"), metavar="DIR", help="folder for the run folders (default: runs)")
    add("--seed-from", metavar="NAME", help="parameter that holds the seed (default: seed, random_seed and the like)")
    words = "a metric that was logged in per cent; may be repeated"
    add("--percent", action="append", default=[], metavar="NAME", help=words)
    add("--tier", metavar="TIER", help="the hardware they ran on, which prices them (`labkit tiers`)")
    add_flags(command, "json", run=run_import)

    command = add_command(commands, "export", "write runs into MLflow or Trackio, or as CSV files")
    command.add_argument("which", nargs="*", metavar="RUN", help="runs (default: all of the folder)")
    words = "mlflow (an SQLite file or an address; default: MLFLOW_TRACKING_URI), trackio (its folder), csv (a folder)"
    command.add_argument("--to", nargs="+", required=True, metavar=("TOOL", "PATH"), help=words)
    add_flags(command, "runs_dir", run=run_export)

    command = add_command(commands, "archive", "write runs into one file with checksums")
    command.add_argument("which", nargs="+", metavar="RUN", help=RUN["help"])
    command.add_argument("file", type=Path, metavar="FILE", help="the new file; `labkit runs import archive` reads it")
    command.add_argument("--all", action="store_true", help="with checkpoints and traces, which are large")
    add_flags(command, "runs_dir", run=run_archive)

    command = add_command(commands, "record", "make a recording of runs for others, without names and paths")
    command.add_argument("which", nargs="+", metavar="RUN", help=RUN["help"])
    add = command.add_argument
    add("--to", type=Path, required=True, metavar="DIR", help="the new folder, such as datasets/recorded/my-gpu")
    add("--licence", required=True, metavar="L", help="under which others may use it, such as CC-BY-4.0")
    add("--authors", required=True, metavar="NAMES", help="who measured the runs")
    add("--title", required=True, metavar="TEXT", help="what was measured, in a sentence")
    add("--host", metavar="NAME", help="name that stands for the machine (default: its device)")
    add_flags(command, "runs_dir", run=run_record)

    command = add_command(commands, "reproduce", "do a run again as its record says, and say what differs")
    command.add_argument(
        "which", metavar="RUN", help="a run's folder or id, or a file of `labkit runs archive` with one"
    )
    command.add_argument("--script", metavar="FILE", help="its script, where that is not where the record says")
    add_flags(command, "no_wait", "sample_hz", "runs_dir", "json", run=run_reproduce, budget=None)


def run_import(args: argparse.Namespace) -> int:
    if args.tool == "archive":
        folders = bridges.unpack(Path(args.path), args.into)
        print(f"{plots.counted(len(folders), 'run')} in {args.into}, as they were packed.")
        return 0
    target = None if args.target is None else tracking.Target.parse(args.target)
    tier = args.tier and hardware.get_tier(args.tier).name
    wishes = bridges.Wishes(target, args.seed_from, tuple(args.percent), tier)
    done = bridges.import_runs(args.tool, args.path, args.into, wishes)
    if args.json:
        print_json(
            {"runs": [folder.name for folder in done.folders], "folder": str(args.into), "refused": done.refused}
            | {"left_out": dict(done.left_out), "notes": dict(done.notes)}
        )
        return 0 if done.folders else 2
    for why in done.refused[:MOST_SAID]:
        say(f"not imported: {why}", to_stderr=True)
    if (more := len(done.refused) - MOST_SAID) > 0:
        say(f"not imported: {more} more", to_stderr=True)
    if not done.folders:
        raise UserError(f"{args.path}: there is no run to import.")
    for what, count in done.left_out.most_common():
        say(f"left out, because a run folder does not hold them: {what} ({count:,})")
    for note, count in done.notes.most_common():
        say(f"{plots.counted(count, 'run')}: {note}")
    with_seed = sum(runs.read_run(folder).seed is not None for folder in done.folders)
    say(
        f"{plots.counted(len(done.folders), 'run')} in {args.into}, {with_seed} of them with a seed. "
        f"`labkit report {args.into}` compares them."
    )
    return 0


def run_export(args: argparse.Namespace) -> None:
    tool, *path = args.to
    if tool not in ("mlflow", "trackio", "csv") or len(path) > 1:
        raise UserError(
            f"--to {' '.join(args.to)}: write the runs first, then --to mlflow, trackio or csv, and one path."
        )
    if not path and tool == "mlflow" and os.environ.get(tracking.VARIABLE):
        path = [os.environ[tracking.VARIABLE]]
    if not path:
        raise UserError(f"--to {tool}: add a path, such as --to {tool} {'mlflow.db' if tool == 'mlflow' else tool}.")
    folders = [runs.find_run(run, args.runs_dir) for run in args.which] or runs.run_folders(args.runs_dir)
    if not folders:
        raise UserError(f"{args.runs_dir} has no runs: name some, or give their folder with --runs-dir.")
    if tool == "csv":
        for file in bridges.export_csv(folders, Path(path[0])):
            print(file)
        return
    count = 0
    for folder in folders:
        if tool == "trackio":
            count += bridges.export_trackio(folder, Path(path[0]))
            continue
        export = bridges.MlflowExport(path[0], folder)
        count += export.send()
        if export.renamed:
            say(f"{folder.name}: MLflow takes other names for {', '.join(sorted(export.renamed))}")
        if export.empty:
            say(f"{folder.name}: {export.empty:,} samples without a value are left out")
    what = "rows" if tool == "trackio" else "new points"
    print(f"{plots.counted(len(folders), 'run')}, {count:,} {what}, in {path[0]}.")


def run_archive(args: argparse.Namespace) -> None:
    folders = [runs.find_run(run, args.runs_dir) for run in args.which]
    size = bridges.pack(folders, args.file, everything=args.all)
    print(f"{plots.counted(len(folders), 'run')} in {args.file} ({hardware.size_text(size)}).")


def run_record(args: argparse.Namespace) -> None:
    folders = [runs.find_run(run, args.runs_dir) for run in args.which]
    about = {"licence": args.licence, "authors": args.authors, "title": args.title, "host": args.host}
    changed = bridges.record_for_others(folders, args.to, **about)
    for text in sorted(changed):
        say(f"renamed: {text[:150]}")
    print(f"{args.to}: no user, host or path is named in it. Read its {runs.CARD} before you publish it.")


def run_reproduce(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console, print_frame
    from labkit.cli.run import repeated_command, run_here

    with _unpacked(args.which, args.runs_dir) as old:
        command, known = repeated_command(args, old, args.script), set(runs.run_folders(args.runs_dir))
        with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
            status = run_here(command, as_json=False)
        found = [folder for folder in runs.run_folders(args.runs_dir) if folder not in known]
        made = [folder for folder in found if runs.read_run(folder).pid == os.getpid()]
        if not made:
            raise UserError(f"{old.name}: its script was run again, but made no run to compare.")
        new = made[-1]
        before = bridges.differences(runs.read_run(old), runs.read_run(new))
        after = bridges.result_differences(old, new)
    if args.json:
        rows = [[each._asdict() for each in found] for found in (before, after)]
        print_json({"run": new.name, "of": old.name, "differs": rows[0], "results": rows[1]})
        return status
    console = Console()
    rows = [{"differs": each.what, "was": _cell(each.was), "is": _cell(each.now)} for each in before]
    if rows:
        print_frame(console, rows, "what differs in how they were made")
    else:
        console.print("Program, versions, hardware, data, seed, budget and settings are the same.")
    rows = [
        {"result": each.what, "was": _cell(each.was), "is": _cell(each.now), "distance": each.distance}
        for each in after
    ]
    print_frame(console, rows, f"{old.name}, and again as {new.name}")
    return status


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "–" if value is None else str(value)[:120]


@contextlib.contextmanager
def _unpacked(run: str, runs_dir: Path) -> Generator[Path]:
    """The folder of a run, or of the only run of an archive, unpacked during the block."""
    if not Path(run).is_file():
        yield runs.find_run(run, runs_dir)
        return
    with tempfile.TemporaryDirectory(prefix="labkit-") as place:
        folders = bridges.unpack(Path(run), Path(place))
        if len(folders) != 1:
            raise UserError(
                f"{run} has {len(folders)} runs: unpack it with `labkit runs import archive {run}`, and name one."
            )
        yield folders[0]
