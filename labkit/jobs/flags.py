"""What the kit's own jobs have in common: their flags, and what these make of a run.

It comes without torch and NumPy, so that wrong flags are refused before anything waits for cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.data import POLICIES, POLICY_WORDS, UNASKED
from labkit.errors import UserError, with_flag
from labkit.hardware import Budget, get_devices, read_cpu, size_text
from labkit.jobs.presets import JOBS, Preset, chosen_data, chosen_target, get_preset
from labkit.placement import Placement, row_width

if TYPE_CHECKING:
    from labkit.models import DlrmConfig  # torch comes with it

TOLD = ("data", "target", "max_seconds", "max_epochs", "runs_dir", "device", "schema", "precision", "job")
"""Flags that are no part of a run's settings, or told by other words"""
OPTIMISER_STATES = {"sgd": 0, "adagrad": 1, "rowwise-adagrad": 0, "adam": 2}
"""Tensors as large as the embedding tables that an optimiser keeps."""
MAX_EPOCHS = 10
"""Where neither the preset nor the user says"""
ENDLESS = 10**6
"""Epochs of a run that something else ends"""
MOST_LAYERS = 1000
"""Of a recogniser; a model of more takes minutes to make"""
PATIENCE_EPOCHS = 3
"""Without a value to reach, a time or a schedule, a run ends after this many epochs that brought nothing better."""


def job_flags(job: str) -> argparse.ArgumentParser:
    """The flags of a job's script; what is not given follows from the preset."""
    flags = argparse.ArgumentParser(description=f"Trains {JOBS[job].words} to a target.", allow_abbrev=False)
    flags.set_defaults(job=job)
    add = flags.add_argument
    add("--data", metavar="NAME|PATH", help="a dataset of `labkit data list`, a file or a folder")
    presets = ", ".join(map(str, JOBS[job].presets.values()))
    add("--preset", default="tour", metavar="P", help=f"model and settings: {presets} (default: tour)")
    goals = ", ".join(JOBS[job].metrics)
    add("--target", metavar="X", help=f"stop when it is reached: a number, metric=number ({goals}), or none")
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:1 (default: auto)")
    add("--seed", type=int, default=0, metavar="N", help="of weights, data order and dropout (default: 0)")
    add("--batch-size", type=int, metavar="N", help="samples a step (default: the preset's)")
    words = "default: the preset's; another one needs --lr, too"
    add("--optimiser", "--optimizer", choices=JOBS[job].optimisers, help=words)
    add("--lr", type=float, metavar="X", help="learning rate (default: the preset's)")
    words = "auto: bf16 on a GPU from compute capability 8.0, with AMX's tiles and on AMD's AVX-512 (default: auto)"
    add("--precision", choices=("auto", "fp32", "bf16"), default="auto", help=words)
    words = "plain: what a textbook does; fast: the same mathematics by the parts of labkit.fast (default)"
    add("--kernels", choices=("plain", "fast"), default="fast", help=words)
    add("--max-seconds", type=float, metavar="S", help="end then, with one last evaluation")
    add("--max-epochs", type=int, metavar="N", help="end after this many passes over the training split")
    unasked = UNASKED["speech" if job == "speech" else "clicks"]
    add("--on-bad-row", choices=POLICIES, default=unasked, help=f"{POLICY_WORDS} (default: {unasked})")
    add("--runs-dir", default="runs", metavar="DIR", help="where run folders go (default: runs)")
    for name, settings in JOBS[job].flags.items():
        add(name, **settings)
    return flags


def read_arguments(
    flags: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> tuple[argparse.Namespace, Preset]:
    """The command line, or other arguments, with the preset's values for what they leave out."""
    asked = {name: value for name, value in vars(flags.parse_args(arguments)).items() if value is not None}
    preset = get_preset(asked["job"], asked["preset"])
    if asked.get("optimiser", preset.train["optimiser"]) != preset.train["optimiser"] and "lr" not in asked:
        raise UserError(
            f"the learning rate of preset {preset.name!r} is for {preset.train['optimiser']}, and would not suit "
            f"{asked['optimiser']}: give one with --lr.",
            field="optimiser",
        )
    unset = dict.fromkeys(("data", "target", "max_seconds", "schema"))
    args = argparse.Namespace(**unset | {"max_epochs": MAX_EPOCHS} | preset.train | asked)
    if args.max_seconds is not None and "max_epochs" not in asked:
        args.max_epochs = ENDLESS  # what was given are seconds, which are to be used
    if args.schema is not None and args.data is None:
        said = f"schema {args.schema!r} describes a file of yours: name that file too, with --data."
        raise UserError(said, field="schema")
    args.data = chosen_data(args.job, preset, args.data)
    args.target = chosen_target(args.job, args.data, args.target)  # refused before the data is prepared
    if "placement" in args:
        Placement.from_args(args)  # refused then, too
    if asked.get("clip_norm") == 0:
        args.clip_norm = None
    for name in ("batch_size", "max_epochs", "lr", "max_seconds", "layers", "hidden", "clip_norm"):
        value = getattr(args, name, None)
        if value is not None and not 0 < value < float("inf"):
            whole = "" if name in ("lr", "max_seconds", "clip_norm") else "whole "
            none = ", or 0 to clip none" if name == "clip_norm" else ""
            raise UserError(f"{with_flag(name)} is {value}: give a {whole}number above 0{none}.", field=name)
    if asked.get("layers", 0) > MOST_LAYERS:
        most = f"give at most {MOST_LAYERS:,}, for more take minutes to make"
        raise UserError(f"{with_flag('layers')} is {asked['layers']:,}: {most}.", field="layers")
    method, share = asked.get("compress", "none"), asked.get("compress_to", 1.0)
    if not 0 < share <= 1 or (method == "none") != (share == 1):
        fix = "give a share above 0 and below 1 with --compress hash or quotient-remainder, and neither without"
        raise UserError(f"--compress is {method} and --compress-to {share:g}: {fix}.", field="compress_to")
    if method != "none" and args.placement != "device":
        said = (
            f"--compress {method} is for tables on the device, and these are {args.placement}: leave one of both out."
        )
        raise UserError(said, field="compress")
    if not 0 <= args.seed < 2**63:
        raise UserError(f"{with_flag('seed')} is {args.seed}: give a whole number from 0 to 2^63 - 1.", field="seed")
    return args, preset


def settle_batch_size(args: argparse.Namespace, train_samples: int) -> None:
    """Let a batch hold no more samples than there are, where the preset chose its size; refuse another."""
    if args.batch_size > train_samples and args.batch_size != get_preset(args.job, args.preset).train["batch_size"]:
        raise UserError(
            f"{with_flag('batch_size')} is {args.batch_size:,} and the training split has {train_samples:,} samples, "
            "so that every step would see all of them: give at most that many."
        )
    args.batch_size = min(args.batch_size, train_samples)


def refuse_large_tables(config: DlrmConfig, args: argparse.Namespace) -> None:
    """Stop before tables are made that, with their optimiser's state, need more than the budget or their tier has.

    Raises:
        UserError: memory has no room for them, or the disk; a cache has more rows than they; a flag makes no sense.
    """
    placement, size = Placement.from_args(args), (sum(config.num_rows), row_width(args.optimiser, config.embedding_dim))
    placement.refuse_full_disk(*size, checkpoints=Path(args.runs_dir))
    needed, (holder, limit) = args.compress_to * placement.memory_bytes(*size), memory_for_tables(placement)
    if needed > limit:
        raise UserError(
            f"preset {args.preset!r} on this data needs {size_text(needed)} for its embedding tables and their "
            f"optimiser state, and {holder} has {size_text(limit)} free: choose a smaller preset "
            "(kaggle, tour), data with smaller vocabularies, --placement disk, or --compress."
        )


def memory_for_tables(placement: Placement, budget: Budget | None = None) -> tuple[str, float]:
    """The device that tables in a place are on, and the bytes it has for them; inf if not known.

    It is what the budget has of a run that is to come, or of the one that this process is.
    """
    from labkit.tracking import current_harness  # NumPy comes with it

    harness, devices = current_harness(), get_devices()
    if harness is not None:
        budget = harness.command.budget
    computes_on = harness.torch_name if harness is not None else budget.torch_name if budget is not None else "cpu"
    torch_name = computes_on if placement.kind == "device" else "cpu"
    device = next((each for each in devices if each.torch_name == torch_name), devices[0])
    budget = budget if computes_on == torch_name else None
    there = read_cpu().memory_available_bytes if device.kind == "cpu" else device.memory_bytes
    return device.name, (budget and budget.memory_bytes) or there or float("inf")


def run_settings(
    args: argparse.Namespace, data: Any, train_samples: int, evaluations_an_epoch: int, **config: Any
) -> dict[str, Any]:
    """What `labkit.Run` takes: the flags' limits, and the configuration, to which `config` belongs, too."""
    skipped = data.info.get("skipped", {}).get("rows", 0)
    if skipped:
        first = data.info["skipped"]["first"][0]
        place = f"{first['file']}, line {first['line']}" if first["line"] else first["file"]
        print(f"Left out as bad: {skipped:,}; the first: {place}: {first['reason']}")
    ends_otherwise = ">" in args.target or "<" in args.target or args.max_seconds is not None
    ends_otherwise = ends_otherwise or getattr(args, "schedule", None) == "cosine"  # which is to come to its end
    told = {"name": data.name, "fingerprint": data.fingerprint, "train_samples": train_samples, "info": data.info}
    path = Path(args.data).expanduser()
    told["source"] = str(path.absolute()) if path.exists() else args.data
    return {
        "target": args.target,
        "max_seconds": args.max_seconds,
        "evaluate_every": max(1, train_samples // evaluations_an_epoch),
        "patience": None if ends_otherwise else PATIENCE_EPOCHS * evaluations_an_epoch,
        "seed": args.seed,
        "runs_dir": args.runs_dir,
        "config": {name: value for name, value in vars(args).items() if name not in TOLD} | {"data": told} | config,
    }
