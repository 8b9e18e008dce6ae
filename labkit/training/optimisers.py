"""Optimisers for models whose tables have sparse gradients, and clipping that counts those gradients too."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from labkit.fast.tables import EmbeddingTables
from labkit.training.config import TrainConfig
from labkit.fast.quick_optimiser import without_compiler
from labkit.models.rowwise_adagrad import RowwiseAdagrad
from labkit.fast.table_blocks import BlockUpdate


class Optimisers:
    """One optimiser for dense gradients and one for sparse ones, stepped as one."""

    def __init__(
        self,
        model: nn.Module,
        sparse_names: Iterable[str],
        config: TrainConfig,
        total_steps: int,
        *,
        compiled_tables: bool = False,
    ):
        """Set up for `total_steps` steps.

        Args:
            model: what is trained.
            sparse_names: the parameters whose gradients are sparse.
            config: says which optimiser.
            total_steps: the length of the learning rate's schedule.
            compiled_tables: update embedding tables with the compiled kernels.
        """
        sparse_names = set(sparse_names)
        dense = [p for name, p in model.named_parameters() if name not in sparse_names]
        sparse = [p for name, p in model.named_parameters() if name in sparse_names]
        self.config, self.total_steps = config, total_steps
        kind, sparse_kind = _KINDS[config.optimiser]
        on_cpu = all(parameter.device.type == "cpu" for parameter in dense)
        # one pass over each parameter; torch 2.13 has Adagrad's for CPUs only
        fused = on_cpu or not issubclass(kind, torch.optim.Adagrad)
        self.parts = [kind(dense, lr=config.lr, fused=fused)]
        self._steps = [self.parts[0].step]
        if sparse:
            torch.sparse.check_sparse_tensor_invariants.disable()  # as by default, but Adagrad would warn of it
            self.parts.append(sparse_kind(sparse, lr=config.lr))
            self._steps.append(self.parts[1].step)
        tables = [module for module in model.modules() if isinstance(module, EmbeddingTables) and module.sparse]
        # clipping needs the gradient of all rows, and a GPU would wait for the CPU at every block
        keeps_bags = on_cpu and config.grad_clip_norm is None
        assert keeps_bags or not compiled_tables, "the compiled kernels are for CPUs, without clipping"
        for each in tables:
            each.keeps_bags = keeps_bags
        if tables and keeps_bags:
            assert sparse == [tables[0].weight], "their optimiser holds nothing else"
            self._steps[1] = _table_update(compiled_tables)(tables[0], self.parts[1]).step

    def lr_at(self, step: int) -> float:
        """The learning rate of a step (from 0): linear warm-up, then the schedule."""
        config = self.config
        lr = config.lr
        if step < config.warmup_steps:
            lr *= (step + 1) / config.warmup_steps
        if config.schedule == "cosine":
            lr *= 0.5 * (1 + math.cos(math.pi * min(1.0, step / self.total_steps)))
        return lr

    def step(self, step: int) -> None:
        """Update all parameters with their gradients and drop the gradients."""
        lr = self.lr_at(step)
        groups = [group for part in self.parts for group in part.param_groups]
        if self.config.grad_clip_norm is not None:
            clip_gradients((p for group in groups for p in group["params"]), self.config.grad_clip_norm)
        for group in groups:
            group["lr"] = lr
        for part, update in zip(self.parts, self._steps, strict=True):
            update()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def _table_update(compiled: bool) -> type:
    if compiled:
        from labkit.fast.table_compiled import CompiledUpdate  # which needs numba

        return CompiledUpdate
    return BlockUpdate


# For dense and for sparse gradients. torch's SGD and Adagrad take both, its Adam has a sparse twin, and the state of
# rowwise Adagrad is for tables.
_TORCH_KINDS = {
    "sgd": (torch.optim.SGD, torch.optim.SGD),
    "adagrad": (torch.optim.Adagrad, torch.optim.Adagrad),
    "rowwise-adagrad": (torch.optim.Adagrad, RowwiseAdagrad),
    "adam": (torch.optim.Adam, torch.optim.SparseAdam),
}
_KINDS = {name: tuple(map(without_compiler, kinds)) for name, kinds in _TORCH_KINDS.items()}


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale gradients, dense and sparse, so that their L2 norm together is at most `max_norm`; return the norm before.

    `torch.nn.utils.clip_grad_norm_` refuses sparse gradients.
    """
    values = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            values.append(parameter.grad.values())
        else:
            values.append(parameter.grad)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(value) for value in values]))
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for value in values:
        value.mul_(scale)
    return norm
