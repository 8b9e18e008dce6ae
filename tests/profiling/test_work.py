"""Arithmetic and bytes of operators: torch's own counter is the judge of the arithmetic."""

import ast

import pytest
import torch
from kineto import recorded, shaped, trace_of
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

from labkit.jobs import dlrm, speech
from labkit.models.dlrm import DlrmConfig
from labkit.models.speech import SpeechConfig
from labkit.profiling.work import Inputs, Work, operator_work, operators_at_work

FLOAT, LONG, BF16, BOOL, BYTE = "float", "long int", "c10::BFloat16", "bool", "unsigned char"
SCALAR, LISTED, LIST = "Scalar", "ScalarList", "TensorList"
STEPS, BATCH, INPUTS, HIDDEN, LAYERS = 7, 3, 5, 4, 2


class Dots(nn.Module):
    """Pairwise products, as a DLRM has them."""

    def forward(self, x):
        return torch.bmm(x, x.transpose(1, 2))


class Packed(nn.LSTM):
    """Sequences of several lengths."""

    def forward(self, x):
        return super().forward(pack_padded_sequence(x, torch.tensor([7, 4, 2])))[0].data


MADE = {
    "strided": lambda: (nn.Conv2d(3, 8, (3, 5), stride=(2, 1), padding=(1, 2)), torch.randn(4, 3, 20, 17)),
    "grouped": lambda: (nn.Conv1d(16, 8, 5, padding=2, groups=2, dilation=2), torch.randn(4, 16, 40)),
    "transposed": lambda: (nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), torch.randn(2, 6, 11)),
    "layers": lambda: (nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 5)), torch.randn(32, 13)),
    "recurrent": lambda: (nn.GRU(16, 8, batch_first=True), torch.randn(4, 10, 16)),
    "packed": lambda: (Packed(INPUTS, HIDDEN, LAYERS, bidirectional=True), torch.randn(STEPS, BATCH, INPUTS)),
    "pairs": lambda: (Dots(), torch.randn(7, 5, 3)),
}


def flop_of(step, folder):
    return operators_at_work(recorded(folder, step)[0]).set_index("operator")["flop"]


@pytest.mark.parametrize("made", MADE)
def test_the_arithmetic_of_products_and_convolutions_is_torchs(made, tmp_path):
    model, x = MADE[made]()
    x.requires_grad_(made in ("strided", "transposed", "pairs"))

    def step():
        out = model(x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    ours = flop_of(step, tmp_path)
    theirs = {f"aten::{operator}".replace("aten::aten.", "aten::"): flop
              for operator, flop in counter.get_flop_counts()["Global"].items()}  # fmt: skip
    assert theirs
    # torch's counter forgets the groups here: the weight's gradient takes what the forward pass did
    if made == "grouped":
        assert theirs.pop("aten::convolution_backward") == 2 * ours["aten::convolution"]
        assert ours["aten::convolution_backward"] == ours["aten::convolution"]
    assert {name: ours[name] for name in theirs} == theirs


def product_flop(step):
    """Flop of all products of a step, with layers of oneDNN, which torch's counter does not know, taken apart."""
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_onednns_lstm_does_the_products_that_the_layers_consist_of(bidirectional, tmp_path):
    model = nn.LSTM(INPUTS, HIDDEN, LAYERS, bidirectional=bidirectional)
    x = torch.randn(STEPS, BATCH, INPUTS, requires_grad=True)
    # a state whose gradient is asked for, as oneDNN always computes it
    state = [torch.zeros(LAYERS * (1 + bidirectional), BATCH, HIDDEN, requires_grad=True) for _ in range(2)]

    def step():
        model(x, state)[0].sum().backward()

    ours = flop_of(step, tmp_path)
    assert ours["aten::mkldnn_rnn_layer"] * 3 == product_flop(step)  # forward, and two products back for each
    assert ours["aten::mkldnn_rnn_layer_backward"] == 2 * ours["aten::mkldnn_rnn_layer"]


@pytest.mark.parametrize(("kind", "projected"), [("LSTM", 0), ("LSTM", 2), ("GRU", 0), ("RNN", 0)])
def test_cudnns_layers_do_the_products_of_the_same_layers_on_a_cpu(kind, projected):
    model = getattr(nn, kind)(
        INPUTS, HIDDEN, LAYERS, bidirectional=True, **{"proj_size": projected} if projected else {}
    )
    weights = {name: parameter.numel() for name, parameter in model.named_parameters()}
    biases = sum(count for name, count in weights.items() if "bias" in name)
    forward = product_flop(lambda: model(torch.randn(STEPS, BATCH, INPUTS))) + 2 * STEPS * BATCH * biases
    buffer, state, out = [sum(weights.values())], [LAYERS * 2, BATCH, projected or HIDDEN], 2 * (projected or HIDDEN)
    form = ["2", str(HIDDEN), str(projected), str(LAYERS), "False", "0.", "True", "True", "[]"]
    call = Inputs(
        # more than 30 weights have no shapes
        [[STEPS, BATCH, INPUTS], [], [], buffer, state, state, *[[]] * 9],
        [FLOAT, LIST, SCALAR, FLOAT, FLOAT, FLOAT, *[SCALAR] * 9],
        ["", "", "4", "", "", "", *form],
    )
    read = STEPS * BATCH * INPUTS + buffer[0] + 2 * LAYERS * 2 * BATCH * (projected or HIDDEN)
    assert operator_work("aten::_cudnn_rnn", call) == (forward, 4 * (read + STEPS * BATCH * out))
    assert operator_work("aten::_cudnn_rnn_backward", call).flop == 2 * forward


PAIR = [[4, 5], [7]]  # the shapes of a list of two tensors, 27 elements
STEP_COUNTS = [[], []]
CASES = {
    "mm": ([[2, 3], [3, 5]], [FLOAT, FLOAT], ["", ""], Work(60, 4 * (6 + 15 + 10))),
    "addmm": ([[5], [2, 3], [3, 5]], [FLOAT] * 3, [""] * 3, Work(60, 4 * (5 + 6 + 15 + 10))),
    # 6 rows of 8 numbers are read and added up to 4, which are written
    "_embedding_bag": ([[100, 8], [6], [4]], [FLOAT, LONG, LONG], [""] * 3, Work(16, 8 * 10 + 4 * 8 * (6 + 4))),
    "embedding": ([[100, 8], [6]], [FLOAT, LONG], [""] * 2, Work(0, 8 * 6 + 4 * 8 * 12)),
    "add": ([[7, 3], [3], []], [FLOAT, FLOAT, SCALAR], ["", "", "1"], Work(21, 4 * (21 + 3 + 21))),
    "copy_": ([[10], [10], []], [BF16, FLOAT, SCALAR], ["", "", "False"], Work(0, 60)),
    "sum": ([[10, 2]], ["double"], [""], Work(20, 160)),
    "mul": ([[7, 3], [7, 1]], [BF16, BOOL], [""] * 2, Work(21, 2 * 21 + 7 + 2 * 21)),
    "div_": ([[7, 3], []], [FLOAT, "double"], [""] * 2, Work(21, 4 * 21 + 8 + 4 * 21)),  # a number stays one
    "ge": ([[6, 4], []], [BYTE, SCALAR], ["", "13"], Work(24, 24 + 24)),
    "where": ([[6, 1], [6, 4], []], [BOOL, FLOAT, FLOAT], [""] * 3, Work(0, 6 + 4 * 24 + 4 + 4 * 24)),
    "zero_": ([[9, 2]], [FLOAT], [""], Work(0, 72)),
    "cat": ([PAIR, []], [LIST, SCALAR], ["", "0"], Work(0, 2 * 4 * 27)),
    # values and keys are read and written, and the places, which are long
    "sort": ([[10], [], [], []], ["int"] + [SCALAR] * 3, ["", "False", "-1", "False"], Work(0, 40 + 40 + 80)),
    # 6 of 100 rows of 8
    "index_select": ([[100, 8], [], [6]], [FLOAT, SCALAR, LONG], ["", "0", ""], Work(0, 48 + 2 * 4 * 48)),
    "gather": ([[9, 8], [], [9, 2]], [FLOAT, SCALAR, LONG], ["", "1", ""], Work(0, 8 * 18 + 2 * 4 * 18)),
    "index_add_": ([[100, 8], [], [6], [6, 8]], [FLOAT, SCALAR, LONG, FLOAT], [""] * 4, Work(48, 48 + 3 * 4 * 48)),
    # rows of 6 lookups are added to a table of 100 rows of 8, all of which are written
    "embedding_dense_backward": (
        [[2, 3, 8], [2, 3], []], [FLOAT, LONG, SCALAR], ["", "", "100"], Work(48, 4 * 48 + 8 * 6 + 4 * 800),
    ),
    "_embedding_bag_sparse_backward": (
        [[2, 8], [6], [2], [6], [2], []], [FLOAT] + [LONG] * 4 + [SCALAR], [""] * 5 + ["100"],
        Work(0, 4 * 16 + 8 * 6 + 4 * 48),
    ),
    # x − max, exp, sum, x − max − log; beside the maximum
    "_log_softmax": ([[4, 6], [], []], [FLOAT, SCALAR, SCALAR], ["", "1", "False"], Work(5 * 24, 2 * 4 * 24)),
    "native_batch_norm": (
        [[4, 6, 5], *[[6]] * 4, [], [], []], [FLOAT] * 5 + [SCALAR] * 3, [""] * 5 + ["True", "0.1", "1e-05"],
        Work(6 * 120, 4 * (120 + 4 * 6 + 120)),
    ),
    "cudnn_batch_norm_backward": (
        [[4, 6], [4, 6], *[[6]] * 5, [], [99]], [FLOAT] * 7 + [SCALAR, BYTE], [""] * 7 + ["1e-05", ""],
        Work(9 * 24, 4 * (48 + 5 * 6 + 24) + 99),
    ),
    "native_dropout": ([[9], [], []], [FLOAT, SCALAR, SCALAR], ["", "0.1", "True"], Work(18, 36 + 36 + 9)),
    "_foreach_add_": ([PAIR, PAIR, []], [LIST, LIST, SCALAR], ["", "", "-0.1"], Work(27, 3 * 4 * 27)),
    "_foreach_addcmul_": ([PAIR] * 3, [LIST] * 3, [""] * 3, Work(3 * 27, 4 * 4 * 27)),
    "_foreach_norm": ([PAIR, []], [LIST, SCALAR], ["", "2"], Work(54, 4 * 27)),
    # a parameter, two moments, read and written, a gradient
    "_fused_adamw_": ([PAIR, PAIR, PAIR, PAIR, [], STEP_COUNTS], [LIST] * 6, [""] * 6, Work(14 * 27, 7 * 4 * 27)),
    "_fused_adagrad_": ([PAIR, PAIR, PAIR, STEP_COUNTS], [LIST] * 4, [""] * 4, Work(7 * 27, 5 * 4 * 27)),
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
        ("aten::mm", Inputs([[2, 3]], [FLOAT], [""])),
        ("aten::add", Inputs([[], []], ["", ""], ["", ""])),
        ("aten::sum", Inputs([[5]], ["c10::complex<float>"], [""])),
        ("aten::cat", Inputs([[], []], [LIST, SCALAR], ["", "0"])),  # of more than 30 tensors no shapes are there
        ("aten::index", Inputs([[5, 2], []], [FLOAT, ""], ["", ""])),
    ):
        assert operator_work(name, inputs) is None, name


def test_a_fused_adam_does_what_its_parts_do(tmp_path):
    parameter = nn.Parameter(torch.randn(40, 50))
    parameter.grad = torch.randn(40, 50)
    flop = {}
    for fused in (True, False):
        optimiser = torch.optim.Adam([parameter], fused=fused, foreach=False)
        optimiser.step()
        flop[fused] = flop_of(optimiser.step, tmp_path).sum()
    # each counts steps in a tensor, too, which is one addition
    assert flop[True] == flop[False] == 13 * 40 * 50 + 1


COUNTLESS = """
_batch_norm_impl_index _ctc_loss _ctc_loss_backward _to_copy _unsafe_view alias arange as_strided batch_norm
clone constant_pad_nd contiguous conv2d ctc_loss cudnn_is_acceptable detach detach_ dropout embedding_bag
empty empty_like empty_strided expand flatten floor_divide full_like lift_fresh linear log_softmax lstm matmul
narrow ones ones_like pad permute randint randn reshape resize_ resolve_conj resolve_neg select slice squeeze
stack t to transpose unsqueeze view zeros zeros_like
"""
"""Views, new memory without values, CTC, and what has its work in the operators that it calls; or works on lengths."""


def test_the_operators_of_our_models_have_formulas(tmp_path):
    click = dlrm.build_model(DlrmConfig(13, (500, 300), 8, (16, 8), (16, 1)), "fast")
    listener = speech.build_model(SpeechConfig(12, "lstm", 16, 2, hidden=8), "fast")
    optimisers = dlrm.build_optimizers(click, "adam", 0.01, "fast")
    optimisers.append(speech.build_optimizer(listener, "adam", 0.01, "fast"))
    lengths = torch.tensor([40, 36])

    def step():
        logit = click(torch.randn(32, 13), torch.randint(0, 300, (32, 2, 3), dtype=torch.int32))
        F.binary_cross_entropy_with_logits(logit, torch.ones(32)).backward()
        log_p, frames = listener(torch.randn(2, 40, 80), lengths)
        F.ctc_loss(log_p.transpose(0, 1), torch.ones(2, 4, dtype=torch.long), frames, torch.tensor([4, 3])).backward()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()

    step()
    events = recorded(tmp_path, step)[0].events
    calls = events[events["category"] == "cpu_op"].astype({"name": str})
    works = {
        row.Index: operator_work(row.name, Inputs(*map(ast.literal_eval, (row.shapes, row.types, row.values))))
        for row in calls[calls["shapes"] != ""].astype(str).itertuples()
    }
    unknown = set()
    for index, name in calls["name"].items():
        above = index
        while above >= 0 and works.get(above) is None:
            above = events["parent"][above]
        if above < 0 and name.startswith("aten::"):
            unknown.add(name.removeprefix("aten::"))
    assert unknown <= set(COUNTLESS.split())


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
