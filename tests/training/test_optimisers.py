import subprocess
import sys

import pytest
import torch
from torch import nn

from labkit.training.config import OPTIMISERS, TrainConfig
from labkit.training.optimisers import Optimisers, clip_gradients
from labkit.fast.quick_optimiser import without_compiler


class Bag(nn.Module):
    def __init__(self, sparse: bool):
        super().__init__()
        self.table = nn.EmbeddingBag(6, 3, mode="sum", sparse=sparse)
        self.linear = nn.Linear(3, 1)

    def loss(self) -> torch.Tensor:
        # row 2 twice in a bag: duplicate lookups must add up
        return (10 * self.linear(self.table(torch.tensor([[2, 2, 4]])))).square().sum()


@pytest.mark.parametrize("optimiser", sorted({*OPTIMISERS} - {"rowwise-adagrad"}))  # which is for tables only
@pytest.mark.parametrize("clip", [None, 0.5])
def test_sparse_and_dense_tables_take_the_same_first_step(optimiser, clip):
    config = TrainConfig(optimiser=optimiser, lr=0.1, grad_clip_norm=clip)
    after = []
    for sparse in (False, True):
        torch.manual_seed(0)
        model = Bag(sparse)
        optimisers = Optimisers(model, ["table.weight"] if sparse else [], config, total_steps=10)
        model.loss().backward()
        optimisers.step(0)
        after.append([parameter.detach() for parameter in model.parameters()])
    for dense, sparse in zip(*after, strict=True):
        torch.testing.assert_close(dense, sparse)


def test_clipping_counts_sparse_and_dense_gradients_together():
    model = Bag(sparse=True)
    model.loss().backward()
    before = clip_gradients(model.parameters(), 0.5)
    grads = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in model.parameters()]
    assert before > 0.5
    assert torch.cat([g.flatten() for g in grads]).norm() == pytest.approx(0.5, rel=1e-4)


def test_the_learning_rate_warms_up_and_falls_along_a_cosine():
    constant = Optimisers(nn.Linear(1, 1), [], TrainConfig(lr=1.0, warmup_steps=4), total_steps=100)
    assert [constant.lr_at(step) for step in (0, 3, 99)] == [0.25, 1.0, 1.0]
    cosine = Optimisers(nn.Linear(1, 1), [], TrainConfig(lr=1.0, schedule="cosine"), total_steps=100)
    assert [cosine.lr_at(step) for step in (0, 50, 100, 150)] == pytest.approx([1.0, 0.5, 0.0, 0.0])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam, torch.optim.SparseAdam])
def test_an_optimiser_without_the_compiler_is_torchs(kind):
    weights, states = [], []
    for each in (kind, without_compiler(kind)):
        weight = nn.Parameter(torch.ones(5, 2))
        optimiser = each([weight], lr=0.1)
        for step in range(3):
            gradient = torch.arange(10.0).view(5, 2) - 3 * step
            weight.grad = gradient.to_sparse(1) if kind is torch.optim.SparseAdam else gradient
            optimiser.step()
            optimiser.load_state_dict(optimiser.state_dict())
        weights.append(weight.detach())
        states.append(optimiser.state_dict()["state"])
    assert not torch.equal(weights[0], torch.ones(5, 2))
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_training_imports_no_compiler(name):
    """A second and a half of every run's start: torch's optimisers import it to tell it what to leave alone."""
    program = f"""
import sys, torch
from labkit.training.config import TrainConfig
from labkit.training.optimisers import Optimisers
model = torch.nn.Sequential(torch.nn.EmbeddingBag(5, 3, mode="sum", sparse=True), torch.nn.Linear(3, 1))
optimisers = Optimisers(model, ["0.weight"], TrainConfig(optimiser={name!r}), total_steps=9)
before = model[1].weight.detach().clone()
model(torch.tensor([[0, 1]])).sum().backward()
optimisers.step(0)
optimisers.load_state_dict(optimisers.state_dict())
assert not torch.equal(before, model[1].weight) and model[1].weight.grad is None
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
