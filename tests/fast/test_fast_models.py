"""The fast parts beside the plain ones that they equal."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.fast.conv_block import LEVELS, ChannelsLastBlock, MaskedRelu, draw_kept
from labkit.fast.interaction import PairwiseProducts
from labkit.fast.models import fast_dlrm, fast_speech
from labkit.fast.tables import EmbeddingTables, look_up, row_gradients
from labkit.models.dlrm import Dlrm, DlrmConfig, PairwiseDots
from labkit.models.speech import ConvBlock, SpeechConfig, SpeechModel

P, DROPPED = 0.25, LEVELS // 4
DLRM = DlrmConfig(dense_dim=3, num_rows=(5, 7), embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(6, 1))


def categorical(batch: int = 6, pooling_factor: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(rows, (batch, 1, pooling_factor), generator=generator) for rows in DLRM.num_rows]
    return torch.cat(columns, 1).int()  # (B, F, L)


def test_a_fast_dlrm_is_the_plain_one_of_the_same_seed():
    models, answers = [], []
    dense = torch.randn(6, 3)
    for build in (Dlrm, fast_dlrm):
        torch.manual_seed(0)
        models.append(build(DLRM))
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


def test_a_fast_recogniser_is_the_plain_one_of_the_same_seed():
    config = SpeechConfig(vocabulary=29, kind="conv", channels=16, layers=2, dropout=0.0)
    features, lengths, answers = torch.randn(2, 61, 80), torch.tensor([61, 50]), []
    for build in (SpeechModel, fast_speech):
        torch.manual_seed(0)
        model = build(config)
        output, _ = model(features, lengths)
        output[:, :, 0].sum().backward()
        answers.append([output, *(parameter.grad.flatten() for parameter in model.parameters())])
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-4)  # sums in another order


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_pairwise_products_and_their_gradient_are_the_plain_ones(dtype):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 4, 3, generator=generator).to(dtype)
    weights = torch.randn(5, 6, generator=generator).to(dtype)
    answers = []
    for products in (PairwiseDots(4), PairwiseProducts(4)):
        leaf = features.clone().requires_grad_()
        made = products(leaf)
        (made * weights).sum().backward()
        answers.append((made.detach(), leaf.grad))
    # in bf16 a sum of two products may be rounded once more
    torch.testing.assert_close(answers[0], answers[1], **({"rtol": 0.02, "atol": 0.02} if dtype.itemsize == 2 else {}))


@pytest.mark.parametrize("keeps_bags", [False, True])
def test_sparse_gradients_are_what_autograd_spreads_over_rows(keeps_bags):
    tables = EmbeddingTables(DLRM.num_rows, 4)
    nn.init.normal_(tables.weight)
    tables.keeps_bags = keeps_bags
    dense, weights = tables.weight.detach().clone().requires_grad_(), torch.randn(6, 2, 4)
    rows = categorical() + torch.tensor([0, 5], dtype=torch.int32).view(1, 2, 1)  # 0-4 are the first table's
    (look_up(dense, rows) * weights).sum().backward()
    (tables(categorical()) * weights).sum().backward()
    if keeps_bags:
        assert tables.weight.grad is None
        blocks = list(row_gradients(*tables.take_bags(), most_rows=5))
        assert [len(rows) for rows, _ in blocks[:-1]] == [5] * (len(blocks) - 1)
        distinct, values = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        assert len(distinct.unique()) == len(distinct)
        torch.testing.assert_close(torch.zeros(12, 4).index_put((distinct,), values), dense.grad)
    else:
        assert tables.weight.grad.is_coalesced()  # or every optimiser would sort it again
        torch.testing.assert_close(tables.weight.grad.to_dense(), dense.grad)


@pytest.mark.parametrize(("before", "stride"), [(6, 1), (4, 2)])
@pytest.mark.parametrize("training", [True, False])
def test_a_block_with_channels_last_is_the_plain_block(before, stride, training):
    torch.manual_seed(0)
    plain, fast = (kind(before, 6, 5, stride, 0.0).train(training) for kind in (ConvBlock, ChannelsLastBlock))
    fast.conv.weight.data.copy_(plain.conv.weight.detach().unsqueeze(2))
    mask = torch.arange(14 // stride) < torch.tensor([14, 9, 2]).view(3, 1, 1) // stride
    x = torch.randn(3, before, 14)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [block(leaf, mask) for block, leaf in zip((plain, fast), leaves, strict=True)]
    torch.testing.assert_close(*outputs)
    for output in outputs:
        (output * torch.arange(output.shape[2])).sum().backward()
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad, rtol=1e-4, atol=1e-4)  # sums in another order
    torch.testing.assert_close(fast.conv.weight.grad.squeeze(2), plain.conv.weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fast.norm.running_var, plain.norm.running_var)


@pytest.mark.parametrize("kind", ["lstm", "bigru"])
def test_every_kind_of_recogniser_takes_the_fast_block(kind):
    config = SpeechConfig(vocabulary=29, kind=kind, channels=16, layers=1, hidden=8)
    plain, fast = (build(config).eval() for build in (SpeechModel, fast_speech))
    fast.load_state_dict(
        {name: value.view(fast.state_dict()[name].shape) for name, value in plain.state_dict().items()}
    )
    with torch.inference_mode():
        answers = [model(torch.ones(1, 61, 80), torch.tensor([61]))[0] for model in (plain, fast)]
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("module", [MaskedRelu(P).eval(), MaskedRelu(0.0)])
def test_outside_training_or_without_probability_nothing_is_dropped(module):
    x, mask = inputs()
    torch.testing.assert_close(module(x.clone(), mask), F.relu(x) * mask)


def test_a_share_of_what_is_kept_is_dropped_and_the_mean_stays():
    x = torch.ones(100, 100, 1, 50)
    y = MaskedRelu(P)(x.clone(), torch.ones(100, 1, 1, 50, dtype=torch.bool))
    # 500k draws: the standard error of the share is 0.0006
    assert (y == 0).float().mean().item() == pytest.approx(P, abs=0.003)
    assert y.mean().item() == pytest.approx(1.0, abs=0.005)
    places = (y == 0).float().mean(0)  # of 100 draws each: no place is dropped more often than others
    assert places.std().item() < 1.2 * (P * (1 - P) / 100) ** 0.5


def test_bf16_scales_forward_as_backward():
    x = torch.ones(100, 100, 1, 50, dtype=torch.bfloat16)
    y = MaskedRelu(0.05)(x, torch.ones(100, 1, 1, 50, dtype=torch.bool))
    # 500k draws at p = 13/256: the standard error of the mean is 0.0003, and of one value bf16 rounds 0.4 %
    assert y.max().item() == torch.tensor(256 / 243, dtype=torch.bfloat16).item()
