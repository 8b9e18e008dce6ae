"""Embedding tables on several processes: what each placement of the tables takes, predicted and measured.

As in Lin et al., arXiv 2404.12674: a process looks up its own tables for all samples, all processes exchange what they
found, so that each has its share of the samples, and gradients go back the same way. The slowest process decides.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.perfmodel.card import ALL, Card
from labkit.perfmodel.operators import operators_of
from labkit.perfmodel.prediction import predict_step
from labkit.perfmodel.transfers import Transfer, bus_factor

SIZES = tuple(2**power for power in range(8, 25, 2))
"""Bytes of a process that exchanges are timed with"""
ROUNDS = 15
WARM = 3
LR = 0.01

Placement = tuple[int, ...]
"""Of each table the number of its process"""


@dataclass(frozen=True)
class Tables:
    """Embedding tables, and what a step looks up in them."""

    rows: tuple[int, ...]
    lookups: tuple[int, ...]
    """Of each table, those of a sample; their rows are summed"""
    dim: int
    batch_size: int
    """Samples of all processes together"""


def placements(tables: Tables, processes: int, random: int = 0, seed: int = 0) -> dict[str, Placement]:
    """Ways to place tables: in turn, the largest to whoever has the least rows or lookups so far, and at random."""
    ways = {"in turn": tuple(number % processes for number in range(len(tables.rows)))}
    for name, weights in {"by rows": tables.rows, "by lookups": tables.lookups}.items():
        ways[name] = _balanced(weights, processes)
    rng = np.random.default_rng(seed)
    for number in range(random):
        ways[f"random {number + 1}"] = tuple(map(int, rng.integers(0, processes, len(tables.rows))))
    return ways


def _balanced(weights: Sequence[float], processes: int) -> Placement:
    loads, placed = [0.0] * processes, [0] * len(weights)
    for number in sorted(range(len(weights)), key=lambda each: -weights[each]):
        placed[number] = loads.index(min(loads))
        loads[placed[number]] += weights[number]
    return tuple(placed)


def predict_placement(tables: Tables, placement: Placement, processes: int, card: Card, all_to_all: Transfer) -> float:
    """Seconds of a step: those of the slowest process, and two exchanges.

    Args:
        tables: of all processes.
        placement: whose process has which.
        processes: that share the tables.
        card: of a machine with as many threads as a process has.
        all_to_all: of these processes.
    """
    slowest_s, most_bytes = 0.0, 0.0
    for rank in range(processes):
        own = [number for number, owner in enumerate(placement) if owner == rank]
        if own:
            step = _local_step(tables, own)
            step()
            slowest_s = max(slowest_s, predict_step(operators_of(step), card, ALL).step_ms / 1e3)
            most_bytes = max(most_bytes, 4.0 * tables.batch_size * len(own) * tables.dim)
    if processes == 1:
        return slowest_s
    return slowest_s + 2 * all_to_all.seconds(bus_factor("all_to_all", processes) * most_bytes)


def _local_step(
    tables: Tables, own: Sequence[int], exchange: Callable[[Tensor], Tensor] = lambda found: found
) -> Callable[[], None]:
    """Look up one process' tables for all samples, exchange, and update them."""
    torch.manual_seed(0)
    bags = [nn.EmbeddingBag(tables.rows[number], tables.dim, mode="sum", sparse=True) for number in own]
    ids = [torch.randint(tables.rows[number], (tables.batch_size, tables.lookups[number])) for number in own]
    optimizer = torch.optim.SGD([bag.weight for bag in bags], lr=LR) if bags else None

    def step() -> None:
        found = [bag(each) for bag, each in zip(bags, ids, strict=True)]
        joined = torch.cat(found, dim=1) if found else torch.zeros(tables.batch_size, 0, requires_grad=True)
        exchange(joined).sum().backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()

    return step


def time_collectives(processes: int, sizes: Sequence[int] = SIZES, backend: str = "gloo") -> dict[str, list[float]]:
    """Seconds of all-reduce and all-to-all between processes of this machine, for tensors of these bytes.

    By gloo between CPUs; by "nccl" between as many GPUs.
    """
    return _on_processes(processes, backend, _time_collectives, tuple(sizes))


def measure_placements(tables: Tables, ways: dict[str, Placement], processes: int) -> dict[str, float]:
    """Seconds of a step of each placement, the median of some, with one thread a process."""
    return _on_processes(processes, "gloo", _measure_placements, tables, ways)


def _on_processes(processes: int, backend: str, work: Callable[..., Any], *given: Any) -> Any:
    """Do work on processes that have a backend of torch.distributed between them; what the first of them found."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.pt"
        torch.multiprocessing.spawn(
            _start, args=(processes, backend, f"file://{folder}/meet", str(found), work, given), nprocs=processes
        )
        return torch.load(found, weights_only=True)


def _start(
    rank: int, processes: int, backend: str, meet: str, found: str, work: Callable[..., Any], given: tuple
) -> None:
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
        torch.set_default_device("cuda")
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    dist.init_process_group(backend, init_method=meet, rank=rank, world_size=processes)
    told = work(*given)
    if rank == 0:
        torch.save(told, found)
    os._exit(0)  # gloo aborts a process that is still closing its connections when another has gone


def _time_collectives(sizes: Sequence[int]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"all_reduce": [], "all_to_all": []}
    for size in sizes:
        numbers = size // 4 // dist.get_world_size() * dist.get_world_size()
        given, taken = torch.ones(numbers), torch.empty(numbers)
        times["all_reduce"].append(_median_s(lambda given=given: dist.all_reduce(given)))
        times["all_to_all"].append(_median_s(lambda given=given, taken=taken: dist.all_to_all_single(taken, given)))
    return times


def _measure_placements(tables: Tables, ways: dict[str, Placement]) -> dict[str, float]:
    times = {}
    for name, placement in ways.items():
        own = [number for number, owner in enumerate(placement) if owner == dist.get_rank()]
        counts = [placement.count(rank) for rank in range(dist.get_world_size())]
        step = _local_step(tables, own, lambda found, counts=counts: _Exchange.apply(found, counts, tables.dim))
        times[name] = _median_s(step)
    return times


def _median_s(step: Callable[[], object]) -> float:
    """The median of its times, from all processes' begin to the end of the slowest."""
    times = []
    for _ in range(WARM + ROUNDS):
        _meet()
        began = time.perf_counter()
        step()
        _meet()
        times.append(time.perf_counter() - began)
    return statistics.median(times[WARM:])


def _meet() -> None:
    dist.barrier()
    if dist.get_backend() == "nccl":  # whose barrier is one of streams
        torch.cuda.synchronize()


class _Exchange(torch.autograd.Function):
    """Sends each process its samples' share of what was found, and the gradients back."""

    @staticmethod
    def forward(ctx: Any, found: Tensor, counts: Sequence[int], dim: int) -> Tensor:
        processes, share = dist.get_world_size(), len(found) // dist.get_world_size()
        ctx.sent, ctx.shape = [share * found.shape[1]] * processes, found.shape
        ctx.received = [share * count * dim for count in counts]
        taken = found.new_empty(sum(ctx.received))
        dist.all_to_all_single(taken, found.reshape(-1), ctx.received, ctx.sent)
        return taken

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        back = gradient.new_empty(sum(ctx.sent))
        dist.all_to_all_single(back, gradient.contiguous(), ctx.sent, ctx.received)
        return back.reshape(ctx.shape), None, None
