"""The flags that the kit's own jobs have in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from labkit.errors import UserError
from labkit.jobs.presets import PRESETS, Preset, chosen_data, chosen_target, get_preset


def add_common_flags(
    flags: argparse.ArgumentParser, job: str, metrics: Sequence[str], optimisers: Iterable[str]
) -> None:
    """Add them; what is not given follows from the preset."""
    flags.set_defaults(metrics=tuple(metrics))
    flags.add_argument("--data", metavar="NAME|PATH", help="a dataset of `labkit data list`, a file or a folder")
    presets = ", ".join(PRESETS[job])
    flags.add_argument("--preset", default="tour", metavar="P", help=f"model and settings: {presets} (default: tour)")
    flags.add_argument(
        "--target",
        metavar="X",
        help=f"stop when it is reached: a number, metric=number ({', '.join(metrics)}), or none",
    )
    flags.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:1 (default: auto)")
    flags.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of weights, data order and dropout (default: 0)"
    )
    flags.add_argument("--batch-size", type=int, metavar="N", help="samples a step (default: the preset's)")
    flags.add_argument(
        "--optimiser",
        "--optimizer",
        choices=list(optimisers),
        help="default: the preset's; another one needs --lr, too",
    )
    flags.add_argument("--lr", type=float, metavar="X", help="learning rate (default: the preset's)")
    flags.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        default="auto",
        help="auto: what is faster on this machine, measured once and kept (`labkit doctor`)",
    )
    flags.add_argument(
        "--kernels",
        choices=("plain", "fast"),
        default="fast",
        help="plain: what a textbook does; fast: the same mathematics by the parts of labkit.fast (default)",
    )
    flags.add_argument("--max-seconds", type=float, metavar="S", help="end then, with one last evaluation")
    flags.add_argument("--max-epochs", type=int, metavar="N", help="end after this many passes over the training split")
    flags.add_argument("--on-bad-row", choices=("error", "skip"), default="error", help="what to do with bad input")
    flags.add_argument("--runs-dir", default="runs", metavar="DIR", help="where run folders go (default: runs)")


def read_arguments(
    flags: argparse.ArgumentParser, job: str, arguments: Sequence[str] | None = None
) -> tuple[argparse.Namespace, Preset]:
    """The command line, or other arguments, with the preset's values for what they leave out.

    Raises:
        UserError: a value cannot be.
    """
    args = flags.parse_args(arguments)
    preset = get_preset(job, args.preset)
    if args.optimiser not in (None, preset.train["optimiser"]) and args.lr is None:
        raise UserError(
            f"the learning rate of preset {preset.name!r} is for {preset.train['optimiser']}, and would not suit "
            f"{args.optimiser}: give one with --lr."
        )
    args.batch_size_is_asked = args.batch_size is not None
    for name, value in {"max_epochs": 10, **preset.train}.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    if getattr(args, "schema", None) is not None and args.data is None:
        raise UserError(f"schema {args.schema!r} describes a file of yours: name that file too, with --data.")
    args.data = chosen_data(job, preset, args.data)
    chosen_target(job, args.data, args.target, vars(args).pop("metrics"))  # refused before the data is prepared
    for name in ("batch_size", "max_epochs"):
        if getattr(args, name) < 1:
            raise UserError(f"{_named(name)} is {getattr(args, name)}: give a whole number of at least 1.")
    for name in ("lr", "max_seconds"):
        value = getattr(args, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{_named(name)} is {value}: give a number above 0.")
    if not 0 <= args.seed < 2**63:
        raise UserError(f"{_named('seed')} is {args.seed}: give a whole number from 0 to 2^63 - 1.")
    return args, preset


def settle_batch_size(args: argparse.Namespace, train_samples: int) -> None:
    """Let a batch hold no more samples than there are, where the preset chose its size.

    Raises:
        UserError: the size was asked for.
    """
    if args.batch_size > train_samples and args.batch_size_is_asked:
        raise UserError(
            f"{_named('batch_size')} is {args.batch_size:,} and the training split has {train_samples:,} samples, so "
            "that every step would see all of them: give at most that many."
        )
    args.batch_size = min(args.batch_size, train_samples)


def common_config(args: argparse.Namespace, data: Any, train_samples: int) -> dict[str, Any]:
    """What decides a run, as its record has it."""
    skipped = data.info.get("skipped", {}).get("rows", 0)
    if skipped:
        print(f"bad rows skipped: {skipped:,}; `labkit runs show` lists the first.")
    own = {name: value for name, value in vars(args).items() if name not in _NOT_SETTINGS}
    return {
        **own,
        "preset": args.preset,
        "data": {
            "name": data.name,
            "fingerprint": data.fingerprint,
            "train_samples": train_samples,
            "info": data.info,
        },
    }


_NOT_SETTINGS = (
    "data",
    "target",
    "max_seconds",
    "max_epochs",
    "runs_dir",
    "device",
    "schema",
    "precision",
    "batch_size_is_asked",
)


def _named(name: str) -> str:
    return f"{name} (--{name.replace('_', '-')})"
