"""The fast path chooses itself: each kind of step that could be the fastest is tried once on a machine.

What is tried is the job's own step, on its own first batch, since instruction set, cores, batch size and the shapes of
the model together decide. Kinds differ in rounding only, so they may be chosen by speed alone.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from labkit.compiled import why_not_compiled
from labkit.hardware.cpu import read_cpu
from labkit.training.config import TrainConfig
from labkit.training.job import Job
from labkit.training.step import StepKind, TrainStep
from labkit.training.step_memory import StepTimes, recall, remember

TURNS, ROUNDS, ENOUGH_S = 3, 5, 1.0
"""Each kind is tried in so many turns of so many steps, of which the first does not count; turns after the first are
left out once they have taken this long."""
NO_STEP = 1e-300
"""A learning rate that is zero in fp32: weights stay as they are, whatever the optimiser."""
ENOUGH_TRIALS = 2
"""So many runs measure, and the best times count: another program may have kept the machine busy during one."""
WORTH = 0.95
"""Another kind than the plain one is chosen where its step takes less than this share of the plain one's."""
_CAPS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
# Large enough that arithmetic, not the call, is timed. On a CPU that is one hidden layer of the presets at a mid-sized
# batch; a GPU is not busy with less than this.
_PRODUCT = {"cpu": (1024, 512, 256), "cuda": (4096, 4096, 4096)}


class _Stopped(Exception):
    """The run is to end before its first step."""


def choose_step(
    precision: str,
    compiled_tables: bool | None,
    job: Job,
    config: TrainConfig,
    device: torch.device,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[StepKind, str]:
    """The kind of step for a job, and why.

    Args:
        precision: "fp32", "bf16", or "auto": the faster one.
        compiled_tables: whether to use the compiled kernels where they can be; None where they are faster.
        job: what is to be trained; it is left as it is.
        config: how it is to be trained.
        device: what computes.
        stopped: whether the run is to end: then trying ends, and the plain kind is as good as any.
    """
    kinds, left_out = _candidates(precision, compiled_tables, job, config, device)
    if len(kinds) == 1:
        reasons = [f"not {kind}: {why}" for kind, why in left_out.items()]
        return kinds[0], "; ".join([str(kinds[0]), *(reasons or ["as asked"])])
    shape, note = f"{job.describe()}, {config.optimiser}", ""
    times = recall(machine_key(device), shape, list(map(str, kinds)))
    if times is None or times.trials < ENOUGH_TRIALS:
        try:
            times = _measure(kinds, left_out, shape, job, config, device, times, stopped)
        except _Stopped:
            return kinds[0], f"{kinds[0]}: the run was stopped while kinds of step were tried"
        try:
            remember(times)
        except OSError as error:
            note = f"; not remembered: {error}"
    asked = "auto" if precision == "auto" else f"{precision} as asked, tables auto"
    return next(kind for kind in kinds if str(kind) == times.chosen), f"{asked}: {times}{note}"


def _candidates(
    precision: str, compiled_tables: bool | None, job: Job, config: TrainConfig, device: torch.device
) -> tuple[list[StepKind], dict[str, str]]:
    """Kinds of step that can run here, the plain one first, and why others cannot."""
    precisions = ["fp32", "bf16"] if precision == "auto" else [precision]
    tables, left_out = [False], {}
    if job.sparse_parameters and compiled_tables is not False:
        if device.type != "cpu":
            why_not = "they are for CPUs"
        elif config.grad_clip_norm is not None:
            why_not = "clipping needs the gradient that they never make"
        else:
            why_not = why_not_compiled()
        if why_not is None:
            tables = [False, True] if compiled_tables is None else [True]
        else:
            left_out["compiled tables"] = why_not
    return [StepKind(name, compiled) for name in precisions for compiled in tables], left_out


def _measure(
    kinds: list[StepKind],
    left_out: dict[str, str],
    shape: str,
    job: Job,
    config: TrainConfig,
    device: torch.device,
    before: StepTimes | None,
    stopped: Callable[[], bool],
) -> StepTimes:
    """Try the kinds; of those that were tried before, the better time counts."""
    tried = kinds
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # a CPU without bf16 arithmetic emulates it, an order of magnitude slower: a step would take too long to try
        if len({kind.precision for kind in kinds}) > 1 and (ratio := bf16_speedup(device)) < 1:
            left_out |= {"bf16": f"its matrix products ran {ratio:.2f} times as fast as fp32"}
            tried = [kind for kind in kinds if kind.precision == "fp32"]
        took = step_time_ms(tried, job, config, device, stopped)
    if before is not None:
        took = {kind: min(time_ms, before.step_time_ms.get(str(kind), time_ms)) for kind, time_ms in took.items()}
    best = min(tried, key=took.get)
    chosen = best if took[best] < WORTH * took[tried[0]] else tried[0]
    return StepTimes(
        machine=machine_key(device),
        job=job.name,
        shape=shape,
        candidates=list(map(str, kinds)),
        step_time_ms={str(kind): took[kind] for kind in tried},
        left_out=left_out,
        chosen=str(chosen),
        when=time.strftime("%Y-%m-%d"),
        trials=1 + (before.trials if before else 0),
    )


def step_time_ms(
    kinds: list[StepKind],
    job: Job,
    config: TrainConfig,
    device: torch.device,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[StepKind, float]:
    """Milliseconds of a job's step of each kind, the best of several; the job is left as it is."""
    batch, _ = next(job.batches(0, 0))
    buffers = [buffer.clone() for buffer in job.model.buffers()]
    job.model.train()
    took: dict[StepKind, list[float]] = {kind: [] for kind in kinds}
    began = time.perf_counter()
    for _ in range(TURNS):
        for kind, times in took.items():
            times += _turn(TrainStep(job, replace(config, lr=NO_STEP), kind, device), batch, stopped)
        if time.perf_counter() - began > ENOUGH_S:
            break
    for buffer, before in zip(job.model.buffers(), buffers, strict=True):
        buffer.copy_(before)
    return {kind: 1000 * min(times) for kind, times in took.items()}


def _turn(step: TrainStep, batch: Any, stopped: Callable[[], bool]) -> list[float]:
    """Seconds of some steps, one at least; the first, which makes the optimiser's state, does not count."""
    times = []
    for _ in range(ROUNDS):
        if stopped():
            raise _Stopped
        if sum(times[1:]) > ENOUGH_S:
            break
        start = time.perf_counter()
        step(batch, 0)
        _synchronise(step.device)
        times.append(time.perf_counter() - start)
    return times[1:]


def bf16_speedup(device: torch.device) -> float:
    """Time of an fp32 matrix product over that of the same under autocast, casts included; interleaved, best of 7."""
    rows, inner, outer = _PRODUCT[device.type]
    a, b = torch.randn(rows, inner, device=device), torch.randn(inner, outer, device=device)
    times: dict[str, list[float]] = {"fp32": [], "bf16": []}
    for _ in range(8):
        for name, taken in times.items():
            taken.append(_product_s(a, b, StepKind(name)))
    # the first of each sets up its kernel
    return min(times["fp32"][1:]) / min(times["bf16"][1:])


def _product_s(a: torch.Tensor, b: torch.Tensor, kind: StepKind) -> float:
    """Seconds of a product of fp32 operands."""
    with kind.autocast(a.device):
        _synchronise(a.device)
        start = time.perf_counter()
        a @ b
        _synchronise(a.device)
        return time.perf_counter() - start


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine_key(device: torch.device) -> str:
    """What decides, beside the job, which kind of step is fast."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        # the two variables cap the instruction set, which decides whether bf16 is real
        caps = [f"{name}={os.environ[name]}" for name in _CAPS if name in os.environ]
        threads = f"{torch.get_num_threads()} threads"
        name = ", ".join([read_cpu().model, torch.backends.cpu.get_cpu_capability(), *caps, threads])
    return f"{platform.machine()}, {name}, torch {torch.__version__}"
