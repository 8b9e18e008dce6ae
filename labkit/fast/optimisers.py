"""torch's optimisers, fused and without its compiler; compiled kernels for the one table of a DLRM; the precision.

The methods of torch's optimisers import torch's compiler at their first call, only to mark themselves as not to be
compiled; that takes a second and a half per process. Nothing here uses the compiler. Each optimiser equals torch's own
of the same name (`tests/fast`).
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from labkit import UserError, compiled, hardware
from labkit.fast.dlrm import EmbeddingTables

_GUARDED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
"""Methods whose decorator imports the compiler"""


def without_compiler(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """A subclass of an optimiser that does the same without importing the compiler (`benchmarks/start_up.py`)."""
    plain_step = inspect.unwrap(kind.step)

    @torch.no_grad()
    def step(self) -> None:
        plain_step(self)

    methods = {name: inspect.unwrap(getattr(Optimizer, name)) for name in _GUARDED}
    return type(kind.__name__, (kind,), methods | {"step": step, "__doc__": kind.__doc__})


def quick_optimiser(kind: type[Optimizer], parameters: Iterable[Tensor], lr: float) -> Optimizer:
    """torch's fused optimiser for dense weights, or its "foreach" version if there is no fused one."""
    weights = list(parameters)
    on_gpu = weights[0].device.type != "cpu"
    has_fused = "fused" in inspect.signature(kind).parameters and not (kind is torch.optim.Adagrad and on_gpu)
    return without_compiler(kind)(weights, lr=lr, **({"fused": True} if has_fused else {"foreach": True}))


def fast_optimisers(
    kinds: tuple[type[Optimizer], type[Optimizer]], dense: list[Tensor], tables: EmbeddingTables, lr: float
) -> list[Any]:
    """One optimiser for the dense weights and one for the tables, of these kinds."""
    if not isinstance(tables, EmbeddingTables):
        raise UserError(
            f"fast kernels need labkit.fast.EmbeddingTables, but this model has {type(tables).__name__}: build it with "
            "EmbeddingTables, step it with optimisers of torch, or train with --kernels plain."
        )
    of_tables = without_compiler(kinds[1])([tables.weight], lr=lr)
    if tables.weight.device.type == "cpu" and compiled.why_not_compiled() is None:
        from labkit.fast.compiled_tables import CompiledTables  # needs numba

        of_tables = CompiledTables(tables, of_tables)
    elif dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise UserError(
            "fast kernels train in several processes on CPUs with numba only, since DistributedDataParallel knows no "
            "sparse gradients but those of nn.Embedding: train with --kernels plain."
        )
    return [quick_optimiser(kinds[0], dense, lr), of_tables]


def autocast(precision: str, device: torch.device | str) -> torch.autocast:
    """The context for a forward pass in this precision."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=precision == "bf16")


def chosen_precision(asked: str, device: str) -> tuple[str, str]:
    """The precision of a run on a device, and the reason: "auto" is bf16 if the device has units for its products."""
    if asked != "auto":
        return asked, "as requested"
    if torch.device(device).type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        precision = "bf16" if capability >= (8, 0) else "fp32"  # tensor cores have bf16 since Ampere
        return precision, f"auto: a GPU of compute capability {capability[0]}.{capability[1]}; bf16 from 8.0 on"
    cpu = hardware.read_cpu()
    isa = cpu.isa or ()
    if "amx_bf16" in isa:
        return "bf16", "auto: a CPU with AMX's tiles for bf16"
    if "avx512_bf16" in isa and "AMD" in cpu.model:  # on an Intel CPU without AMX it took twice the time of fp32
        return "bf16", "auto: an AMD CPU with AVX-512's bf16"
    return "fp32", "auto: a CPU without fast products in bf16"
