"""torch's optimisers without its compiler, which their methods import at the first call: a second and a half a process.

What they import it for is to tell it, should it ever compile them, what to leave alone. Nothing here is compiled by it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

_GUARDED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
"""Methods whose decorator imports the compiler."""


def without_compiler(kind: type[Optimizer]) -> type[Optimizer]:
    """A subclass of an optimiser that does the same, and imports no compiler (`benchmarks/start_up.py`)."""
    plain_step = inspect.unwrap(kind.step)

    @torch.no_grad()
    def step(self) -> None:
        plain_step(self)

    methods = {name: inspect.unwrap(getattr(Optimizer, name)) for name in _GUARDED}
    return type(kind.__name__, (kind,), methods | {"step": step, "__doc__": kind.__doc__})


def quick_optimiser(kind: type[Optimizer], parameters: Iterable[Tensor], lr: float) -> Optimizer:
    """An optimiser of torch's for dense weights, in one pass over each."""
    weights = list(parameters)
    fused = kind is not torch.optim.Adagrad or weights[0].device.type == "cpu"  # torch 2.13 has no other of Adagrad's
    return without_compiler(kind)(weights, lr=lr, fused=fused)
