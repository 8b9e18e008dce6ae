"""Several processes: a student's step on them, recorded collectives of eight GPUs, recorded placements of tables."""

import gzip
import inspect
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.json_data import build
from labkit.project import shipped_datasets
from labkit_course.apparatus.sharding import on_processes

FEATURES, ROUNDS = 64, 3
ITEM_BYTES = {"float": 4, "int": 4, "long int": 8}

ParallelStep = Callable[[nn.Module, torch.optim.Optimizer, tuple[Tensor, Tensor], int, int, Callable], float]
"""The student's step: model, optimizer, batch, rank, number of ranks, what sums a tensor over them; the loss"""


@dataclass(frozen=True)
class RecordedSet:
    """Tables, and each way to place them on two processes with its times (ms) in several passes."""

    rows: tuple[int, ...]
    lookups: tuple[int, ...]
    passes_ms: dict[tuple[int, ...], list[float]]
    planner: tuple[int, ...]
    """What TorchRec's planner chose with its own constants"""
    planner_here: tuple[int, ...]
    """What it chose with the constants of the machine that measured"""


def recorded_plans() -> tuple[list[RecordedSet], dict[str, Any]]:
    """The recorded sets, and what the file says of them and of the machine."""
    about = json.loads((shipped_datasets() / "recorded" / "sharding_plans.json").read_text("utf-8"))
    for each in about["sets"]:
        each["passes_ms"] = {tuple(map(int, way)): passes for way, passes in each["ms"].items()}
    return build(about.pop("sets"), list[RecordedSet]), about


def planned_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """What TorchRec's planner predicts for 26 tables on eight V100s.

    Returns:
        tables: columns rows, lookups, whole_ms (the part of a step of the GPU that has the table as a whole).
        plans: columns step (the plan), phase, time_ms: the slowest GPU of each plan.
    """
    about = json.loads((shipped_datasets() / "recorded" / "planned_tables.json").read_text("utf-8"))
    phases, rows = ("forward", "backward", "communication"), []
    for plan, gpus in about["plans"].items():
        slowest = max(gpus, key=lambda each: sum(each[phase] for phase in phases))
        rows += [(plan, phase, slowest[phase]) for phase in phases]
    tables = pd.DataFrame({name: about[name] for name in ("rows", "lookups", "whole_ms")})
    return tables, pd.DataFrame(rows, columns=["step", "phase", "time_ms"])


def recorded_collectives() -> pd.DataFrame:
    """The collectives of the recorded step of eight V100s: kind, bytes of a rank, and exchange (µs).

    An exchange begins when the last rank has entered the collective, and ends when the last one has left it.
    """
    spans = []
    for path in sorted((shipped_datasets() / "recorded" / "param-v100" / "original").iterdir()):
        events = sorted(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"], key=lambda each: each["ts"])
        asked = [each for each in events if each["name"].startswith("nccl:")]
        ran = [each for each in events if each["name"].startswith("ncclKernel")]
        spans.append([(each["ts"], each["ts"] + each["dur"]) for each in ran])
    rows = []
    for call, of_ranks in zip(asked, zip(*spans, strict=True), strict=True):
        (count,), kind = call["args"]["Input Dims"][0], call["args"]["Input type"][0]
        exchange_us = max(end for _, end in of_ranks) - max(begin for begin, _ in of_ranks)
        rows.append((call["name"].removeprefix("nccl:"), count * ITEM_BYTES[kind], exchange_us))
    return pd.DataFrame(rows, columns=["collective", "bytes", "exchange_us"])


def train_on(step: FunctionType, steps: Mapping[int, int]) -> dict[int, tuple[list[list[float]], list[list[float]]]]:
    """A student's step on one process and on two, by the samples of a batch; `steps` says how many of each are taken.

    Each has the losses, and the seconds per step of `ROUNDS` rounds that take turns (measured): on one, then on two.
    """
    source = "from __future__ import annotations\n" + inspect.getsource(step)
    return on_processes(2, _train, source, step.__name__, steps)


def _train(source: str, name: str, steps: Mapping[int, int]) -> dict[int, tuple[list[list[float]], list[list[float]]]]:
    known: dict[str, Any] = {"torch": torch, "F": F}
    exec(compile(source, name, "exec"), known)
    step, rank, found = known[name], dist.get_rank(), {}
    for samples, count in steps.items():
        losses, seconds = [[], []], [[], []]
        for way, ranks, all_reduce in ((0, 1, lambda tensor: tensor), (1, 2, dist.all_reduce)) * (1 + ROUNDS):
            dist.barrier()  # the other process waits here while one trains alone
            if rank < ranks:
                (model, optimizer, batches), began = parts(count, samples), time.perf_counter()
                losses[way] = [float(step(model, optimizer, batch, rank, ranks, all_reduce)) for batch in batches]
                seconds[way].append((time.perf_counter() - began) / count)
        found[samples] = losses, [each[1:] for each in seconds]  # the first round warms up
    return found


def parts(steps: int, samples: int) -> tuple[nn.Module, torch.optim.Optimizer, list[tuple[Tensor, Tensor]]]:
    """A small model, its optimiser and its batches; the same ones each time."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(FEATURES, 128), nn.Tanh(), nn.Linear(128, 1))
        batches = [(torch.randn(samples, FEATURES), torch.rand(samples).round()) for _ in range(steps)]
    return model, torch.optim.SGD(model.parameters(), lr=0.5), batches


def on_threads(step: ParallelStep, ranks: int, steps: int, samples: int) -> list[Any]:
    """The losses and the final weights of each rank, where threads of this process stand for the ranks."""
    meeting, given, found = threading.Barrier(ranks, timeout=10), {}, {}

    def all_reduce(rank: int, tensor: Tensor) -> None:
        given[rank] = tensor.detach().clone()
        meeting.wait()
        total = sum(given[each] for each in range(ranks))
        meeting.wait()
        tensor.detach().copy_(total)

    def run(rank: int, model: nn.Module, optimizer: torch.optim.Optimizer, batches: list) -> None:
        try:
            losses = [step(model, optimizer, b, rank, ranks, lambda each: all_reduce(rank, each)) for b in batches]
            found[rank] = [losses, [each.detach() for each in model.parameters()]]
        except Exception as error:
            found[rank] = error
            meeting.abort()

    threads = [threading.Thread(target=run, args=(rank, *parts(steps, samples))) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [each for each in found.values() if isinstance(each, Exception)]
    for error in failed:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    if failed:
        raise RuntimeError("some ranks wait in all_reduce for the others: all have to call it equally often")
    return [found[rank] for rank in range(ranks)]
