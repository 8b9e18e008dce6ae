"""Steps of a DLRM of any shape on random batches: their time, and the share of each part.

`python dlrm_shape.py --num-tables 64`, or a cell of a sweep. Labels are random, too: there is nothing to learn.
"""

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

import labkit
from labkit.data.clicks import ZipfSampler
from labkit.fast import autocast
from labkit.jobs.dlrm import build_model, build_optimizers, loss_of
from labkit.jobs.job import read_job
from labkit.jobs.settings import BATCHES, ShapeJob
from labkit.models import DlrmConfig
from labkit.placement import PlacedTables, ahead, placed_tables
from labkit.process import silenced

LR = 0.01
FEWEST_STEPS = 5
PROFILED_STEPS = 4
PARTS = {"bottom": "mlps", "tables": "embeddings", "interaction": "interaction", "top": "mlps"}
"""The part that the time of each module counts to"""
STEP, PART = "labkit: step", "labkit: part "
"""Names of the marks around a step, and around what belongs to a part"""
NODE = "autograd::engine::evaluate_function: "
"""What torch's names of nodes of the backward pass begin with"""


def shape_config(job: ShapeJob) -> DlrmConfig:
    """The model of this shape, whose tables are all alike, and all hidden layers."""
    hidden = (job.mlp_width,) * job.mlp_depth
    rows = (job.num_rows,) * job.num_tables
    return DlrmConfig(job.dense_dim, rows, job.embedding_dim, (*hidden, job.embedding_dim), (*hidden, 1))


def random_batches(job: ShapeJob) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches of dense (B, dense_dim), categorical int32 (B, F, L) and label (B,).

    With an exponent the share of the r-th row is proportional to r to the minus `zipf`; frequent rows lie scattered.
    """
    rng = np.random.default_rng(job.seed)
    shape = BATCHES, job.batch_size, job.num_tables, job.pooling_factor
    if job.zipf:
        draws = ZipfSampler(job.num_rows, job.zipf, 0.0, rng).draw(rng, prod(shape)).reshape(shape)
    else:
        draws = rng.integers(0, job.num_rows, shape, dtype=np.int32)
    dense = torch.from_numpy(rng.standard_normal((*shape[:2], job.dense_dim), dtype=np.float32))
    label = torch.from_numpy((rng.random(shape[:2]) < 0.25).astype(np.float32))
    return list(zip(dense, torch.from_numpy(draws), label, strict=True))


def mark(part: str) -> record_function:
    """A context, or a decorator, in which all that runs counts to a part."""
    return record_function(PART + part)


def mark_parts(model: nn.Module, parts: Mapping[str, str]) -> None:
    """Let the profiler see where submodules run; `parts` maps their names to the parts that they count to."""
    for name, part in parts.items():
        module = model.get_submodule(name)
        module.forward = mark(part)(module.forward)


def part_shares(events: Iterable[FunctionEvent], joins: str) -> dict[str, float]:
    """The share of the steps that each part takes; they add up to 1.

    A node of the backward pass belongs to the part in whose forward pass its operator ran, by the sequence number that
    both have. As well as the marked parts there is "rest": Python and the time between operators. Operators outside of
    all marks count to the part `joins`.
    """
    taken, whole_us = Counter(), 0.0
    for step in (event for event in events if event.name == STEP):
        whole_us += step.time_range.elapsed_us()
        part_of: dict[int, str] = {}
        last = joins
        for event in sorted(step.cpu_children, key=lambda each: each.time_range.start):
            if event.name.startswith(NODE):
                part = last = next((part_of[each] for each in _sequence(event) if each in part_of), last)
            else:
                part = event.name.removeprefix(PART) if event.name.startswith(PART) else joins
                part_of |= dict.fromkeys(_sequence(event), part)
            taken[part] += event.time_range.elapsed_us()
    shares = {part: us / whole_us for part, us in taken.items()}
    return shares | {"rest": 1 - sum(shares.values())}


def _sequence(event: FunctionEvent) -> Iterator[int]:
    """The sequence numbers of an event and of all within it."""
    if event.sequence_nr >= 0:
        yield event.sequence_nr
    for child in event.cpu_children:
        yield from _sequence(child)


def main() -> None:
    # settings
    job = read_job(ShapeJob)
    job.refuse_too_large()
    device = labkit.device(job.device)
    config = shape_config(job)

    # data
    batches = [[tensor.to(device) for tensor in batch] for batch in random_batches(job)]

    # model and optimisers
    torch.manual_seed(job.seed)
    tables = placed_tables(job.placement, job.optimiser, device=device, folder=job.runs_dir)
    model = build_model(config, job.kernels, tables).to(device)
    optimizers = build_optimizers(model, job.optimiser, LR, job.kernels)
    mark_parts(model, PARTS)

    def step(batch: list[Tensor]) -> Tensor:
        with record_function(STEP):
            with autocast(job.precision, device):
                loss = loss_of(model, batch)
            loss.backward()
            for part, optimizer in zip(("optimiser", "embeddings"), optimizers, strict=True):
                with mark(part):
                    optimizer.step()
                    optimizer.zero_grad()
        return loss.detach()

    settings = {name: value for name, value in job.all_settings().items() if name != "runs_dir"}
    settings |= {"model": asdict(config)}
    with labkit.Run("dlrm-shape", config=settings, seed=job.seed, runs_dir=job.runs_dir) as run:
        taking = iter(ahead(model.tables, itertools.cycle(batches)))
        step(next(taking))  # the first sets up kernels, and touches memory
        times_ms: list[float] = []
        while len(times_ms) < FEWEST_STEPS or sum(times_ms) < 1000 * job.seconds:
            began = time.perf_counter()
            loss = step(next(taking))
            if device != "cpu":
                torch.cuda.synchronize(device)
            times_ms.append(1000 * (time.perf_counter() - began))
            run.step(loss, samples=job.batch_size)
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
