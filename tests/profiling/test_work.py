"""Arithmetic and bytes of operators: torch's own counter is the judge of the arithmetic."""

import pytest
import torch
from kineto import recorded, shaped, trace_of
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from labkit.profiling.over_time import operators_at_work
from labkit.profiling.work import Inputs, Work, operator_work

FLOAT, LONG, BF16, BYTE = "float", "long int", "c10::BFloat16", "unsigned char"
SCALAR, LISTED, LIST = "Scalar", "ScalarList", "TensorList"
STEPS, BATCH, INPUTS, HIDDEN, LAYERS = 7, 3, 5, 4, 2


MADE = {
    "grouped": lambda: (nn.Conv2d(6, 8, 3, groups=2), torch.randn(4, 6, 10, 9)),
    "strided": lambda: (nn.Conv2d(3, 8, (3, 5), stride=(2, 1), padding=(1, 2)), torch.randn(4, 3, 20, 17)),
    "transposed": lambda: (nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), torch.randn(2, 6, 11)),
    "layers": lambda: (nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 5)), torch.randn(32, 13)),
    "recurrent": lambda: (nn.GRU(16, 8, batch_first=True), torch.randn(4, 10, 16)),
}


def flop_of(step, folder):
    return operators_at_work(recorded(folder, step)[0]).set_index("operator")["flop"]


@pytest.mark.parametrize("made", MADE)
def test_the_arithmetic_of_products_and_convolutions_is_torchs(made, tmp_path):
    model, x = MADE[made]()
    x.requires_grad_(made in ("strided", "transposed", "grouped"))

    def step():
        out = model(x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    ours = flop_of(step, tmp_path)
    theirs = {f"aten::{operator}".replace("aten::aten.", "aten::"): flop
              for operator, flop in counter.get_flop_counts()["Global"].items()}  # fmt: skip
    if made == "grouped":  # both gradients cost what the convolution does; torch's count of the weight's ignores groups
        theirs["aten::convolution_backward"] = 2 * theirs["aten::convolution"]
    assert theirs
    assert {name: ours[name] for name in theirs} == theirs


def product_flop(step):
    """Flop of all products of a step, with layers of oneDNN, which torch's counter does not know, taken apart."""
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def test_onednns_lstm_does_the_products_that_the_layers_consist_of(tmp_path):
    model = nn.LSTM(INPUTS, HIDDEN, LAYERS, bidirectional=True)
    x = torch.randn(STEPS, BATCH, INPUTS, requires_grad=True)
    # a state whose gradient is asked for, as oneDNN always computes it
    state = [torch.zeros(LAYERS * 2, BATCH, HIDDEN, requires_grad=True) for _ in range(2)]

    def step():
        model(x, state)[0].sum().backward()

    ours = flop_of(step, tmp_path)
    assert ours["aten::mkldnn_rnn_layer"] * 3 == product_flop(step)  # forward, and two products back for each
    assert ours["aten::mkldnn_rnn_layer_backward"] == 2 * ours["aten::mkldnn_rnn_layer"]


def test_cudnns_layers_do_the_products_of_the_same_layers_on_a_cpu():
    model = nn.GRU(INPUTS, HIDDEN, LAYERS, bidirectional=True)
    weights = {name: parameter.numel() for name, parameter in model.named_parameters()}
    biases = sum(count for name, count in weights.items() if "bias" in name)
    forward = product_flop(lambda: model(torch.randn(STEPS, BATCH, INPUTS))) + 2 * STEPS * BATCH * biases
    buffer, state = [sum(weights.values())], [LAYERS * 2, BATCH, HIDDEN]
    call = Inputs(
        # more than 30 weights have no shapes
        [[STEPS, BATCH, INPUTS], [], [], buffer, state, state, *[[]] * 9],
        [FLOAT, LIST, SCALAR, FLOAT, FLOAT, FLOAT, *[SCALAR] * 9],
        ["", "", 4, "", "", "", 2, HIDDEN, 0, LAYERS, False, 0.0, True, True, ()],
    )
    read = STEPS * BATCH * INPUTS + buffer[0] + 2 * LAYERS * 2 * BATCH * HIDDEN
    assert operator_work("aten::_cudnn_rnn", call) == (forward, 4 * (read + STEPS * BATCH * 2 * HIDDEN))
    assert operator_work("aten::_cudnn_rnn_backward", call).flop == 2 * forward


PAIR = [[4, 5], [7]]  # the shapes of a list of two tensors, 27 elements
STEP_COUNTS = [[], []]
CASES = {
    "bmm": ([[7, 2, 3], [7, 3, 5]], [FLOAT, FLOAT], ["", ""], Work(7 * 60, 7 * 4 * (6 + 15 + 10))),
    "addmm": ([[5], [2, 3], [3, 5]], [FLOAT] * 3, [""] * 3, Work(60, 4 * (5 + 6 + 15 + 10))),
    # 6 rows of 8 numbers are read and added up to 4, which are written
    "_embedding_bag": ([[100, 8], [6], [4]], [FLOAT, LONG, LONG], [""] * 3, Work(16, 8 * 10 + 4 * 8 * (6 + 4))),
    "embedding": ([[100, 8], [6]], [FLOAT, LONG], [""] * 2, Work(0, 8 * 6 + 4 * 8 * 12)),
    "add": ([[7, 3], [3], []], [FLOAT, FLOAT, SCALAR], ["", "", 1], Work(21, 4 * (21 + 3 + 21))),
    "copy_": ([[10], [10], []], [BF16, FLOAT, SCALAR], ["", "", False], Work(0, 60)),
    "ge": ([[6, 4], []], [BYTE, SCALAR], ["", 13], Work(24, 24 + 24)),
    "cat": ([PAIR, []], [LIST, SCALAR], ["", 0], Work(0, 2 * 4 * 27)),
    "index_add_": ([[100, 8], [], [6], [6, 8]], [FLOAT, SCALAR, LONG, FLOAT], [""] * 4, Work(48, 48 + 3 * 4 * 48)),
    # rows of 6 lookups are added to a table of 100 rows of 8, all of which are written
    "embedding_dense_backward": (
        [[2, 3, 8], [2, 3], []], [FLOAT, LONG, SCALAR], ["", "", 100], Work(48, 4 * 48 + 8 * 6 + 4 * 800),
    ),
    "native_batch_norm": (
        [[4, 6, 5], *[[6]] * 4, [], [], []], [FLOAT] * 5 + [SCALAR] * 3, [""] * 5 + [True, 0.1, 1e-05],
        Work(6 * 120, 4 * (120 + 4 * 6 + 120)),
    ),
    "_foreach_add_": ([PAIR, PAIR, []], [LIST, LIST, SCALAR], ["", "", -0.1], Work(27, 3 * 4 * 27)),
    # a parameter, two moments, read and written, a gradient
    "_fused_adamw_": ([PAIR, PAIR, PAIR, PAIR, [], STEP_COUNTS], [LIST] * 6, [""] * 6, Work(14 * 27, 7 * 4 * 27)),
    "_fused_sgd_": ([PAIR, PAIR, PAIR, []], [LIST] * 3 + [SCALAR], [""] * 4, Work(4 * 27, 5 * 4 * 27)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_inputs_and_outputs(name):
    shapes, types, values, work = CASES[name]
    assert operator_work(f"aten::{name}", Inputs(shapes, types, values)) == work


def test_what_no_formula_covers_is_not_guessed():
    for name, inputs in (
        ("aten::unheard_of", Inputs([[1]], [FLOAT], [""])),
        ("aten::mm", Inputs([[2, 3], [4, 5]], [FLOAT, FLOAT], ["", ""])),
        ("aten::add", Inputs([[], []], ["", ""], ["", ""])),
        ("aten::sum", Inputs([[5]], ["c10::complex<float>"], [""])),
        ("aten::cat", Inputs([[], []], [LIST, SCALAR], ["", 0])),  # of more than 30 tensors no shapes are there
    ):
        assert operator_work(name, inputs) is None, name


def test_speeds_are_of_the_calls_that_are_not_inside_others(tmp_path):
    events = [
        shaped("aten::addmm", 0, 10, [[5], [2, 3], [3, 5]]),
        shaped("aten::copy_", 1, 2, [[5], [5]]),  # the bias, copied by addmm itself
        shaped("aten::copy_", 20, 4, [[1000], [1000]]),
        shaped("aten::view", 30, 1, [[1000]]),
    ]
    table = operators_at_work(trace_of(tmp_path, events)).set_index("operator")
    assert table["calls"].to_dict() == {"aten::addmm": 1, "aten::copy_": 1}
    assert table.loc["aten::copy_", "gb_per_s"] == pytest.approx(8000 / 4e3)
    assert table.loc["aten::addmm", "gflop_per_s"] == pytest.approx(60 / 10e3)
