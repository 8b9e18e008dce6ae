"""Fast kernels in several processes train what one process trains."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from labkit import UserError
from labkit.fast.optimisers import fast_optimisers
from labkit.jobs import OPTIMISERS, dlrm
from labkit.models import DlrmConfig

DLRM = DlrmConfig(dense_dim=3, num_rows=(50, 7), embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(6, 1))


def tables_after(kind, rank=0, ranks=1):
    """The tables (R, D) after 20 steps on 15 samples each, of which each rank has a share; one has a sample more."""
    torch.manual_seed(0)
    model = dlrm.build_model(DLRM, "fast")
    dense = [*model.bottom.parameters(), *model.top.parameters()]
    optimisers = fast_optimisers(OPTIMISERS[kind], dense, model.tables, 0.05)
    forward = DistributedDataParallel(model) if ranks > 1 else model
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        numbers = torch.randn(15, 3, generator=generator)
        columns = [torch.randint(rows, (15, 1, 2), generator=generator) for rows in DLRM.num_rows]
        label = torch.rand(15, generator=generator).round()
        shares = [each[rank::ranks] for each in (numbers, torch.cat(columns, 1).int(), label)]
        losses = F.binary_cross_entropy_with_logits(forward(*shares[:2]), shares[2], reduction="sum")
        for optimiser in optimisers:
            optimiser.zero_grad()
        (losses * ranks / 15).backward()  # DistributedDataParallel takes the mean of the ranks
        for optimiser in optimisers:
            optimiser.step()
    return model.tables.weight.detach()


def train_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {kind: tables_after(kind, rank, 2) for kind in OPTIMISERS}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    os._exit(0)  # gloo may abort a process that closes its connections after the other one


def test_two_ranks_train_the_tables_of_one_process(tmp_path):
    pytest.importorskip("numba")
    torch.multiprocessing.spawn(train_rank, args=(str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    for kind in OPTIMISERS:
        assert torch.equal(first[kind], second[kind]), kind
        torch.testing.assert_close(first[kind], tables_after(kind), atol=1e-6, rtol=0, msg=kind)


def test_without_compiled_kernels_several_ranks_are_refused(monkeypatch):
    monkeypatch.setattr("labkit.compiled.why_not_compiled", lambda: "numba is missing")
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    with pytest.raises(UserError, match="--kernels plain"):
        fast_optimisers(OPTIMISERS["sgd"], [], dlrm.build_model(DLRM, "fast").tables, 0.1)
