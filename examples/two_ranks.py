"""Trains one model on all processes that `labkit run --nproc 2 examples/two_ranks.py` or torchrun starts."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import labkit

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same weights and data on all ranks
points = torch.randn(4096, 8)
labels = (points[:, 0] * points[:, 1] > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
forward = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

with labkit.Run("two-ranks", target="accuracy >= 0.95") as run:
    run.keep(model=model, optimizer=optimizer)
    for _ in run.epochs(20):
        for rows in run.batches(torch.arange(len(points)).split(256)):
            share = rows[rank::ranks]  # each rank takes a part of the batch
            loss = F.cross_entropy(forward(points[share]), labels[share])
            optimizer.zero_grad()
            loss.backward()  # the ranks average their gradients in it
            optimizer.step()
            run.step(loss, samples=len(share))
        with torch.no_grad():
            if run.evaluate(accuracy=(model(points).argmax(1) == labels).float().mean().item()):
                break
