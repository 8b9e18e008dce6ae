"""Work of recurrent layers and of CTC: torch's counter, on the same layers taken apart into products, is the judge."""

import pytest
import torch
from kineto import recorded
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

from labkit.profiling.work.operators import Inputs, operator_work, operators_at_work

FLOAT, LONG, SCALAR, LISTED = "float", "long int", "Scalar", "ScalarList"
STEPS, BATCH, INPUTS, HIDDEN, LAYERS = 7, 3, 5, 4, 2


def table(step, folder):
    return operators_at_work(recorded(folder, step)[0]).set_index("operator")


def product_flop(step):
    """Flop of all products of a step, with layers of oneDNN, which torch's counter does not know, taken apart."""
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def layers(kind, bidirectional, projected=0):
    form = {"proj_size": projected} if projected else {}
    return getattr(nn, kind)(INPUTS, HIDDEN, LAYERS, bidirectional=bidirectional, **form)


def start(kind, bidirectional, projected=0):
    """A state whose gradient is asked for, as oneDNN and cuDNN always compute it."""
    count = LAYERS * (2 if bidirectional else 1)
    state = torch.zeros(count, BATCH, projected or HIDDEN, requires_grad=True)
    return (state, torch.zeros(count, BATCH, HIDDEN, requires_grad=True)) if kind == "LSTM" else state


@pytest.mark.parametrize("bidirectional", [False, True])
def test_onednns_lstm_does_the_products_that_the_layers_consist_of(bidirectional, tmp_path):
    model, x = layers("LSTM", bidirectional), torch.randn(STEPS, BATCH, INPUTS, requires_grad=True)

    def step():
        model(x, start("LSTM", bidirectional))[0].sum().backward()

    ours = table(step, tmp_path)["flop"]
    assert {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"} <= set(ours.index)
    assert ours["aten::mkldnn_rnn_layer"] * 3 == product_flop(step)  # forward, and two products back for each
    assert ours["aten::mkldnn_rnn_layer_backward"] == 2 * ours["aten::mkldnn_rnn_layer"]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_are_products_of_their_own_lengths(kind, bidirectional, tmp_path):
    model, x = layers(kind, bidirectional), torch.randn(STEPS, BATCH, INPUTS)

    def step():
        packed = pack_padded_sequence(x, torch.tensor([7, 4, 2]))
        model(packed)[0].data.sum().backward()

    ours = table(step, tmp_path)["flop"]
    assert ours["aten::mm"] + ours["aten::addmm"] == product_flop(step)


@pytest.mark.parametrize(("kind", "mode", "projected"), [("LSTM", 2, 0), ("LSTM", 2, 2), ("GRU", 3, 0), ("RNN", 1, 0)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_cudnns_layers_do_the_products_of_the_same_layers_on_a_cpu(kind, mode, projected, bidirectional):
    model = layers(kind, bidirectional, projected)
    x = torch.randn(STEPS, BATCH, INPUTS, requires_grad=True)
    forward = product_flop(lambda: model(x))
    whole = product_flop(lambda: model(x, start(kind, bidirectional, projected))[0].sum().backward())
    state = [LAYERS * (1 + bidirectional), BATCH, HIDDEN]
    form = [str(value) for value in (mode, HIDDEN, projected, LAYERS, False, 0.0, True, bidirectional, [])]
    call = Inputs(
        # more than 30 weights have no shapes
        [[STEPS, BATCH, INPUTS], [], [], [999], state, state, *[[]] * 9, []],
        [FLOAT, "TensorList", SCALAR, FLOAT, FLOAT, FLOAT if kind == "LSTM" else "", *[SCALAR] * 9, ""],
        ["", "", "4", "", "", "", *form, ""],
    )
    assert operator_work("aten::_cudnn_rnn", call).flop == forward
    outputs = [STEPS, BATCH, (1 + bidirectional) * (projected or HIDDEN)]
    back = Inputs(
        [*call.shapes[:6], outputs, outputs, [], [], *[[]] * 9, [], [4000], []],
        [*call.types[:6], FLOAT, FLOAT, "", "", *[SCALAR] * 9, "", "unsigned char", LISTED],
        [*call.values[:6], "", "", "", "", *form, "", "", "[True, False, False, True]"],
    )
    assert operator_work("aten::_cudnn_rnn_backward", back).flop == whole - forward


def ctc_step(batch, lengths=None):
    log_p = torch.randn(10, batch, 6).log_softmax(2).requires_grad_()
    frames, characters = lengths or ([10] * batch, [3] * batch)
    loss = F.ctc_loss(log_p, torch.randint(1, 6, (batch, 3)), frames, characters, reduction="sum")
    loss.backward()


def test_ctc_counts_states_and_frames_of_each_utterance(tmp_path):
    # 2 characters have 5 states, 3 have 7: each a log of a sum of three (13) at every frame but the first
    states_to_reach, states, frames = 5 * 7 + 7 * 9, 5 * 8 + 7 * 10, 8 + 10
    ours = table(lambda: ctc_step(2, ([8, 10], [2, 3])), tmp_path)
    assert ours.loc["aten::_ctc_loss", "flop"] == 13 * states_to_reach
    # back as far, then 9 to add a state to its character, and 6 for each of the 6 characters of a frame
    assert ours.loc["aten::_ctc_loss_backward", "flop"] == 13 * states_to_reach + 9 * states + 6 * 6 * frames
    log_p, targets, alpha = 4 * 10 * 2 * 6, 8 * 2 * 3, 4 * 2 * 10 * 7
    assert ours.loc["aten::_ctc_loss", "bytes"] == log_p + targets + alpha + 4 * 2
    assert ours.loc["aten::_ctc_loss_backward", "bytes"] == 2 * log_p + targets + alpha + 2 * 4 * 2


def test_ctc_whose_lengths_were_not_written_down_counts_all_as_the_longest(tmp_path):
    ours = table(lambda: ctc_step(31), tmp_path)  # of lists of more than 30 the profiler writes nothing
    assert ours.loc["aten::_ctc_loss", "flop"] == 31 * 13 * 7 * 9
