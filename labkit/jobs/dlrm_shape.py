"""Steps of a DLRM of any shape on random batches: what they take, and which of its parts takes it.

`python dlrm_shape.py --num-tables 64`, or a cell of a sweep. Labels are random, too: nothing is to be learnt here.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from dataclasses import asdict
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

import labkit
from labkit.data.clicks.generate import ZipfSampler
from labkit.errors import UserError, with_flag
from labkit.fast.precision import autocast
from labkit.hardware.sizes import size_text
from labkit.jobs.dlrm import OPTIMISERS, build_model, build_optimizers, loss_of
from labkit.jobs.flags import memory_for_tables
from labkit.jobs.step_parts import STEP, mark, mark_parts, part_shares
from labkit.models.dlrm import DlrmConfig
from labkit.placement.choice import ahead, placed_tables
from labkit.placement.flags import Placement, placement_flags, row_width
from labkit.placement.tables import PlacedTables
from labkit.process.silence import silenced

BATCHES = 4
"""That are made before the clock starts, and taken in turn"""
LR = 0.01
FEWEST_STEPS = 5
PROFILED_STEPS = 4
PARTS = {"bottom": "mlps", "tables": "embeddings", "interaction": "interaction", "top": "mlps"}
"""What each module of the model counts as"""
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
    add("--optimiser", choices=tuple(OPTIMISERS), default="sgd", help="(default: sgd)")
    add("--kernels", choices=("plain", "fast"), default="fast", help="as of `labkit train dlrm` (default: fast)")
    add("--precision", choices=("fp32", "bf16"), default="fp32", help="(default: fp32)")
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:1 (default: auto)")
    add("--seconds", type=float, default=2.0, metavar="S", help="that are timed, five steps at least (default: 2)")
    add("--seed", type=int, default=0, metavar="N", help="of weights and batches (default: 0)")
    add("--runs-dir", default="runs", metavar="DIR", help="where the run folder goes (default: runs)")
    placement_flags(flags)
    return flags


def check(args: argparse.Namespace) -> None:
    """Refuse a shape that is none, or that does not fit in memory."""
    for name in (*WHOLE_NUMBERS, "seconds"):
        if getattr(args, name) <= 0:
            raise UserError(f"{with_flag(name)} is {getattr(args, name)}: give a number above 0.", field=name)
    if args.zipf < 0:
        raise UserError(f"--zipf is {args.zipf}: give 0 (all rows alike) or more (some more often).", field="zipf")
    size = args.num_tables * args.num_rows, row_width(args.optimiser, args.embedding_dim)
    placement = Placement.from_args(args)
    placement.refuse_full_disk(*size)
    tables, (holder, limit) = placement.memory_bytes(*size), memory_for_tables(placement)
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


def shape_config(args: argparse.Namespace) -> DlrmConfig:
    """The model of these flags: all tables alike, and all hidden layers."""
    hidden = (args.mlp_width,) * args.mlp_depth
    rows = (args.num_rows,) * args.num_tables
    return DlrmConfig(args.dense_dim, rows, args.embedding_dim, (*hidden, args.embedding_dim), (*hidden, 1))


def random_batches(args: argparse.Namespace) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches of dense (B, dense_dim), categorical int32 (B, F, L) and label (B,).

    With an exponent the share of the r-th row is proportional to r to the minus `zipf`; frequent rows lie scattered.
    """
    rng = np.random.default_rng(args.seed)
    shape = BATCHES, args.batch_size, args.num_tables, args.pooling_factor
    if args.zipf:
        draws = ZipfSampler(args.num_rows, args.zipf, 0.0, rng).draw(rng, prod(shape)).reshape(shape)
    else:
        draws = rng.integers(0, args.num_rows, shape, dtype=np.int32)
    dense = torch.from_numpy(rng.standard_normal((*shape[:2], args.dense_dim), dtype=np.float32))
    label = torch.from_numpy((rng.random(shape[:2]) < 0.25).astype(np.float32))
    return list(zip(dense, torch.from_numpy(draws), label, strict=True))


def main() -> None:
    # arguments
    args = shape_flags().parse_args()
    check(args)
    device = labkit.device(args.device)
    config = shape_config(args)

    # data
    batches = [[tensor.to(device) for tensor in batch] for batch in random_batches(args)]

    # model and optimisers
    torch.manual_seed(args.seed)
    model = build_model(config, args.kernels, placed_tables(args, device=device)).to(device)
    optimizers = build_optimizers(model, args.optimiser, LR, args.kernels)
    mark_parts(model, PARTS)

    def step(batch: list[Tensor]) -> Tensor:
        with record_function(STEP):
            with autocast(args.precision, device):
                loss = loss_of(model, batch)
            loss.backward()
            for part, optimizer in zip(("optimiser", "embeddings"), optimizers, strict=True):
                with mark(part):
                    optimizer.step()
                    optimizer.zero_grad()
        return loss.detach()

    settings = {name: value for name, value in vars(args).items() if name != "runs_dir"} | {"model": asdict(config)}
    with labkit.Run("dlrm-shape", config=settings, seed=args.seed, runs_dir=args.runs_dir) as run:
        taking = iter(ahead(model.tables, itertools.cycle(batches)))
        step(next(taking))  # the first sets up kernels, and touches memory
        times_ms: list[float] = []
        while len(times_ms) < FEWEST_STEPS or sum(times_ms) < 1000 * args.seconds:
            began = time.perf_counter()
            loss = step(next(taking))
            if device != "cpu":
                torch.cuda.synchronize(device)
            times_ms.append(1000 * (time.perf_counter() - began))
            run.step(loss, samples=args.batch_size)
        numbers = {"step_time_ms": statistics.median(times_ms)}
        if isinstance(model.tables, PlacedTables):
            numbers |= model.tables.metrics()
        if device == "cpu":  # on a GPU these would be shares of what the host takes to ask for the steps
            with silenced(), profile(activities=[ProfilerActivity.CPU]) as seen:
                for _ in range(PROFILED_STEPS):
                    step(next(taking))
            shares = part_shares(seen.events(), joins="interaction")
            numbers |= {f"share_{part}": share for part, share in shares.items()}
        run.log(**numbers)


if __name__ == "__main__":
    main()
