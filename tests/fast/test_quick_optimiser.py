import subprocess
import sys

import pytest
import torch
from torch import nn

from labkit.fast.optimisers import without_compiler


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


def test_training_by_the_fast_parts_imports_no_compiler():
    """A second and a half of every run's start: torch's optimisers import it to tell it what to leave alone."""
    program = """
import sys, torch
from labkit.fast.optimisers import fast_optimisers
from labkit.fast.tables import EmbeddingTables
from labkit.jobs.dlrm import OPTIMISERS
for kinds in OPTIMISERS.values():
    tables, dense = EmbeddingTables((5, 7), 3), torch.nn.Linear(3, 1)
    torch.nn.init.ones_(tables.weight)
    before = dense.weight.detach().clone()
    optimisers = fast_optimisers(kinds, list(dense.parameters()), tables, 0.1)
    dense(tables(torch.zeros(2, 2, 1, dtype=torch.int32))).sum().backward()
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad()
        optimiser.load_state_dict(optimiser.state_dict())
    assert not torch.equal(before, dense.weight)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
