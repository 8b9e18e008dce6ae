"""Fast models and optimisers do what the plain ones do."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import softplus

from labkit.fast.dlrm import EmbeddingTables, look_up, row_gradients
from labkit.fast.optimisers import chosen_precision, without_compiler
from labkit.fast.speech import LEVELS, MaskedRelu, draw_kept
from labkit.jobs import OPTIMISERS, dlrm, speech
from labkit.models import DlrmConfig, RowwiseAdagrad, SpeechConfig

P, DROPPED = 0.25, LEVELS // 4
DLRM = DlrmConfig(dense_dim=3, num_rows=(5, 7), embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(6, 1))


def categorical(batch: int = 6, pooling_factor: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(rows, (batch, 1, pooling_factor), generator=generator) for rows in DLRM.num_rows]
    return torch.cat(columns, 1).int()  # (B, F, L)


def test_a_fast_dlrm_is_the_plain_one_of_the_same_seed():
    models, answers = [], []
    dense = torch.randn(6, 3)
    for kernels in ("plain", "fast"):
        torch.manual_seed(0)
        models.append(dlrm.build_model(DLRM, kernels))
        answers.append(models[-1](dense, categorical()))
        answers[-1].sum().backward()
    plain, fast = models
    torch.testing.assert_close(*answers)
    gradients = [
        [parameter.grad for parameter in [*model.bottom.parameters(), *model.top.parameters()]] for model in models
    ]
    torch.testing.assert_close(*gradients)
    of_tables = torch.cat([bag.weight.grad.to_dense() for bag in plain.tables.bags])
    torch.testing.assert_close(fast.tables.weight.grad.to_dense(), of_tables)


@pytest.mark.parametrize(("kind", "maps"), [("conv", ()), ("conv", (2, 3)), ("lstm", ()), ("bilstm", ())])
def test_a_fast_recogniser_is_the_plain_one_of_the_same_seed(kind, maps):
    config = SpeechConfig(vocabulary=29, kind=kind, channels=16, layers=2, hidden=8, dropout=0.0, maps=maps)
    features, lengths, answers = torch.randn(2, 61, 80), torch.tensor([61, 50]), []
    for kernels in ("plain", "fast"):
        torch.manual_seed(0)
        model = speech.build_model(config, kernels)
        output, _ = model(features, lengths)
        output[:, :, 0].sum().backward()
        judged = model.eval()(features, lengths)[0]  # by what the batch norms have gathered
        answers.append([output, judged, *(parameter.grad.flatten() for parameter in model.parameters())])
    torch.testing.assert_close(*answers, rtol=1e-3, atol=1e-4)  # sums in another order


def test_sparse_gradients_are_what_autograd_spreads_over_rows():
    tables = EmbeddingTables(DLRM.num_rows, 4)
    nn.init.normal_(tables.weight)
    dense, weights = tables.weight.detach().clone().requires_grad_(), torch.randn(6, 2, 4)
    rows = categorical() + torch.tensor([0, 5], dtype=torch.int32).view(1, 2, 1)  # 0-4 are the first table's
    (look_up(dense, rows) * weights).sum().backward()
    (tables(categorical()) * weights).sum().backward()
    assert tables.weight.grad.is_coalesced()  # or every optimiser would sort it again
    torch.testing.assert_close(tables.weight.grad.to_dense(), dense.grad)
    tables.weight.grad, tables.keeps_bags = None, True
    (tables(categorical()) * weights).sum().backward()
    assert tables.weight.grad is None
    distinct, values = row_gradients(*tables.take_bags())
    torch.testing.assert_close(torch.zeros(12, 4).index_put((distinct,), values), dense.grad)


def inputs(dtype=torch.float32):
    torch.manual_seed(0)
    x = torch.randn(4, 6, 1, 9).to(memory_format=torch.channels_last).to(dtype)
    mask = torch.arange(9) < torch.tensor([9, 7, 3, 1]).view(4, 1, 1, 1)
    return x, mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_relu_dropout_and_mask_and_so_is_its_gradient(dtype):
    x, mask = inputs(dtype)
    weights = torch.randn_like(x)
    answers = []
    for fused in (False, True):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(5)
        if fused:
            y = MaskedRelu(P)(leaf * 1, mask)
        else:
            kept = draw_kept(x, DROPPED)
            y = F.relu(leaf) * kept * (LEVELS / (LEVELS - DROPPED)) * mask
        (y * weights).sum().backward()
        answers.append((y.detach(), leaf.grad))
    assert 0 < (answers[0][0] > 0).sum() < mask.expand_as(x).sum()
    tolerance = {"rtol": 0.01, "atol": 0.01} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(*answers, **tolerance)


def test_a_share_of_what_is_kept_is_dropped_while_training_and_the_mean_stays():
    x, mask = inputs()
    torch.testing.assert_close(MaskedRelu(P).eval()(x.clone(), mask), F.relu(x) * mask)
    x, mask = torch.ones(100, 100, 1, 50), torch.ones(100, 1, 1, 50, dtype=torch.bool)
    y = MaskedRelu(P)(x.clone(), mask)
    # 500k draws: the standard error of the share is 0.0006
    assert (y == 0).float().mean().item() == pytest.approx(P, abs=0.003)
    assert y.mean().item() == pytest.approx(1.0, abs=0.005)


NUM_ROWS, DIM = (4, 50, 900), 8
"""One table is so small that every bag names rows more than once, with more lookups than rows."""


def batches(steps: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    made = []
    for size in [16, 64, 32][:steps]:  # a batch larger than those before needs more room
        made.append(np.stack([rng.integers(0, count, (size, 5)) for count in NUM_ROWS], 1))
    return [torch.from_numpy(rows.astype(np.int32)) for rows in made]


def made(name: str, compiled: bool):
    """Tables, and an optimiser that steps them in one of the two ways."""
    torch.manual_seed(0)
    tables = EmbeddingTables(NUM_ROWS, DIM)
    torch.nn.init.normal_(tables.weight)
    optimiser = OPTIMISERS[name][1]([tables.weight], lr=0.05)
    if compiled:
        from labkit.fast.compiled_tables import CompiledTables

        optimiser = CompiledTables(tables, optimiser)
    return tables, optimiser


def trained(name: str, ways: tuple[bool, ...]):
    """Train a step in each way, handing weights and state on from one to the next."""
    before = None
    for compiled, categorical in zip(ways, batches(len(ways)), strict=True):
        tables, optimiser = made(name, compiled)
        if before is not None:
            tables.load_state_dict(before[0].state_dict())
            optimiser.load_state_dict(before[1].state_dict())
        softplus(tables(categorical)).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        before = tables, optimiser
    return before


@pytest.mark.compiled
@pytest.mark.parametrize("name", OPTIMISERS)
def test_updates_do_what_torch_does_and_leave_its_state(name):
    tables, optimiser = made(name, True)
    (tables(batches(1)[0]) * torch.nan).sum().backward()
    optimiser.step()
    assert not tables.weight.sum().isfinite()  # what is no number stays none, and ends a run
    plain, plain_optimiser = trained(name, (False, False, False))
    for ways in ((True, True, True), (True, False, True), (False, True, False)):
        tables, optimiser = trained(name, ways)
        # sums over equal rows are taken in another order
        torch.testing.assert_close(tables.weight, plain.weight, rtol=1e-4, atol=1e-6)
        # torch's SGD notes for each parameter that it has no momentum
        states = [each.state_dict()["state"] if name != "sgd" else {} for each in (optimiser, plain_optimiser)]
        torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)


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


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam, torch.optim.SparseAdam])
def test_an_optimiser_without_the_compiler_is_torchs(kind):
    weights, states = [], []
    for each in (kind, without_compiler(kind)):
        weight = torch.nn.Parameter(torch.ones(5, 2))
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


def test_training_by_the_fast_parts_imports_no_compiler_and_keeps_torchs_number_of_threads():
    """The first takes a second and a half: torch's optimisers import it to tell it what to leave alone."""
    program = """
import sys, torch
torch.set_num_threads(1)
from labkit.fast.optimisers import fast_optimisers
from labkit.fast.dlrm import EmbeddingTables
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
print(torch.get_num_threads())
"""
    environment = os.environ | {"NUMBA_NUM_THREADS": "2"}  # it starts its threads once, as many as there are cores
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert ended.stdout.strip() == "1"


@pytest.mark.parametrize(
    ("device", "has", "chosen", "why"),
    [
        ("cuda:0", (7, 5), "fp32", "compute capability 7.5"),
        ("cuda:1", (8, 0), "bf16", "compute capability 8.0"),
        ("Intel", ("avx512", "avx512_bf16", "amx", "amx_int8"), "fp32", "without fast"),
        ("Intel", ("avx512", "amx", "amx_bf16"), "bf16", "with AMX"),
        ("AMD EPYC", ("avx512", "avx512_bf16"), "bf16", "an AMD CPU"),
        ("AMD EPYC", None, "fp32", "without fast"),  # a system that does not say
    ],
)
def test_auto_is_bf16_where_units_of_their_own_multiply_it(device, has, chosen, why, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda on: has)
    cpu = SimpleNamespace(isa=has, model=device)
    monkeypatch.setattr("labkit.hardware.read_cpu", lambda: cpu)
    device = device if device.startswith("cuda") else "cpu"
    assert chosen_precision("auto", device)[0] == chosen
    assert why in chosen_precision("auto", device)[1]
    for asked in ("fp32", "bf16"):
        assert chosen_precision(asked, device) == (asked, "as requested")
