"""What students write in 20_train_speech of a model: how long its output is, a block of it, and what it costs.

Shapes: B batch, T frames, C channels, H width of a recurrent layer, V alphabet with the blank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.models import ConvBlock, SpeechConfig
from labkit_course.exercises.n10_model import gradient
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- how many outputs a model writes


def output_lengths(frames: Tensor, convolutions: list[tuple[int, int, int]]) -> Tensor:
    for kernel, stride, padding in convolutions:
        frames = (frames + 2 * padding - kernel) // stride + 1
    return frames


FRAMES = torch.tensor([1, 7, 64, 101, 250, 251])
LENGTHS = WrittenExercise(
    output_lengths,
    module="speech",
    cases=(
        Case("one convolution without padding", lambda code: code(FRAMES + 4, [(5, 3, 0)])),
        Case("this lab's two, of width 7 and stride 2", lambda code: code(FRAMES, [(7, 2, 3), (7, 2, 3)])),
        Case("no convolution", lambda code: code(FRAMES, [])),
        Case("three of different widths", lambda code: code(FRAMES + 40, [(11, 2, 0), (5, 1, 1), (3, 3, 2)])),
    ),
    mistakes={
        ("(frames + 2 * padding - kernel) // stride + 1", "frames // stride"): (
            "The stride alone does not say it: a window has to fit into the padded frames."
        ),
        ("(frames + 2 * padding - kernel) // stride + 1", "-(-frames // stride)"): (
            "Rounding up is right for an odd width with half of it as padding; without padding fewer windows fit."
        ),
        ("2 * padding", "padding"): "The padding stands at both ends: it counts twice.",
        (" + 1", ""): "The first window stands at the beginning, before any stride: plus one.",
        ("in convolutions", "in convolutions[:1]"): "The convolutions follow each other.",
    },
    hint="A window of `kernel` frames fits into frames + 2 · padding first once, and then once more for each stride "
    "that is left: floor((frames + 2 · padding − kernel) / stride) + 1, convolution after convolution.",
    explanation="What lies beyond these lengths is padding, which neither the loss nor the decoder may see.",
)

# --- a block of the model


class MyBlock(nn.Module):
    def __init__(self, before: int, after: int, kernel: int, stride: int, dropout: float):
        super().__init__()
        self.stride, self.has_shortcut = stride, before == after and stride == 1
        self.conv = nn.Conv1d(before, after, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm1d(after)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.dropout(F.relu(self.norm(self.conv(x)))) * mask
        return x + y if self.has_shortcut else y


def _size(code: Any, *sizes: Any) -> int:
    return sum(weight.numel() for weight in code(*sizes).parameters())


def _heard(code: Any, *sizes: Any, frames: int = 9, training: bool = False, of_gradient: bool = False) -> Tensor:
    """What a block with the kit's weights makes of two utterances, the second of which ends half-way."""
    torch.manual_seed(5)
    kit = ConvBlock(*sizes)
    nn.init.normal_(kit.norm.weight), nn.init.normal_(kit.norm.bias)
    x = torch.randn(2, sizes[0], frames)
    x[1, :, frames // 2 :] = 0
    block = code(*sizes).train(training)
    block.conv.load_state_dict(kit.conv.state_dict(), strict=False)
    block.norm.load_state_dict(kit.norm.state_dict())
    outputs = -(-frames // sizes[3])
    mask = (torch.arange(outputs) < torch.tensor([[outputs], [outputs // 2]])).float().unsqueeze(1)
    return gradient(lambda each: block(each, mask), x) * mask if of_gradient else block(x, mask)


BLOCK = WrittenExercise(
    MyBlock,
    module="speech",
    cases=(
        Case("the stride that the model asks a block for", lambda code: code(4, 6, 5, 2, 0.0).stride),
        Case("how many weights 4 channels to 6 have", lambda code: _size(code, 4, 6, 5, 2, 0.0)),
        Case("4 channels to 6, two utterances of which one is shorter", lambda code: _heard(code, 4, 6, 5, 1, 0.0)),
        Case("6 channels to 6", lambda code: _heard(code, 6, 6, 3, 1, 0.0)),
        Case("6 channels to 6 by stride 2", lambda code: _heard(code, 6, 6, 7, 2, 0.5)),
        Case("a step of training", lambda code: _heard(code, 6, 6, 3, 1, 0.0, training=True)),
        Case("the gradient of x", lambda code: _heard(code, 6, 6, 3, 1, 0.0, of_gradient=True)),
    ),
    mistakes={
        ("kernel, stride, padding", "kernel, padding"): "The convolution moves on by the stride: tell Conv1d.",
        (", bias=False", ""): "Batch norm takes any bias away again: bias=False.",
        (" * mask", ""): "What a padded frame becomes has to be zero again: times the mask, before the shortcut.",
        ("x + y if self.has_shortcut else y", "y"): (
            "Where input and output have one shape, the input is added to the output."
        ),
        ("x + y if self.has_shortcut", "x[:, :, :: self.stride] + y if x.shape[1] == y.shape[1]"): (
            "With a stride the shapes differ: no shortcut there."
        ),
        ("F.relu(self.norm(self.conv(x)))", "self.norm(F.relu(self.conv(x)))"): (
            "Batch norm stands between the convolution and ReLU."
        ),
        (
            "F.relu(self.norm(self.conv(x)))) * mask\n        return x + y if self.has_shortcut else y",
            "self.norm(self.conv(x))) * mask\n        return F.relu(x + y if self.has_shortcut else y)",
        ): "ReLU comes before the shortcut is added, or blocks could only add up what is positive.",
    },
    hint="conv, norm and dropout are attributes; dropout(relu(norm(conv(x)))) times the mask; plus x where the numbers "
    "of channels and of frames stay.",
    explanation="With the same weights it is the kit's block, and no padding leaks into a real frame.",
)

# --- what a second of audio costs, on paper


def speech_cost(config: SpeechConfig) -> dict[str, float]:
    frames_a_s, width = 100, config.mel_bins
    parameters, flops = 0, 0
    blocks = config.layers if config.kind == "conv" else 0
    for stride in [*config.strides, *[1] * blocks]:
        frames_a_s /= stride
        weights = width * config.channels * config.kernel
        parameters += weights + 2 * config.channels  # batch norm scales and shifts each channel
        flops += 2 * weights * frames_a_s  # a multiplication and an addition
        width = config.channels
    for _ in range(config.layers if config.kind == "lstm" else 0):
        weights = 4 * config.hidden * (width + config.hidden)  # four gates, of the input and of the state
        parameters += weights + 2 * 4 * config.hidden  # torch's LSTM has two biases a gate
        flops += 2 * weights * frames_a_s
        width = config.hidden
    parameters += (width + 1) * config.vocabulary
    return {"parameters": parameters, "flops": flops + 2 * width * config.vocabulary * frames_a_s}


ADMS = SpeechConfig(29, "lstm", 600, 5, hidden=800, kernel=11, strides=(2,))
TINY = SpeechConfig(10, "conv", 16, 3, kernel=3, strides=(2, 2), mel_bins=20)


COST = WrittenExercise(
    speech_cost,
    module="speech",
    cases=(
        Case("a small model of convolutions", lambda code: code(TINY)),
        Case("two recurrent layers", lambda code: code(SpeechConfig(10, "lstm", 12, 2, hidden=7, strides=(3,)))),
        Case("the model of ADMS 2020", lambda code: code(ADMS)),
    ),
    mistakes={
        ('"flops": flops + 2 *', '"flops": flops / 2 +'): "A multiplication and an addition: two operations each.",
        ("frames_a_s /= stride", "pass"): (
            "After a stride fewer frames a second are left, and each layer computes for those that it writes."
        ),
        ("flops += 2 * weights * frames_a_s  #", "flops += 2 * weights * frames_a_s * stride  #"): (
            "A convolution computes for the frames that it writes, after its stride."
        ),
        ("frames_a_s, width = 100", "frames_a_s, width = 1"): "For a second of audio: 100 frames, not one.",
        ("2 * 4 * config.hidden", "4 * config.hidden"): (
            "torch's LSTM has two biases for each gate (bias_ih and bias_hh)."
        ),
        ("(width + 1)", "width"): "The last layer has biases, one a character.",
        ("weights + 2 * config.channels", "weights"): "Batch norm has a scale and a shift for each channel.",
    },
    hint="Of a convolution width × channels × kernel weights, of an LSTM layer 4 × hidden × (width + hidden), of the "
    "last layer width × vocabulary; each weight is multiplied and added once for each frame that its layer writes.",
    explanation="On paper, before anything was built.",
)

WHY_COST = Explanation(
    rubric=(
        "numbers: the ratio of operations on paper, and the ratio of times measured",
        "why: what an LSTM cannot do at once, and what size of product each model gives the cores",
        "trade-off: what more layers bought the thesis for their time",
    ),
    model="By arithmetic the paper's model does more than 200 times the operations a second of audio, and the times "
    "differ by another factor than that. A large product uses the cores better than many small ones, where each "
    "operation costs a start, while an LSTM has to go through the outputs one after the other and reads its weights "
    "each time. In the thesis two more layers bought three to four points of WER up to five, and two more cost as "
    "many operations and lost as much.",
)

EXERCISES = {"20.lengths": LENGTHS, "20.block": BLOCK, "20.cost": COST, "20.why_cost": WHY_COST}
