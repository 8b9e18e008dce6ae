"""Arithmetic and bytes of operators: torch's own counter is the judge of the arithmetic."""

import json

import pytest
import torch
from torch import nn
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from labkit.profiling.trace import read_trace
from labkit.profiling.work import Inputs, Work, operator_work, operators_at_work


def strided():
    return nn.Conv2d(3, 8, (3, 5), stride=(2, 1), padding=(1, 2)), torch.randn(4, 3, 20, 17, requires_grad=True)


def grouped():
    return nn.Conv1d(16, 8, 5, padding=2, groups=2, dilation=2), torch.randn(4, 16, 40)


def transposed():
    return nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), torch.randn(2, 6, 11, requires_grad=True)


def layers():
    return nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 5)), torch.randn(32, 13)


def recurrent():
    return nn.GRU(16, 8, batch_first=True), torch.randn(4, 10, 16)


class Dots(nn.Module):
    """Pairwise products, as a DLRM has them."""

    def forward(self, x):
        return torch.bmm(x, x.transpose(1, 2))


def pairs():
    return Dots(), torch.randn(7, 5, 3, requires_grad=True)


@pytest.mark.parametrize(
    "made", [strided, grouped, transposed, layers, recurrent, pairs], ids=lambda made: made.__name__
)
def test_the_arithmetic_of_products_and_convolutions_is_torchs(made, tmp_path):
    model, x = made()

    def step():
        out = model(x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    with profile(record_shapes=True) as profiler:
        step()
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    ours = operators_at_work(read_trace(tmp_path / "t.json")).set_index("operator")["flop"]
    theirs = {f"aten::{operator}".replace("aten::aten.", "aten::"): flop
              for operator, flop in counter.get_flop_counts()["Global"].items()}  # fmt: skip
    assert theirs
    if (
        made is grouped
    ):  # torch's counter forgets the groups here: the weight's gradient takes what the forward pass did
        assert theirs.pop("aten::convolution_backward") == 2 * ours["aten::convolution"]
        assert ours["aten::convolution_backward"] == ours["aten::convolution"]
    assert {name: ours[name] for name in theirs} == theirs


FLOAT, LONG = "float", "long int"
CASES = {
    "aten::mm": ([[2, 3], [3, 5]], [FLOAT, FLOAT], ["", ""], Work(60, 4 * (6 + 15 + 10))),
    "aten::addmm": ([[5], [2, 3], [3, 5]], [FLOAT] * 3, [""] * 3, Work(60, 4 * (5 + 6 + 15 + 10))),
    # 6 rows of 8 numbers are read and added up to 4, which are written
    "aten::_embedding_bag": ([[100, 8], [6], [4]], [FLOAT, LONG, LONG], [""] * 3, Work(16, 8 * 10 + 4 * 8 * (6 + 4))),
    "aten::embedding": ([[100, 8], [6]], [FLOAT, LONG], [""] * 2, Work(0, 8 * 6 + 4 * 8 * 12)),
    "aten::add": ([[7, 3], [3], []], [FLOAT, FLOAT, "Scalar"], ["", "", "1"], Work(21, 4 * (21 + 3 + 21))),
    "aten::copy_": ([[10], [10], []], ["c10::BFloat16", FLOAT, "Scalar"], ["", "", "False"], Work(0, 60)),
    "aten::sum": ([[10, 2]], ["double"], [""], Work(20, 160)),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_inputs_and_outputs(name):
    shapes, types, values, work = CASES[name]
    assert operator_work(name, Inputs(shapes, types, values)) == work


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("aten::unheard_of", Inputs([[1]], [FLOAT], [""])),
        ("aten::mm", Inputs([[2, 3], [4, 5]], [FLOAT, FLOAT], ["", ""])),
        ("aten::mm", Inputs([[2, 3]], [FLOAT], [""])),
        ("aten::add", Inputs([[], []], ["", ""], ["", ""])),
        ("aten::sum", Inputs([[5]], ["c10::complex<float>"], [""])),
    ],
)
def test_what_no_formula_covers_is_not_guessed(name, inputs):
    assert operator_work(name, inputs) is None


def test_speeds_are_of_the_calls_that_are_not_inside_others(tmp_path):
    def op(name, start, duration, shapes):
        args = {"Input Dims": shapes, "Input type": [FLOAT] * len(shapes), "Concrete Inputs": [""] * len(shapes)}
        return {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": start,
            "dur": duration,
            "args": args,
        }

    events = [
        op("aten::addmm", 0, 10, [[5], [2, 3], [3, 5]]),
        op("aten::copy_", 1, 2, [[5], [5]]),  # the bias, copied by addmm itself
        op("aten::copy_", 20, 4, [[1000], [1000]]),
        op("aten::view", 30, 1, [[1000]]),
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    table = operators_at_work(read_trace(path)).set_index("operator")
    assert table["calls"].to_dict() == {"aten::addmm": 1, "aten::copy_": 1}
    assert table.loc["aten::copy_", "gb_per_s"] == pytest.approx(8000 / 4e3)
    assert table.loc["aten::addmm", "gflop_per_s"] == pytest.approx(60 / 10e3)
