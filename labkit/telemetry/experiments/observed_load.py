"""What is looked at: a light and a heavy training step. As a program, a process of its own that runs one of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from labkit.telemetry.memory import own_peak_bytes

LOADS = {"light": (32, 64), "heavy": (1024, 512)}
"""Samples a step, and width of the layers."""


def make_load(name: str) -> Callable[[], object]:
    """A training step of a small ("light") or of a larger ("heavy") network; what is made at its first call is made."""
    import torch
    from torch import nn

    batch_size, width = LOADS[name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    model.to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(batch_size, width, device=device), torch.randn(batch_size, 1, device=device)

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimiser.step()
        if device == "cuda":
            torch.cuda.synchronize()

    step()
    return step


def seconds_of(load: Callable[[], object], steps: int) -> float:
    """What so many steps take together."""
    began = time.perf_counter()
    for _ in range(steps):
        load()
    return time.perf_counter() - began


def _main(load: str, observer: str, steps: str) -> None:
    """Run so many steps under an observer; print what a step took, and the peak memory of this process."""
    from labkit.telemetry.experiments.observers import observers

    step, by = make_load(load), next(each for each in observers() if each.name == observer)
    with by.watching():
        step()
        taken = seconds_of(step, int(steps))
    print(json.dumps({"step_time_ms": 1000 * taken / int(steps), "peak_memory_bytes": own_peak_bytes()}), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
