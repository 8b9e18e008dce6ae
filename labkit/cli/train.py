"""`labkit train dlrm` and `labkit train speech`: labkit's own scripts in the harness of `labkit run`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.cli.flags import add_flags, add_harness_flags
from labkit.cli.run import harness_command, resumed_command, run_here
from labkit.jobs import JOBS

if TYPE_CHECKING:
    from labkit.jobs import TrainingJob


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
    if args.resume is None:
        return run_here(harness_command(args, read_settings(args)[0].command()), args.json)
    return run_here(resumed_command(args, args.passed_on, args.job), args.json)


def read_settings(args: argparse.Namespace, more: Sequence[str] = ()) -> tuple[TrainingJob, dict[str, Any]]:
    """The job that the flags of its script, and then `more`, describe, and the settings that they name."""
    from labkit.jobs import read_flags

    prog = args.parser.prog
    usage = f"{prog} [flags], which `{prog} --help` lists"
    given = read_flags(JOBS[args.job], [*args.passed_on, *more], prog=prog, usage=usage)
    return JOBS[args.job].from_settings(given), given


def print_help(args: argparse.Namespace) -> int:
    """Print the flags of the harness, and of the script."""
    from labkit.jobs import job_flags

    args.parser.print_help()
    print(f"\nthe script's own flags ({JOBS[args.job].script()}):")
    print(job_flags(JOBS[args.job]).format_help().partition("options:")[2].strip("\n"))
    return 0
