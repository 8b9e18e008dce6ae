"""`labkit run`: the one harness for any training script. `labkit train`: labkit's own scripts in it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit import UserError, errors, hardware, jobs, json_data, launch, process, runs, tracking
from labkit.cli.console import Console, TrainingDisplay
from labkit.cli.flags import add_command, add_flags, add_harness_flags, add_script, refuse_unless_positive
from labkit.cli.printing import print_json, print_last, say

Run = Callable[[argparse.Namespace], int | None]
"""What a sub-command does; its exit status, if that is not always 0"""
EPILOG = """examples:
  labkit run train.py --lr 0.1
  labkit run --budget one-core --seeds 3 train.py --seed {seed}
  labkit run -m mypackage.train
  labkit run --resume runs/20261122-101502-my-cnn-7f3a
  labkit run --nproc 2 train.py
All arguments after the script are passed to it. What it reports through labkit.Run is recorded: losses, metrics, the
time to its target. Without labkit.Run the steps of its optimiser are counted.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    about = "Run a training script under a budget, sample what the machine does, and record it in a folder."
    parser = add_command(subparsers, "run", description=about, examples=EPILOG, run=run_run)
    add_harness_flags(parser)
    add_flags(parser, "resume", "nproc", "nodes", "print", "hang_s")
    words = "run it N times, with seeds from 0; {seed} in its arguments stands for one"
    parser.add_argument("--seeds", type=int, metavar="N", help=words)
    add_script(parser, nargs="?")

    commands = add_command(subparsers, "train").add_subparsers(title="jobs", dest="job", metavar="JOB", required=True)
    for name, job in jobs.JOBS.items():
        add_flags(_add_job(commands, name, job.words, run_train), "resume", "nproc", "nodes", "print", "hang_s")


def _add_job(subparsers: argparse._SubParsersAction, name: str, words: str, run: Run) -> argparse.ArgumentParser:
    """Add a sub-command that takes the harness' flags, and passes all others on to a job's script."""
    job = add_command(subparsers, name, words, add_help=False, allow_abbrev=False)
    add_harness_flags(job)
    job.add_argument("--help", "-h", action="store_true", help="show this, and the flags of the script")
    own = {"job": name, "parser": job, "passes_on": True}
    job.set_defaults(run=lambda args: print_help(job, jobs.JOBS[name]) if args.help else run(args), **own)
    return job


def add_trainings(
    subparsers: argparse._SubParsersAction,
    words: str,
    add_own: Callable[[argparse.ArgumentParser], None],
    run: Run,
    **about: Any,
) -> None:
    """Add a sub-command for each of labkit's jobs, and `run` for other scripts; `add_own` adds flags to each."""
    for name, job in jobs.JOBS.items():
        add_own(_add_job(subparsers, name, f"{words} the training of {job.words}", run))
    script = add_command(subparsers, "run", f"{words} any other training script", run=run, **about)
    script.set_defaults(job=None)
    add_harness_flags(script)
    add_own(script)
    add_script(script)


def run_run(args: argparse.Namespace) -> int:
    if args.resume is not None:
        if args.seeds is not None or (args.script or "").endswith(".py"):
            what = args.script or "--seeds"
            raise UserError(f"--resume continues one run with its own script and seed: omit {what}.")
        return _run_one(args, resumed_command(args, [args.script, *args.arguments] if args.script else []))
    if args.script is None:
        raise UserError("labkit run: name the script to run, such as `labkit run train.py`, or --resume a run.")
    command = given_command(args)
    if args.seeds is None:
        return _run_one(args, command)
    if args.nproc is not None:
        raise UserError("--seeds and --nproc cannot be given together: run each seed with --nproc by itself.")
    refuse_unless_positive(seeds=args.seeds)
    return _run_seeds(command, args.seeds, args.json)


def run_train(args: argparse.Namespace) -> int:
    if args.resume is None:
        command, *_ = asked_command(args)
    else:
        command = resumed_command(args, args.passed_on, args.job)
    status = _run_one(args, command)
    if process.is_possible():
        process.leave_server()
    return status


def read_settings(args: argparse.Namespace, more: Sequence[str] = ()) -> tuple[jobs.TrainingJob, dict[str, Any]]:
    """The job that the flags of its script, and then `more`, describe, and the settings that they name."""
    prog = args.parser.prog
    usage = f"{prog} [flags], which `{prog} --help` lists"
    given = jobs.read_flags(jobs.JOBS[args.job], [*args.passed_on, *more], prog=prog, usage=usage)
    return jobs.JOBS[args.job].from_settings(given), given


def print_help(parser: argparse.ArgumentParser, kind: type[jobs.Job]) -> None:
    """Print the flags of the harness, and of the script of a job or pipeline."""
    parser.print_help()
    own = jobs.job_flags(kind, omit=("help", "runs_dir")).format_help()  # which are listed above
    print(f"\nthe script's own flags ({kind.script()}):\n", own.partition("options:")[2].strip("\n"), sep="")


def given_command(args: argparse.Namespace) -> tracking.ScriptCommand:
    """The command of a script that `add_harness_flags` and `add_script` describe."""
    script = _script(args.script, args.module)
    own = tracking.ScriptCommand(str(script), tuple(args.arguments), module=args.script if args.module else None)
    return harness_command(args, own)


def asked_command(args: argparse.Namespace) -> tuple[tracking.ScriptCommand, jobs.TrainingJob | None, dict[str, Any]]:
    """The command of a sub-command of `add_trainings`; of one of labkit's jobs also the job, and the named settings."""
    if args.job is None:
        return given_command(args), None, {}
    job, given = read_settings(args)
    return harness_command(args, job.command()), job, given


def harness_command(args: argparse.Namespace, command: tracking.ScriptCommand) -> tracking.ScriptCommand:
    """The command with what the flags of `add_harness_flags` say."""
    if args.sample_hz is not None and not 0.1 <= args.sample_hz <= 100:
        raise UserError(f"--sample-hz is {args.sample_hz:g}: give a number of samples per second from 0.1 to 100.")
    return replace(
        command,
        runs_dir=str(args.runs_dir),
        budget=args.budget and hardware.parse_budget(args.budget),
        waits_for_cores=not args.no_wait,
        sample_hz=args.sample_hz,
    )


def resumed_command(args: argparse.Namespace, given: list[str], job: str | None = None) -> tracking.ScriptCommand:
    """The command of an earlier run under its own budget, with further arguments; the last of a flag counts.

    Raises:
        UserError: there is no such run, it was no script's, or a budget is given.
    """
    folder = runs.find_run(args.resume, args.runs_dir)
    record = runs.read_run(folder)
    script, keeps = record.config.get("script"), record.config.get("train", {}).get("keeps")
    keeps = keeps or (folder / "checkpoint" / "latest.pt").exists()
    why = ""
    if args.budget is not None:
        why = "a resumed run keeps its own settings, so --budget cannot be given: omit it, or start a new run."
    elif job is not None and record.config["job"] != job:
        why = f"this run trains {record.config['job']}: resume it with `labkit run --resume {folder}`."
    elif script is None:
        why = (
            "this run is not a script's, so there is nothing to start again: go on with it where it was made, or "
            "put its code into a file and use `labkit run`."
        )
    elif not (keeps or record.profiled or "collocation" in record.config):
        why = (
            "the script keeps nothing, so there is nothing to go on with: open a labkit.Run in it, name what it trains "
            "with run.keep(model=model, optimizer=optimizer), and start a new run."
        )
    if why:
        raise UserError(f"{folder}: {why}")
    own = _recorded_command(record.config, given, folder)
    budget, sweep = _recorded_budget(record, folder), record.config.get("sweep")
    return replace(
        harness_command(args, own), resume=str(folder), runs_dir=str(folder.parent), budget=budget, sweep=sweep
    )


def repeated_command(args: argparse.Namespace, folder: Path, script: str | None) -> tracking.ScriptCommand:
    """The command that does a run again: its script (or the file `script`), settings, seed and budget, as a new run.

    Raises:
        UserError: it was no script's, or the script is not there.
    """
    record = runs.read_run(folder)
    config: dict[str, Any] = record.config | ({"script": script} if script else {})
    if config.get("script") is None:
        raise UserError(f"{folder}: this run is not a script's, so there is nothing to start again.")
    own = _recorded_command(config, [], folder)
    seed = record.seed if own.settings is None else None  # settings have the seed of their own
    return replace(harness_command(args, own), budget=_recorded_budget(record, folder), seed=seed)


def _recorded_budget(record: runs.RunRecord, folder: Path) -> hardware.Budget | None:
    try:
        return json_data.from_json(hardware.Budget, record.budget) if "cores" in record.budget else None
    except ValueError as error:
        raise UserError(f"{folder}: run.json is damaged (budget: {error}): start a new run.") from error


def _recorded_command(config: Mapping[str, Any], given: list[str], folder: Path) -> tracking.ScriptCommand:
    """The script of a run with its settings, or its arguments, and those given now."""
    if "settings" in config:
        job: Any = jobs.job_from_json(runs.restored(config["settings"]))
        return job.with_settings(**jobs.read_flags(type(job), given)).command()
    script = runs.restored(config["script"])
    module = None if script.endswith(".py") else script
    path = _script(script, module is not None)
    arguments = [*runs.given_again(config.get("arguments", []), given, folder), *given]
    if (kind := jobs.known_job(path)) is not None:  # recorded before runs had their settings
        return kind.from_settings(jobs.read_flags(kind, arguments)).command()
    return tracking.ScriptCommand(str(path), tuple(arguments), module=module)


def _run_one(args: argparse.Namespace, command: tracking.ScriptCommand) -> int:
    """Run a script in this process, or on as many as --nproc says, or print what starts it on several machines."""
    count = args.nproc
    if count is None and command.resume is not None and command.module != "torch.distributed.run":
        count = runs.read_run(command.resume).config.get("ranks")
    if args.nodes is not None or args.print:
        if args.nodes is None or count is None or not args.print:
            raise UserError(
                "--nodes and --print go together, with --nproc: `labkit run --nproc 8 --nodes 2 --print train.py` "
                "prints the line that starts train.py on two machines, which you run on each of them."
            )
        print(launch.several_machines(command, count, args.nodes))
        return 0
    if count is None:
        return run_here(command, args.json)
    return _run_ranks(command, count, args)


def _run_ranks(command: tracking.ScriptCommand, count: int, args: argparse.Namespace) -> int:
    """Run a script on several processes of this machine, shown on the terminal; the exit status."""
    display = TrainingDisplay(Console(stderr=args.json))
    with bound(command, display, as_json=args.json) as stop:
        if slower := jobs.why_slower(command, count):
            display.show(tracking.Notice(slower))
        end = launch.RankedRun(command, count, stop=stop, on_event=display.show, hang_s=args.hang_s).run()
    if args.json and end.answer:
        print_last(end.answer)
    elif end.answer and not end.reason:
        display.print_result(end.answer)
    if end.reason:
        say(f"labkit: {end.reason}", to_stderr=True)
        if display.folder is not None:
            say(f"labkit: the run is in {display.folder}", to_stderr=True)
    return errors.certain(end.exit_status)


def run_here(command: tracking.ScriptCommand, as_json: bool) -> int:
    """Run a script in this process, shown on the terminal; the exit status."""
    display = TrainingDisplay(Console(stderr=as_json))
    try:
        with bound(command, display, as_json=as_json) as stop:
            answer = tracking.run_command(command, stop, display.show)
    except UserError as error:
        if as_json and isinstance(error, tracking.RunFailed) and error.answer:
            print_last(error.answer)
        raise
    except SystemExit as ending:
        if ending.code is not None and not isinstance(ending.code, int):
            print(ending.code, file=sys.stderr)  # as Python does
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except Exception as error:
        tracking.print_error(error)
        if display.folder is not None:
            say(f"labkit: the script failed; its run is in {display.folder}", to_stderr=True)
        return 1
    if as_json:
        print_last(answer)
    else:
        display.print_result(answer)
    return tracking.exit_status(answer)


@contextlib.contextmanager
def bound(
    command: tracking.ScriptCommand, display: TrainingDisplay, *, as_json: bool
) -> Generator[tracking.StopRequest]:
    """Bind this process to a command's budget, and show what happens to it; with JSON, stdout belongs to programs."""
    output = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with tracking.StopRequest() as stop, display, output:
        tracking.bind_process(command, display.show, stop)
        yield stop


def _run_seeds(command: tracking.ScriptCommand, seeds: int, as_json: bool) -> int:
    """Run a script with each seed, in a process of its own; the worst exit status."""
    shown, statuses = sys.stderr if as_json else sys.stdout, []
    line = tracking.ProgressLine(shown, evaluations=not as_json)

    def show(part: launch.Part, event: dict[str, Any]) -> None:
        line(tracking.read_event(event))
        if event["kind"] == "State" and part.status == "running":
            print(part.name.replace("-", " "), file=shown, flush=True)
        elif event["kind"] == "State":
            answer = engine.end.answer
            if part.status != "done":
                say(f"labkit: {command.script}: {part.reason}", to_stderr=True)
            if as_json and answer:
                print_json(answer)
            statuses.append(tracking.exit_status(answer) if answer else 1)

    with tracking.StopRequest() as stop:
        engine = launch.ScriptRuns("seed", [command.seeded(seed) for seed in range(seeds)], stop=stop, on_event=show)
        engine.run()
    if stop:
        raise KeyboardInterrupt
    if not as_json:
        counts = Counter(part.status for part in engine.launches.parts.values())
        said = ", ".join(f"{count} {status}" for status, count in counts.items())
        print(f"{seeds} runs: {said}. `labkit report {command.runs_dir}` compares them.")
    return max(statuses)


def _script(name: str, is_module: bool) -> Path:
    if not is_module:
        if not Path(name).is_file() or not name.endswith(".py"):
            what = "is not a Python script" if Path(name).exists() else "does not exist"
            raise UserError(f"{name} {what}: give a .py file, or a module with -m.")
        return Path(name)
    sys.path.insert(0, "")
    try:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is None:  # a folder without __init__.py
            found = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        raise UserError(f"there is no module {name!r} here: check its name, and run from the folder that has it.")
    return Path(found.origin)
