"""Embedding tables sharded over processes: the time of each placement, predicted and measured.

As in Lin et al., arXiv 2404.12674: a process looks up its own tables for all samples; all processes exchange the
results, so that each has its share of the samples; gradients go back the same way. The slowest process decides.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.perfmodel import ALL, Card, operators_of, predict_step

SIZES = tuple(2**power for power in range(8, 25, 2))
"""Bytes per process with which exchanges are timed"""
ROUNDS = 15
WARM = 3
LR = 0.01

Placement = tuple[int, ...]
"""Number of each table's process"""


@dataclass(frozen=True)
class Tables:
    """Embedding tables, and the lookups of a step."""

    rows: tuple[int, ...]
    lookups: tuple[int, ...]
    """Lookups per sample in each table; their rows are summed"""
    dim: int
    batch_size: int
    """Samples of all processes together"""


@dataclass(frozen=True)
class Transfer:
    """Cost of one process' part in an exchange."""

    start_s: float
    byte_s: float
    """Time per byte sent"""

    def seconds(self, sent_bytes: float) -> float:
        return self.start_s + self.byte_s * sent_bytes


def sent_share(processes: int) -> float:
    """Bytes that a process sends per byte of its tensor in an all-to-all (the "bus factor" of NCCL's tests)."""
    return (processes - 1) / processes


def fit_transfer(sizes: Sequence[float], times_s: Sequence[float], factor: float = 1.0) -> Transfer:
    """Start-up cost and cost per byte sent, from the bytes and the seconds of tensors; relative errors count.

    `factor` is the number of bytes sent per byte of a tensor.
    """
    from scipy.optimize import nnls

    of_largest = np.array(sizes, float) / max(sizes)
    parts = np.stack([np.ones_like(of_largest), factor * of_largest], axis=1) / np.array(times_s, float)[:, None]
    (start_s, largest_s), _ = nnls(parts, np.ones(len(sizes)))
    return Transfer(float(start_s), float(largest_s / max(sizes)))


def placements(tables: Tables, processes: int, random: int = 0, seed: int = 0) -> dict[str, Placement]:
    """Ways to place tables: in turn, largest first to the process with fewest rows or lookups, and at random."""
    ways = {"in turn": tuple(number % processes for number in range(len(tables.rows)))}
    for name, weights in {"by rows": tables.rows, "by lookups": tables.lookups}.items():
        loads, placed = [0] * processes, [0] * len(weights)
        for number in np.argsort(np.negative(weights), kind="stable"):
            placed[number] = loads.index(min(loads))
            loads[placed[number]] += weights[number]
        ways[name] = tuple(placed)
    rng = np.random.default_rng(seed)
    for number in range(random):
        ways[f"random {number + 1}"] = tuple(map(int, rng.integers(0, processes, len(tables.rows))))
    return ways


def predict_tables(tables: Tables, card: Card) -> float:
    """Predicted seconds of a step of these tables on one process, with as many threads as the card's machine."""
    step = _local_step(tables, range(len(tables.rows)))
    step()
    return predict_step(operators_of(step), card, ALL).step_ms / 1e3


def _local_step(
    tables: Tables, own: Sequence[int], exchange: Callable[[Tensor], None] = lambda sums: None
) -> Callable[[], None]:
    """A step of one process: look up its tables for all samples, exchange, and update them."""
    torch.manual_seed(0)
    bags = [nn.EmbeddingBag(tables.rows[number], tables.dim, mode="sum", sparse=True) for number in own]
    ids = [torch.randint(tables.rows[number], (tables.batch_size, tables.lookups[number])) for number in own]
    optimizer = torch.optim.SGD([bag.weight for bag in bags], lr=LR) if bags else None

    def step() -> None:
        found = [bag(each) for bag, each in zip(bags, ids, strict=True)]
        joined = torch.cat(found, dim=1) if found else torch.zeros(tables.batch_size, 0, requires_grad=True)
        exchange(joined)
        joined.sum().backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()

    return step


def time_exchanges(processes: int, sizes: Sequence[int] = SIZES) -> list[float]:
    """Seconds of an all-to-all (gloo) between processes of this machine, for tensors of these bytes."""
    return on_processes(processes, _time_exchanges, tuple(sizes))


def measure_placements(tables: Tables, ways: dict[str, Placement], processes: int) -> dict[str, float]:
    """Measured seconds of a step with each placement (median), with one thread per process."""
    return on_processes(processes, _measure_placements, tables, ways)


def on_processes(processes: int, work: Callable[..., Any], *given: Any) -> Any:
    """Run a function on processes that gloo connects, with one thread each; the first one's result."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.pt"
        arguments = (processes, f"file://{folder}/meet", str(found), work, given)
        torch.multiprocessing.spawn(_start, args=arguments, nprocs=processes)
        return torch.load(found, weights_only=True)


def _start(rank: int, processes: int, meet: str, found: str, work: Callable[..., Any], given: tuple) -> None:
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=processes)
    result = work(*given)
    if rank == 0:
        torch.save(result, found)
    os._exit(0)  # gloo aborts a process that is still closing its connections after another has exited


def _time_exchanges(sizes: Sequence[int]) -> list[float]:
    times = []
    for size in sizes:
        numbers = size // 4 // dist.get_world_size() * dist.get_world_size()
        given, taken = torch.ones(numbers), torch.empty(numbers)
        times.append(_median_s(lambda given=given, taken=taken: dist.all_to_all_single(taken, given)))
    return times


def _measure_placements(tables: Tables, ways: dict[str, Placement]) -> dict[str, float]:
    times = {}
    for name, placement in ways.items():
        own = [number for number, owner in enumerate(placement) if owner == dist.get_rank()]
        counts = [placement.count(rank) for rank in range(dist.get_world_size())]
        times[name] = _median_s(_local_step(tables, own, partial(exchange, counts=counts, dim=tables.dim)))
    return times


def _median_s(step: Callable[[], object]) -> float:
    """Median time of a step, from the common start to the end of the slowest process."""
    times = []
    for _ in range(WARM + ROUNDS):
        dist.barrier()
        began = time.perf_counter()
        step()
        dist.barrier()
        times.append(time.perf_counter() - began)
    return statistics.median(times[WARM:])


def exchange(sums: Tensor, counts: Sequence[int], dim: int) -> None:
    """Send each process its samples' share of the sums (B, own tables × D), and as much back, as gradients are.

    `counts` are the numbers of tables of the processes.
    """
    share = len(sums) // len(counts)
    sent, received = [share * sums.shape[1]] * len(counts), [share * count * dim for count in counts]
    own, taken = sums.detach().flatten(), sums.new_empty(sum(received))
    dist.all_to_all_single(taken, own, received, sent)
    dist.all_to_all_single(torch.empty_like(own), taken, sent, received)
