"""`labkit train dlrm` and `labkit train speech`: the kit's own scripts in the harness of `labkit run`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from labkit.cli.flags import add_flags, add_harness_flags
from labkit.cli.run import harness_command, resumed_command, run_here
from labkit.jobs import JOBS, script_of

if TYPE_CHECKING:
    from labkit.tracking import ScriptCommand


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("train", help="train a model to a target accuracy, and record what it took")
    jobs = parser.add_subparsers(title="jobs", dest="job", metavar="JOB", required=True)
    for name, job in JOBS.items():
        add_flags(add_job_parser(jobs, name, job.words, run_train), "resume")


def add_job_parser(subparsers: argparse._SubParsersAction, name: str, words: str, run) -> argparse.ArgumentParser:
    """Add a sub-command that takes the harness' flags, and passes all others on to a job's script."""
    job = subparsers.add_parser(name, help=words, add_help=False, allow_abbrev=False)
    add_harness_flags(job)
    job.add_argument("--help", "-h", action="store_true", help="show this, and the flags of the script")
    job.set_defaults(run=run, job=name, parser=job, passes_on=True)
    return job


def run_train(args: argparse.Namespace) -> int:
    if args.help:
        return print_help(args)
    if args.resume is not None:
        return run_here(checked(args, resumed_command(args, args.passed_on, args.job)), args.json)
    return run_here(checked(args, harness_command(args, script_of(args.job), args.passed_on)), args.json)


def checked(args: argparse.Namespace, command: ScriptCommand) -> ScriptCommand:
    """The command of a job, whose wrong flags are refused here: before anything waits for cores."""
    from labkit.jobs import job_flags, read_arguments

    flags = job_flags(args.job)
    flags.prog = args.parser.prog
    flags.usage = f"{flags.prog} [flags], which `{flags.prog} --help` lists"
    read_arguments(flags, command.arguments)
    return command


def print_help(args: argparse.Namespace) -> int:
    """Print the flags of the harness, and of the script."""
    from labkit.jobs import job_flags

    args.parser.print_help()
    print()
    flags = job_flags(args.job)
    flags.prog, flags.usage = f"{args.parser.prog}", argparse.SUPPRESS
    print(f"the script's own flags ({script_of(args.job)}):")
    print(flags.format_help().partition("options:")[2].strip("\n"))
    return 0
