"""The fast parts beside the plain ones that they equal."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.fast.dlrm import EmbeddingTables, look_up, row_gradients
from labkit.fast.speech import LEVELS, MaskedRelu, draw_kept
from labkit.jobs import dlrm, speech
from labkit.models import DlrmConfig, SpeechConfig

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
