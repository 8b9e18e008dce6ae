import pytest
import torch

from labkit.fast.dropout import ByteDropout


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropped_values_are_as_many_as_they_should_be_and_the_mean_stays(p):
    torch.manual_seed(0)
    x = torch.ones(1001, 333)
    y = ByteDropout(p)(x)
    # 333k draws: the share's standard error is below 0.0009; p is rounded to 1/256
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.5 / 256 + 0.003)
    assert y.mean().item() == pytest.approx(1.0, abs=0.005)
    assert len(y.unique()) == 2
    columns = (y == 0).float().mean(0)
    assert columns.std().item() < 2 * (p * (1 - p) / 1001) ** 0.5  # no place is dropped more often than others


def test_the_gradient_passes_where_values_did():
    x = torch.ones(64, 64, requires_grad=True)
    y = ByteDropout(0.25)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


@pytest.mark.parametrize("dropout", [ByteDropout(0.5).eval(), ByteDropout(0.0), ByteDropout(0.001)])
def test_nothing_is_dropped_outside_training_or_without_probability(dropout):
    x = torch.randn(50, 20)
    if dropout.p == 0.001:  # less than half of 1/256: torch's own dropout takes over
        assert (dropout(x) == 0).sum() < 20
    else:
        assert torch.equal(dropout(x), x)


def test_a_seed_repeats_what_is_dropped():
    x = torch.ones(9, 7)
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(ByteDropout(0.5)(x))
    assert torch.equal(*made)
