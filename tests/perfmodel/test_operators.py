"""What a step calls, read while it runs."""

import torch
from torch import nn

from labkit.fast import EmbeddingTables, fast_optimisers
from labkit.perfmodel.operators import operator_times, operators_of, timing_s


def linear_step():
    layer, x = nn.Linear(8, 4), torch.randn(16, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=False)

    def step():
        layer(x).relu().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return step


def test_operators_come_in_order_with_phase_and_work():
    operators = operators_of(linear_step())
    names = [(each.name, each.phase) for each in operators]
    assert names.index(("aten.addmm", "forward")) < names.index(("aten.threshold_backward", "backward"))
    assert {phase for _, phase in names} == {"forward", "backward", "optimiser"}
    product = next(each for each in operators if each.name == "aten.addmm")
    assert product.flop == 2 * 16 * 8 * 4
    assert product.bytes == 4 * (4 + 16 * 8 + 8 * 4 + 16 * 4)
    assert product.tensors[1] == ("float32", (16, 8), True)
    assert product.tensors[2] == ("float32", (8, 4), False), "the weight is transposed"


def test_the_backward_pass_of_a_grouped_convolution_does_twice_the_arithmetic_of_the_forward_pass():
    layer, x = nn.Conv1d(8, 12, 3, groups=4), torch.randn(2, 8, 10, requires_grad=True)
    flop = {each.name: each.flop for each in operators_of(lambda: layer(x).sum().backward())}
    assert flop["aten.convolution"] == 2 * 2 * 8 * 12 * (8 // 4) * 3  # samples, outputs, their channels, inputs, taps
    assert flop["aten.convolution_backward"] == 2 * flop["aten.convolution"]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.mul(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.mul(2)


def test_a_forward_pass_of_the_users_own_is_no_optimiser():
    x = torch.randn(4, requires_grad=True)
    operators = operators_of(lambda: Doubled.apply(x.exp()).sum().backward())
    assert [each.phase for each in operators if each.name == "aten.mul"][:2] == ["forward", "backward"]


def test_views_move_nothing_and_what_is_used_comes_after_what_made_it():
    operators = operators_of(linear_step())
    transposed = next(each for each in operators if each.name == "aten.t")
    assert transposed.is_view
    assert transposed.bytes == 0
    number = next(n for n, each in enumerate(operators) if each.name == "aten.relu")
    assert operators[operators[number].after[0]].name == "aten.addmm"


def test_rows_of_tables_count_by_how_many_are_named():
    tables = EmbeddingTables([1000, 1000], 16)
    nn.init.zeros_(tables.weight)
    layer = nn.Linear(1, 1)
    _, optimizer = fast_optimisers((torch.optim.SGD, torch.optim.SGD), list(layer.parameters()), tables, 0.1)
    rows = torch.tensor([[[3, 3], [4, 5]]], dtype=torch.int32)

    def step():
        tables(rows).sum().backward()
        optimizer.step()

    step()
    operators = {each.name: each for each in operators_of(step)}
    lookup, update = operators["aten._embedding_bag"], operators["labkit.update_tables"]
    assert lookup.lookups == update.lookups == 4
    assert lookup.distinct == update.distinct == 3
    assert lookup.row_bytes == update.row_bytes == 64
    assert lookup.table_bytes == 2000 * 64
    assert lookup.bytes == 4 * 64
    assert update.bytes == 3 * 4 * 64


def test_every_operator_of_a_step_is_timed():
    step = linear_step()
    times = operator_times(step)
    assert len(times) == len(operators_of(step))
    assert min(times) > 0
    assert timing_s(calls=50) >= 0
