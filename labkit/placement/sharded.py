"""Embedding tables that TorchRec shards over processes; the rest of a model need not know.

Shapes: B samples, D embedding dim, F tables, L pooling factor, R rows of a table.
"""

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit import UserError, errors, hardware
from labkit.models import RowwiseAdagrad
from labkit.placement.row_store import DrawnWeight

TYPES = {"table": "table_wise", "row": "row_wise", "column": "column_wise", "data": "data_parallel"}
"""TorchRec's names of the ways to shard a table"""
OPTIMISERS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rowwise-adagrad": RowwiseAdagrad}
"""Optimisers of tables that FBGEMM's kernels have on CPUs, too"""


class ShardedTables(nn.Module):
    """The `tables` of a `labkit.models.Dlrm`: each process of the group holds its shards alone.

    They are updated in the backward pass. Only tables that each process has as a whole have an optimiser, `whole`.
    """

    def __init__(
        self,
        num_rows: Sequence[int],
        embedding_dim: int,
        *,
        sharding: str,
        optimiser: str,
        lr: float,
        batch_size: int,
        free_bytes: float,
    ):
        """Plan the shards, and make them.

        `sharding` is one of `TYPES` for all tables, or "auto", TorchRec's choice for each; `optimiser` one of
        `OPTIMISERS`. `batch_size` counts the samples of all processes together, and `free_bytes` is the memory of this
        host for the tables of its processes.

        Raises:
            UserError: TorchRec is missing or of another torch, or there is no room for the tables.
        """
        super().__init__()
        if why := hardware.why_no_torchrec():
            raise UserError(f"{why}.")
        import torchrec
        from torchrec.distributed import planner
        from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
        from torchrec.distributed.planner.types import PlannerError
        from torchrec.distributed.types import ShardingEnv
        from torchrec.optim import RowWiseAdagrad
        from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

        class CpuSharder(EmbeddingBagCollectionSharder):
            """Also offers row-wise shards: on CPUs TorchRec omits them, since gloo once had no reduce-scatter."""

            def sharding_types(self, compute_device_type: str) -> list[str]:
                return [*super().sharding_types(compute_device_type), TYPES["row"]]

        for name in ("torchrec", "torch.fx"):  # five warnings per process, about nothing here
            logging.getLogger(name).setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module=r"torch(rec)?\.")
        group, world = errors.certain(dist.group.WORLD), dist.get_world_size()
        self.sizes = {f"table_{number}": (rows, embedding_dim) for number, rows in enumerate(num_rows)}
        config, as_is = torchrec.EmbeddingBagConfig, nn.Identity()
        tables = [config(*size, name=key, feature_names=[key], init_fn=as_is) for key, size in self.sizes.items()]
        bags: Any = torchrec.EmbeddingBagCollection(tables=tables, device=torch.device("meta"))

        kinds = [kind for name, kind in TYPES.items() if sharding in ("auto", name)]
        if optimiser == "rowwise-adagrad":  # with a state for each part of a row it would be another optimiser
            kinds = [kind for kind in kinds if kind != TYPES["column"]]
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        room = int(min(free_bytes, 2**50)) // local
        plans = planner.EmbeddingShardingPlanner(
            topology=planner.Topology(world, "cpu", ddr_cap=room, local_world_size=local),
            batch_size=-(-batch_size // world),  # of a process
            constraints={key: planner.ParameterConstraints(kinds, min_partition=4) for key in self.sizes},
            debug=False,
        )
        sharder: Any = CpuSharder()
        try:
            plan: Any = plans.collective_plan(bags, [sharder], group).get_plan_for_module("")
        except PlannerError as error:
            raise UserError(f"TorchRec finds no place for these tables with --sharding {sharding}: {error}") from error
        refuse_unfused(plan)
        self.plan = {key: plan[key].sharding_type for key in self.sizes}

        whole = [key for key, kind in self.plan.items() if kind == TYPES["data"]]
        fused = [bags.embedding_bags[key].weight for key in self.sizes if key not in whole]
        kind = RowWiseAdagrad if optimiser == "rowwise-adagrad" else OPTIMISERS[optimiser]
        eps = {} if optimiser == "sgd" else {"eps": 1e-10}  # that of the plain optimisers; FBGEMM's is larger
        apply_optimizer_in_backward(kind, fused, {"lr": lr} | eps)
        with torch.random.fork_rng(devices=()):  # so that the model draws what it would draw without shards
            self.bags: Any = sharder.shard(bags, plan, ShardingEnv.from_process_group(group), torch.device("cpu"))
        self._whole: dict[str, Any] = {key: self.bags.embedding_bags[key].weight for key in whole}
        self.whole = OPTIMISERS[optimiser](self._whole.values(), lr=lr) if whole else None

    def forward(self, categorical: Tensor) -> Tensor:
        """Return the sums (B, F, D) for int32 (B, F, L), row numbers within each table; B is the same everywhere."""
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        batch, features, lookups = categorical.shape
        lengths = torch.full((features * batch,), lookups, dtype=torch.int32)
        rows = categorical.transpose(0, 1).flatten().long()  # (F B L,)
        found = self.bags(KeyedJaggedTensor(list(self.sizes), rows, lengths=lengths)).wait()
        return torch.stack([found[key] for key in self.sizes], 1)  # its values are in the order of the processes

    def table_weights(self) -> list[DrawnWeight]:
        """What a model's initialisation needs of each table's weight (R, D)."""
        state = self.bags.state_dict()
        weights = {key: state[f"embedding_bags.{key}.weight"] for key in self.sizes}
        return [DrawnWeight(*size, partial(keep_own, weights[key])) for key, size in self.sizes.items()]

    def shards(self) -> dict[str, Any]:
        """Weights and their optimiser's state, by names that no sharding changes; loading writes them in place."""
        state = dict(self.bags.state_dict())
        for of_table in self.bags.fused_optimizer.state_dict()["state"].values():
            state |= of_table  # such as table_0.momentum1
        for key, weight in self._whole.items():
            of_table = errors.certain(self.whole).state[weight]
            state |= {f"{key}.momentum1": of_table["sum"]} if "sum" in of_table else {}
        return state


def keep_own(weight: Any, start: int, drawn: np.ndarray) -> None:
    """Copy what belongs to this process of drawn rows (n, D) from `start` on; `weight` is a tensor or ShardedTensor."""
    parts = [(0, 0, weight)]
    if hasattr(weight, "local_shards"):
        parts = [(*shard.metadata.shard_offsets, shard.tensor) for shard in weight.local_shards()]
    for row, column, part in parts:
        first, last = max(row, start), min(row + len(part), start + len(drawn))
        if first < last:
            own = drawn[first - start : last - start, column : column + part.shape[1]]
            part[first - row : last - row] = torch.from_numpy(own)


def refuse_unfused(plan: Mapping[str, Any]) -> None:
    """Refuse a plan with which TorchRec would drop the optimiser of a table, as one made by hand on a CPU does.

    Raises:
        UserError: a sharded table has another kernel than "fused".
    """
    for key, planned in plan.items():
        if planned.sharding_type != TYPES["data"] and planned.compute_kernel != "fused":
            raise UserError(
                f"the plan names the kernel {planned.compute_kernel!r} for {key}, with which TorchRec drops the "
                'optimiser of its rows: give compute_kernel="fused".'
            )
