"""`labkit train dlrm` and `labkit train speech`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REQUEST_FLAGS = [
    "data",
    "schema",
    "preset",
    "target",
    "budget",
    "device",
    "seed",
    "batch_size",
    "optimiser",
    "lr",
    "precision",
    "max_seconds",
    "max_epochs",
    "on_bad_row",
    "sample_hz",
]


CHOICES = {
    "dlrm": (
        "tour, kaggle, terabyte, mlperf-v1, benchmark",
        "auc, log_loss, normalised_entropy, accuracy",
        "sgd, adagrad, rowwise-adagrad, adam",
    ),
    "speech": ("tour, budget-m5", "cer, wer", "sgd, adagrad, adam"),
}
"""Presets, metrics and optimisers of each job."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("train", help="train a model to a target accuracy, and record what it took")
    jobs = parser.add_subparsers(title="jobs", dest="job", metavar="JOB", required=True)
    dlrm = jobs.add_parser("dlrm", help="a recommendation model on a click log")
    speech = jobs.add_parser("speech", help="a CTC recogniser on speech")
    for job, name in ((dlrm, "dlrm"), (speech, "speech")):
        add_request_flags(job, name)
        job.add_argument("--resume", metavar="RUN", help="go on with a run: its folder, id, or the beginning of its id")
        job.set_defaults(run=run_train)


def add_request_flags(parser: argparse.ArgumentParser, job: str, without: Sequence[str] = ()) -> None:
    """Add the flags that say what to train, where the run goes, and --json.

    Args:
        parser: of the command.
        job: "dlrm" or "speech".
        without: flags that the command does not have.
    """
    presets, metrics, optimisers = CHOICES[job]

    def add(flag: str, *others: str, **settings: Any) -> None:
        if flag.removeprefix("--").replace("-", "_") not in without:
            parser.add_argument(flag, *others, **settings)

    if job == "dlrm":
        add("--schema", metavar="FILE", help="TOML file that describes --data's columns (examples: datasets/schemas/)")
    add("--data", metavar="NAME|PATH", help="a dataset of `labkit data list`, a file or a folder")
    add("--preset", metavar="P", help=f"model and settings: {presets} (default: tour)")
    add("--target", metavar="X", help=f"stop when it is reached: a number, or metric=number ({metrics}), or none")
    add(
        "--budget",
        metavar="B",
        help="one-core, half, all-cores, gpu, a tier such as t4-like, or cores=N,memory=2GiB (`labkit budgets`)",
    )
    add("--device", metavar="D", help="auto, cpu, cuda or cuda:1 (default: auto)")
    add("--seed", type=int, metavar="N", help="seed of weights, data order and dropout (default: 0)")
    add("--batch-size", type=int, metavar="N", help="samples a step (default: the preset's)")
    add(
        "--optimiser",
        "--optimizer",
        metavar="O",
        help=f"{optimisers} (default: the preset's; another one needs --lr, too)",
    )
    add("--lr", type=float, metavar="X", help="learning rate (default: the preset's)")
    add("--precision", choices=("auto", "fp32", "bf16"), help="auto takes bf16 only where it is faster")
    add("--max-seconds", type=float, metavar="S", help="end once this much time has passed, with one last evaluation")
    add("--max-epochs", type=int, metavar="N", help="end after this many passes over the training split")
    add("--on-bad-row", choices=("error", "skip"), help="what to do with bad input (default: error)")
    add("--sample-hz", type=float, metavar="N", help="telemetry samples a second, 0.1 to 100 (default: 2)")
    add("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go (default: runs)")
    add("--json", action="store_true", help="print the result as one JSON object on the last line")


def given_request(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of a request that the command line has."""
    return {name: value for name in REQUEST_FLAGS if (value := getattr(args, name, None)) is not None}


def run_train(args: argparse.Namespace) -> int:
    from labkit.runs import find_run, read_run

    folder = None if args.resume is None else find_run(args.resume, args.runs_dir)
    budget = args.budget if folder is None else read_run(folder).budget.get("name")
    if budget is not None:
        from labkit.hardware.budgets.names import parse_budget

        # before NumPy and torch are loaded: they read their number of threads only then
        os.environ.update(parse_budget(budget).environment())
    from labkit.cli.console import print_last
    from labkit.cli.progress import TrainingDisplay
    from labkit.training.request import TrainRequest
    from labkit.training.resume import resumed_request
    from labkit.training.session import RunFailed, train
    from labkit.training.stop import StopRequest

    given = given_request(args)
    request = TrainRequest(job=args.job, **given) if folder is None else resumed_request(folder, args.job, given)
    try:
        # with --json, stdout belongs to programs
        with StopRequest() as stop, TrainingDisplay(request, to_stderr=args.json) as display:
            answer = train(request, runs_dir=args.runs_dir, on_event=display.show, stop=stop, resume=folder)
    except RunFailed as failure:
        if args.json:
            print_last(json.dumps(failure.answer))
        raise
    if args.json:
        print_last(json.dumps(answer))
    else:
        display.print_result(answer)
    return 130 if answer["status"] == "stopped" else 0
