"""fp32 or bf16: which is faster is measured once on a machine for a job, kept, and then holds for all its budgets."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from labkit.fast.tables import EmbeddingTables
from labkit.fast.times import StepTimes, recall, remember
from labkit.hardware.cpu import ISA_CAPS, read_cpu

TURNS, ROUNDS, ENOUGH_S = 3, 6, 1.0
"""Each precision is tried in so many turns of so many passes, of which the first does not count; turns after the first
are left out once they have taken this long."""
WORTH = 0.95
"""bf16 is chosen where its pass takes less than this share of fp32's."""


def autocast(precision: str, device: torch.device | str) -> torch.autocast:
    """The context in which a forward pass of that precision runs."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=precision == "bf16")


def faster_precision(job: str, model: nn.Module, loss: Callable[[], Tensor]) -> tuple[str, str]:
    """The faster precision for a job on this machine, and why; the model is left as it is.

    Args:
        job: names the job and the sizes that decide: what was measured for the same words counts.
        model: what trains.
        loss: the loss of one batch, computed anew at each call.
    """
    device = next(model.parameters()).device
    machine = machine_key(device)
    times = recall(machine, job)
    if times is None:
        times = remember(StepTimes(machine, job, _measure(model, loss, device), time.strftime("%Y-%m-%d")))
    fp32, bf16 = times.step_time_ms["fp32"], times.step_time_ms["bf16"]
    return ("bf16" if bf16 < WORTH * fp32 else "fp32"), str(times)


def _measure(model: nn.Module, loss: Callable[[], Tensor], device: torch.device) -> dict[str, float]:
    """Milliseconds of forward and backward pass in each precision on one thread, the best of several."""
    took: dict[str, list[float]] = {"fp32": [], "bf16": []}
    buffers = [buffer.clone() for buffer in model.buffers()]
    threads, began = torch.get_num_threads(), time.perf_counter()
    torch.set_num_threads(1)  # so that all budgets of this machine are answered alike
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            for _ in range(TURNS):
                for precision, times in took.items():
                    times += [_pass_s(model, loss, precision, device) for _ in range(ROUNDS)][1:]
                if time.perf_counter() - began > ENOUGH_S:
                    break
    finally:
        torch.set_num_threads(threads)
    for buffer, before in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(before)
    return {precision: 1000 * min(times) for precision, times in took.items()}


def _pass_s(model: nn.Module, loss: Callable[[], Tensor], precision: str, device: torch.device) -> float:
    began = time.perf_counter()
    with autocast(precision, device):
        value = loss()
    value.backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    took = time.perf_counter() - began
    model.zero_grad(set_to_none=True)
    for module in model.modules():
        if isinstance(module, EmbeddingTables):
            module.bags = None
    return took


def machine_key(device: torch.device) -> str:
    """What decides, beside the job, which precision is faster."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        # the two variables cap the instruction set, which decides whether bf16 is real
        caps = [f"{name}={os.environ[name]}" for name in ISA_CAPS if name in os.environ]
        name = ", ".join([read_cpu().model, torch.backends.cpu.get_cpu_capability(), *caps])
    return f"{platform.machine()}, {name}, torch {torch.__version__}"
