"""How the kit's jobs train on several processes: each has a share of every batch, and they average their gradients."""

import dataclasses
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from labkit import UserError, fast, tracking


class Company:
    """The processes that train a job together. In one process, everything is as it is without it."""

    def __init__(self, device: str):
        """Join the processes that a launcher has started.

        Raises:
            UserError: they cannot be joined.
        """
        self.device = device
        self.weight: Tensor | None = None
        """The weight of this process' share of the latest batch, for `loss.backward`: with it the mean over the
        processes, which `DistributedDataParallel` takes, is that over the samples; None in one process"""
        self.counts = True
        """Whether this process counts the samples of its share"""
        if int(os.environ.get("WORLD_SIZE") or "1") > 1 and not dist.is_initialized():
            try:
                dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
            except (dist.DistNetworkError, dist.DistStoreError) as error:
                place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
                raise UserError(
                    f"rank {os.environ.get('RANK')} on {platform.node()} cannot meet the others at {place} "
                    f"({str(error).splitlines()[0]}): if another program has that port, choose another one "
                    "(--rdzv-endpoint or --master-port of torchrun), else start all ranks with the same address."
                ) from None
            if device.startswith("cuda"):
                torch.cuda.set_device(device)
        self.count = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    def share(self, loader: Any) -> Any:
        """The loader with this process' share of each batch: every n-th sample of those that all processes draw."""
        return loader if self.count == 1 else tracking.ChangedLoader(loader, self._shared)

    def _shared(self, batches: Iterable[Any]) -> Iterator[Any]:
        rank, count = dist.get_rank(), self.count
        for batch in batches:
            parts = vars(batch).values() if dataclasses.is_dataclass(batch) else batch
            samples = len(next(iter(parts)))
            # of a last batch with fewer samples than processes each takes all, with the same mean, and one counts them
            self.counts = samples >= count or rank == 0
            own = slice(rank, None, count) if samples >= count else slice(None)
            shares = [part[own] for part in parts]
            weight = len(shares[0]) * count / samples if samples >= count else 1.0
            self.weight = torch.tensor(weight, device=self.device)
            yield type(batch)(*shares) if dataclasses.is_dataclass(batch) else tuple(shares)

    def parallel(self, model: nn.Module) -> nn.Module:
        """The model, whose backward pass averages the gradients of all processes.

        The tables of `labkit.fast` exchange their bags themselves, in the optimiser's step.
        """
        if self.count == 1:
            return model
        own = [f"{name}.weight" for name, part in model.named_modules() if getattr(part, "keeps_bags", False)]
        # in training buffers are constants or BatchNorm's means, of which those of rank 0 count
        buffers = [name for name, _ in model.named_buffers()]
        # torch has no public name for it
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [*own, *buffers])
        return fast.exchanging_rows(DistributedDataParallel(model))

    def leave(self, status: int = 0) -> None:
        """End this process, if it is one of several that labkit did not start: gloo may abort it at its usual end."""
        if self.count > 1 and tracking.current_harness() is None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
