"""What `dlrm_shape.py` may be asked, and what of it no machine, or this one, can do. It comes without torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from labkit.errors import UserError, with_flag
from labkit.hardware import Budget, size_text
from labkit.jobs.flags import memory_for_tables
from labkit.jobs.presets import JOBS
from labkit.placement import Placement, placement_flags, row_width

BATCHES = 4
"""That are made before the clock starts, and taken in turn"""
WHOLE_NUMBERS = {
    "dense_dim": (64, "dense features"),
    "num_tables": (16, "sparse features, each with a table"),
    "num_rows": (100_000, "of each table, the hash size"),
    "pooling_factor": (8, "rows that a sample names in a table"),
    "embedding_dim": (64, "numbers in a row"),
    "mlp_width": (256, "of each hidden layer"),
    "mlp_depth": (3, "layers of either MLP"),
    "batch_size": (512, "samples a step"),
}
"""Flags, each with its default and what it says; `--num_rows` is understood as `--num-rows` is"""


def shape_flags() -> argparse.ArgumentParser:
    """The script's flags."""
    flags = argparse.ArgumentParser(description="Times steps of a DLRM on random batches.", allow_abbrev=False)
    add = flags.add_argument
    for name, (default, words) in WHOLE_NUMBERS.items():
        words = f"{words} (default: {default:,})"
        add(f"--{name.replace('_', '-')}", f"--{name}", type=int, default=default, metavar="N", help=words)
    add("--zipf", type=float, default=0.0, metavar="X", help="exponent of how often rows are named; 0: all alike")
    add("--optimiser", choices=JOBS["dlrm"].optimisers, default="sgd", help="(default: sgd)")
    add("--kernels", choices=("plain", "fast"), default="fast", help="as of `labkit train dlrm` (default: fast)")
    add("--precision", choices=("fp32", "bf16"), default="fp32", help="(default: fp32)")
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:1 (default: auto)")
    add("--seconds", type=float, default=2.0, metavar="S", help="that are timed, five steps at least (default: 2)")
    add("--seed", type=int, default=0, metavar="N", help="of weights and batches (default: 0)")
    add("--runs-dir", default="runs", metavar="DIR", help="where the run folder goes (default: runs)")
    placement_flags(flags)
    return flags


def read_shape(flags: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, or other arguments.

    Raises:
        UserError: a shape that is none.
    """
    args = flags.parse_args(arguments)
    for name in (*WHOLE_NUMBERS, "seconds"):
        if getattr(args, name) <= 0:
            raise UserError(f"{with_flag(name)} is {getattr(args, name)}: give a number above 0.", field=name)
    if args.zipf < 0:
        raise UserError(f"--zipf is {args.zipf}: give 0 (all rows alike) or more (some more often).", field="zipf")
    placement = Placement.from_args(args)
    if placement.kind == "cached":
        placement.cached_rows(args.num_tables * args.num_rows)
    return args


def refuse_too_large(args: argparse.Namespace, budget: Budget | None = None) -> None:
    """Raise a UserError where memory, or the disk, has no room for a shape now; `budget` is that of a run to come."""
    size = args.num_tables * args.num_rows, row_width(args.optimiser, args.embedding_dim)
    placement = Placement.from_args(args)
    placement.refuse_full_disk(*size)
    tables, (holder, limit) = placement.memory_bytes(*size), memory_for_tables(placement, budget)
    batches = 4 * BATCHES * args.batch_size * (args.num_tables * args.pooling_factor + args.dense_dim)
    # what meets and its products, each with a gradient: the least that a step holds besides
    features = args.num_tables + 1
    step = 4 * args.batch_size * features * 2 * (args.embedding_dim + features)
    if tables + 2 * batches + step > limit:  # random numbers are drawn wider than they are kept
        raise UserError(
            f"this shape needs {size_text(tables)} for its tables, {size_text(batches)} for {BATCHES} batches and "
            f"{size_text(step)} for a step at least, and {holder} has {size_text(limit)} free: give fewer tables, "
            "rows, or samples a step."
        )
