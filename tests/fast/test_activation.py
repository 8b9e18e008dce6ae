import pytest
import torch
import torch.nn.functional as F

from labkit.fast.conv_block import LEVELS, MaskedRelu, draw_kept, levels

P = 0.25


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
            kept = draw_kept(x, levels(P))
            y = F.relu(leaf) * kept * (LEVELS / (LEVELS - levels(P))) * mask
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
