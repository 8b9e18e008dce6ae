"""The tables and the interaction of a DLRM, faster than those of `labkit.models.dlrm`.

Shapes: B batch, F tables, L pooling factor, D embedding dim, R rows of all tables together, U distinct rows of a batch,
N features of the interaction.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class EmbeddingTables(nn.Module):
    """Sums of the rows of each bag, with one lookup for all tables; equals `labkit.models.TableAFeature`."""

    def __init__(self, num_rows: Sequence[int], embedding_dim: int):
        super().__init__()
        self._num_rows = list(num_rows)
        self.weight = nn.Parameter(torch.empty(sum(num_rows), embedding_dim))  # (R, D)
        starts = torch.tensor([0, *num_rows[:-1]]).cumsum(0)
        self.row_start = nn.Buffer(starts.to(torch.int32), persistent=False)  # (F,)
        self.keeps_bags = False
        """Whether the backward pass keeps the gradient of the bags for `take_bags` instead of setting `weight.grad`"""
        self.bags: tuple[Tensor, Tensor] | None = None

    def forward(self, categorical: Tensor) -> Tensor:
        """Return the sums (B, F, D) for int32 (B, F, L), row numbers within each table."""
        rows = categorical + self.row_start.view(1, -1, 1)
        return Lookup.apply(self.weight, rows, partial(self._take_gradient, rows))

    def _take_gradient(self, rows: Tensor, gradient: Tensor) -> None:
        """Keep the gradient of the bags, or set the weight's, which is sparse and coalesced."""
        if self.keeps_bags:
            assert self.bags is None, "a second backward pass before the bags of the first were taken"
            self.bags = (rows, gradient)
            return
        distinct, values = row_gradients(rows, gradient)
        shape = self.weight.shape
        sparse = torch.sparse_coo_tensor(distinct[None], values, shape, is_coalesced=True, check_invariants=False)
        # set here, because a returned tensor would lose its mark of being coalesced
        self.weight.grad = sparse if self.weight.grad is None else self.weight.grad + sparse

    def table_weights(self) -> list[Tensor]:
        """The part (rows, D) of the weight for each table."""
        return list(self.weight.split(self._num_rows))

    def take_bags(self) -> tuple[Tensor, Tensor]:
        """The rows int32 (B, F, L), numbered over all tables, of the latest backward pass, and the bags' gradient.

        In several processes these are this rank's own: `DistributedDataParallel` averages what is in `weight.grad`.
        """
        assert self.bags is not None, "no backward pass since the last time"
        bags, self.bags = self.bags, None
        return bags


def look_up(weight: Tensor, rows: Tensor) -> Tensor:
    """Sums (B, F, D) of the rows of a weight (R, D) in bags (B, F, L); the gradient is dense."""
    batch, tables, pooling = rows.shape
    return F.embedding_bag(rows.view(batch * tables, pooling), weight, mode="sum").view(batch, tables, -1)


def row_gradients(rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows int64 (U,) of bags (B, F, L), ascending, and their gradient (U, D), from the bags' (B, F, D).

    torch's own sparse gradient has a copy of a bag's gradient for each of its L rows, which optimisers then sort and
    sum. Here only the row numbers are sorted, and one lookup sums the gradients in place.
    """
    sorted_rows, order = rows.flatten().sort()
    distinct, counts = sorted_rows.unique_consecutive(return_counts=True)
    values = F.embedding_bag(order // rows.shape[2], gradient.flatten(0, 1), counts.cumsum(0) - counts, mode="sum")
    return distinct.long(), values


class Lookup(torch.autograd.Function):
    """`look_up`, whose backward pass calls `take` with the gradient float32 (B, F, D) of the bags."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, take: Callable[[Tensor], None]) -> Tensor:
        ctx.take = take
        return look_up(weight, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.take(gradient.float().contiguous())
        return None, None, None


class RowExchange:
    """Exchanges rows of an embedding table between ranks, each of which has some of its own.

    An exchange takes as many rows as any rank has sent before; if one has more, a larger one follows.
    """

    def __init__(self, group: Any = None):
        """`group` is the process group of the ranks; None: all of them."""
        self._group, self._most = group, 0
        """Most rows that a rank has sent"""

    def gather(self, rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The rows int32 (U,) and values float32 (U, D) of all ranks, one rank after the other: (sum of U,), (…, D)."""
        # numbers of rows travel as the bits of floats, so that one exchange takes both
        own = torch.cat([values, rows[:, None].view(torch.float32)], 1)  # (U, D + 1)
        while True:
            buffer = own.new_zeros(1 + self._most, own.shape[1])
            buffer[:1, :1].view(torch.int32).fill_(len(own))
            buffer[1 : 1 + len(own)] = own[: self._most]
            found = [torch.empty_like(buffer) for _ in range(dist.get_world_size(self._group))]
            dist.all_gather(found, buffer, group=self._group)
            counts = [int(each[:1, :1].view(torch.int32)) for each in found]
            if max(counts) <= self._most:
                every = torch.cat([each[1 : 1 + count] for each, count in zip(found, counts, strict=True)])
                return every[:, -1:].contiguous().view(torch.int32)[:, 0], every[:, :-1].contiguous()
            self._most = max(counts)


def exchanging_rows(model: DistributedDataParallel) -> DistributedDataParallel:
    """The model, whose ranks exchange the rows of its tables, where it has some with sparse gradients and gloo is used.

    gloo damages memory where it sums several sparse tensors at once (torch 2.13).
    """
    group = model.process_group
    if dist.get_backend(group) == "gloo" and any(getattr(part, "sparse", False) for part in model.modules()):
        model.register_comm_hook((group, defaultdict(partial(RowExchange, group))), _average)
    return model


def _average(state: tuple[Any, dict[Tensor, RowExchange]], bucket):  # torch takes no text for the type of a bucket
    """Average the gradients of a bucket over the ranks of a group, as torch's own hook does."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # which not every build of torch has

    (group, exchanges), gradient = state, bucket.buffer()
    if not gradient.is_sparse:
        return default_hooks.allreduce_hook(group, bucket)
    own = gradient.coalesce()  # of one table
    exchange = exchanges[bucket.parameters()[0]]
    rows, values = exchange.gather(own.indices()[0].int(), own.values().float() / dist.get_world_size(group))
    averaged = torch.futures.Future()
    size = own.shape
    averaged.set_result(torch.sparse_coo_tensor(rows.long()[None], values.to(own.dtype), size, check_invariants=False))
    return averaged


class PairwiseProducts(nn.Module):
    """Equals `labkit.models.dlrm.PairwiseDots`, with a backward pass of one gather and one matrix product.

    Autograd would scatter the gradient into a zero matrix of all N² products, number by number, and use it twice.
    """

    def __init__(self, count: int):
        super().__init__()
        first, second = torch.tril_indices(count, count, offset=-1)
        pairs = torch.arange(len(first))
        # for each of the N² products the index of its pair's gradient; the diagonal has the zero after the last
        mirror = torch.full((count, count), len(first))
        mirror[first, second], mirror[second, first] = pairs, pairs
        self.pairs = nn.Buffer(first * count + second, persistent=False)
        self.mirror = nn.Buffer(mirror.flatten(), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return (B, N (N − 1) / 2) for (B, N, D)."""
        return _Products.apply(features, self.pairs, self.mirror)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, pairs: Tensor, mirror: Tensor) -> Tensor:
        ctx.save_for_backward(features, mirror)
        return torch.bmm(features, features.transpose(1, 2)).flatten(1).gather(1, pairs.expand(len(features), -1))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        features, mirror = ctx.saved_tensors
        batch, count, _ = features.shape
        # gather, because index_select is five times slower in bf16
        symmetric = nn.functional.pad(gradient, (0, 1)).gather(1, mirror.expand(batch, -1))  # (B, N²)
        return torch.bmm(symmetric.view(batch, count, count), features), None, None
