"""The ways of updating embedding tables against the torch optimisers that say what they should do."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from labkit.models.dlrm import Dlrm, DlrmConfig
from labkit.training import table_blocks
from labkit.training.config import OPTIMISERS, TrainConfig
from labkit.training.optimisers import Optimisers
from labkit.models.rowwise_adagrad import RowwiseAdagrad

# three tables of which one is so small that every bag names rows more than once, and more lookups than rows
SHAPE = {"dense_dim": 3, "num_rows": (4, 50, 900), "embedding_dim": 8, "bottom_mlp": (8,), "top_mlp": (6, 1)}


def batches(steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng = np.random.default_rng(0)
    made = []
    for size in [16, 64, 32][:steps]:  # a batch larger than those before needs more room
        rows = np.stack([rng.integers(0, count, (size, 5)) for count in SHAPE["num_rows"]], 1)
        dense = rng.normal(size=(size, 3)).astype(np.float32)
        made.append((torch.from_numpy(dense), torch.from_numpy(rows.astype(np.int32))))
    return made


compiled = pytest.param("compiled", marks=pytest.mark.compiled)
NEVER = 1e9
"""A norm to clip at that no gradient has; clipping needs torch's own steps."""


def made_optimisers(model: Dlrm, optimiser: str, way: str) -> Optimisers:
    config = TrainConfig(optimiser=optimiser, lr=0.05, grad_clip_norm=NEVER if way == "torch" else None)
    return Optimisers(model, ["tables.weight"], config, total_steps=10, compiled_tables=way == "compiled")


def trained(optimiser: str, ways: list[str]) -> tuple[Dlrm, Optimisers]:
    """Train a step in each way, handing weights and state on from one to the next."""
    torch.manual_seed(0)
    weights = Dlrm(DlrmConfig(**SHAPE)).state_dict()
    state = None
    for step, (way, (dense, categorical)) in enumerate(zip(ways, batches(len(ways)), strict=True)):
        model = Dlrm(DlrmConfig(**SHAPE))
        model.load_state_dict(weights)
        optimisers = made_optimisers(model, optimiser, way)
        if state is not None:
            optimisers.load_state_dict(state)
        softplus(model(dense, categorical)).sum().backward()
        optimisers.step(step)
        weights, state = model.state_dict(), optimisers.state_dict()
    return model, optimisers


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("way", ["blocks", compiled])
@pytest.mark.parametrize("turn", [[1, 1, 1], [1, 0, 1], [0, 1, 0]])
def test_updates_do_what_torch_does_and_leave_its_state(optimiser, way, turn, monkeypatch):
    monkeypatch.setattr(table_blocks, "BLOCK_BYTES", 7 * 4 * SHAPE["embedding_dim"])  # blocks of seven rows
    plain, plain_optimisers = trained(optimiser, ["torch"] * 3)
    model, optimisers = trained(optimiser, [way if mine else "torch" for mine in turn])
    # sums over equal rows are taken in another order
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=1e-4, atol=1e-6)
    for part, expected in zip(optimisers.state_dict(), plain_optimisers.state_dict(), strict=True):
        # torch's SGD notes for each parameter that it has no momentum
        kept = [{index: one for index, one in each["state"].items() if optimiser != "sgd"} for each in (part, expected)]
        torch.testing.assert_close(*kept, rtol=1e-4, atol=1e-6)


@pytest.mark.compiled
def test_a_batch_on_several_threads_is_that_on_one():
    threads, made = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        try:
            made.append(trained("adagrad", ["compiled"])[0].state_dict())
        finally:
            torch.set_num_threads(threads)
    torch.testing.assert_close(*made)


@pytest.mark.parametrize("way", ["blocks", compiled])
def test_a_gradient_that_is_no_number_stays_one(way):
    model = Dlrm(DlrmConfig(**SHAPE))
    optimisers = made_optimisers(model, "adagrad", way)
    dense, categorical = batches(1)[0]
    (model(dense, categorical) * torch.nan).sum().backward()
    optimisers.step(0)
    assert not model.tables.weight.sum().isfinite()


def test_two_backward_passes_before_a_step_are_refused():
    model = Dlrm(DlrmConfig(**SHAPE))
    made_optimisers(model, "sgd", "blocks")
    dense, categorical = batches(1)[0]
    model(dense, categorical).sum().backward()
    with pytest.raises(AssertionError, match="before the bags of the first were taken"):
        model(dense, categorical).sum().backward()


def test_rowwise_adagrad_keeps_one_number_a_row():
    table = torch.nn.Parameter(torch.zeros(3, 2))
    optimiser = RowwiseAdagrad([table], lr=0.5)
    for _ in range(2):
        # row 2 is named twice: its gradients add up to (3, 4) before they are squared
        table.grad = torch.sparse_coo_tensor([[2, 2]], torch.tensor([[1.0, 4.0], [2.0, 0.0]]), (3, 2))
        optimiser.step()
    mean_square = (9 + 16) / 2
    assert optimiser.state[table]["sum"].tolist() == [0, 0, 2 * mean_square]
    step = 0.5 * (mean_square**-0.5 + (2 * mean_square) ** -0.5)
    torch.testing.assert_close(table.detach(), torch.tensor([[0, 0], [0, 0], [-3 * step, -4 * step]]))
