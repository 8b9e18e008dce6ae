"""Embedding tables: their operators, capacity and plans."""

import shutil
from unittest import mock

import pytest
import torch
from torch import nn

from labkit.errors import UserError
from labkit.fast import EmbeddingTables, fast_optimisers
from labkit.hardware import get_tier
from labkit.models.dlrm import PairwiseDots
from labkit.perfmodel import table_plan
from labkit.perfmodel.operators import interaction_cost, operator_times, operators_of
from labkit.perfmodel.table_plan import TableShape, plan_tables, presets_and_tiers, table_bytes, tiers_that_hold

SMALL = TableShape((3000, 5000), 16, batch_size=64)
MIB = 2**20


def fits(shape: TableShape, memory: int, folder) -> dict[str, bool]:
    with mock.patch.object(table_plan, "_try"):
        plan = plan_tables(shape, memory, folder)
    return dict(zip(plan["placement"], plan["fits"], strict=True))


def test_a_plan_without_a_trial_is_arithmetic(tmp_path):
    everywhere = {"device": True, "host": True, "cached": True, "cached over disk": True, "disk": True, "remote": True}
    large = TableShape((1_000_000,), 64)  # 256 MB
    assert fits(large, 600 * MIB, tmp_path) == everywhere
    assert fits(large, 250 * MIB, tmp_path) == everywhere | {"cached": False}, "its slots come on top of the rows"
    assert [name for name, there in fits(large, 100 * MIB, tmp_path).items() if there] == ["cached over disk", "disk"]


def test_an_optimisers_state_and_a_batch_count(tmp_path):
    assert not fits(TableShape((1_000_000,), 64, optimiser="adam"), 600 * MIB, tmp_path)["device"]
    shape = TableShape((1000,) * 26, 64, batch_size=100_000)
    assert shape.batch_bytes == 4 * 100_000 * 26 * (1 + 2 * 64)
    with pytest.raises(UserError, match="a smaller --batch-size"):
        plan_tables(shape, 1024 * MIB, tmp_path)


def test_each_place_that_fits_is_tried_and_the_fastest_comes_first(tmp_path):
    plan = plan_tables(SMALL, 64 * MIB, tmp_path)
    assert plan["fits"].all() and (plan["step_ms"] > 0).all()
    assert plan["step_ms"].is_monotonic_increasing
    assert plan.set_index("placement").loc["device", "of_device"] == 1
    assert plan["trial_rows"].unique() == [8000], "they are small enough to be tried whole"
    assert not list(tmp_path.iterdir()), "table files go with their trial"


def test_large_tables_are_cut_for_the_trial():
    shape = TableShape((10**9, 10, 1), 64)
    small = shape.cut(MIB)
    assert 0.9 * MIB < small.bytes <= 1.1 * MIB
    assert small.num_rows[1:] == (1, 1), "no table is left without a row"
    assert (small.embedding_dim, small.batch_size) == (shape.embedding_dim, shape.batch_size)
    wide = TableShape((10,) * 64, 8, pooling_factor=128, batch_size=65_536).cut(16 * MIB)
    assert wide.num_rows == (10,) * 64 and 4 * table_plan.STEPS * wide.batch_size * 64 * 128 <= 16 * MIB


def test_tables_that_fit_nowhere_are_refused_with_what_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(table_plan.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 9, 5 * MIB))
    with pytest.raises(UserError, match=r"fit nowhere here: 64 MiB of memory, and 5 MiB are free"):
        plan_tables(TableShape((10_000_000,), 64), 64 * MIB, tmp_path)


def test_the_command_prints_a_plan_and_the_training_it_leads_to(tmp_path, cli):
    said = cli("plan dlrm --tables '2x3e3, 2000' --memory 64MiB --table-dir", tmp_path).out
    assert "2,048 samples each, with 8,000 rows." in " ".join(said.split())
    assert "labkit train dlrm --placement" in said
    told = cli("plan dlrm --tables 4000 --memory 64MiB --table-dir", tmp_path, "--json").json
    assert {"placement", "fits", "step_ms", "why"} <= set(told[0])


def held_by(frame, **where):
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame.set_index("tier")["holds"].to_dict()


def test_mlperfs_tables_outgrow_every_gpu_but_the_largest_and_fit_a_server_of_eight():
    frame = presets_and_tiers()
    mlperf = frame[(frame["preset"] == "mlperf-v1") & (frame["optimiser"] == "sgd")]
    # 187,767,399 rows of 128 numbers of 4 bytes
    assert mlperf["needed_gb"].unique() == pytest.approx(96.1369, abs=1e-4)
    alone = held_by(mlperf, kind="gpu", memory="one device")
    assert [tier for tier, holds in alone.items() if holds] == ["h200"]
    assert held_by(mlperf, tier="big-basin", memory="one device") == {"big-basin": False}
    assert held_by(mlperf, tier="big-basin", memory="all devices") == {"big-basin": True}
    assert not any(held_by(tiers_that_hold(129e9), tier="big-basin").values())


def test_what_the_catalogue_does_not_know_is_not_said():
    frame = tiers_that_hold(1e9)
    unknown = frame[frame["capacity_gb"].isna()]
    assert {"zion", "big-basin"} <= set(unknown["tier"])
    assert unknown["holds"].isna().all() and frame.loc[~frame["capacity_gb"].isna(), "holds"].notna().all()
    assert get_tier("zion").devices == 8 and get_tier("zion").host_memory_gb is None


def test_a_wrong_question_is_refused():
    with pytest.raises(UserError, match="rowwise-adagrad"):
        table_bytes([10], 4, "rmsprop")
    with pytest.raises(UserError, match="above 0"):
        tiers_that_hold(0)


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
    assert len(times) == len(operators_of(step)) and min(times) > 0


@pytest.mark.parametrize(("batch", "vectors", "width"), [(8, 27, 16), (64, 9, 64)])
def test_an_interaction_costs_the_operations_that_autograd_does(batch, vectors, width):
    bottom = torch.randn(batch, 1, width, requires_grad=True)
    tables = torch.randn(batch, vectors - 1, width, requires_grad=True)
    dots = PairwiseDots(vectors)
    operators = operators_of(lambda: dots(torch.cat([bottom, tables], dim=1)).sum().backward())
    flop, moved = interaction_cost(batch, vectors, width)
    assert sum(each.flop for each in operators) == flop
    plain = [each for each in operators if each.name in ("aten.cat", "aten.bmm", "aten.add")]
    # pairs taken out, zeros made and pairs put back; both parts of the gradient copied
    left = 4 * batch * (3 * vectors**2 + 2 * vectors * width)
    assert moved == pytest.approx(sum(each.bytes for each in plain) + left, rel=0.01)
    by_hand, less = interaction_cost(batch, vectors, width, by_hand=True)
    assert by_hand == flop * 2 / 3 and less < moved
