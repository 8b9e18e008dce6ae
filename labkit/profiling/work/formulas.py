"""Formulas of the work of operators, by the shapes of their inputs: what `labkit.profiling.work.operators` counts with.

Those that move much or compute much in the steps of this course's models. Without one, because there is nothing to
count by shapes: views (`slice`, `transpose`, `unsafe_split`, …), `empty`, nodes of autograd (`MulBackward0`,
`_MaskedRelu`, …) and calls such as `aten::gru` that are their parts, `aten::index` and `aten::index_put_`, of whose
indices the profiler writes down no shapes.

Of recurrent layers the products alone count, 2 T B G H (I + H) for T steps, B sequences, I inputs of a step, a state of
H and G gates: as with a bias, what gates and cells add is not counted, of an LSTM some 20 a step for each of H.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

ELEMENT_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8, "int": 4, "short": 2,
    "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
"""Of a tensor's elements, by the C++ type that the profiler writes down."""
LIST = "TensorList"
"""What the profiler writes in place of the type of a list of tensors."""
LIST_ELEMENT_BYTES = 4
"""Of the elements of a list's tensors, whose type it does not write down: taken as float, as parameters are."""


class Work(NamedTuple):
    """What one call has to do at least."""

    flop: int
    bytes: int


class Inputs(NamedTuple):
    """What an operator was called with: one entry an argument."""

    shapes: list
    """Sizes of a tensor; a list of such for a list of tensors; empty for anything else"""
    types: list[str]
    values: list[str]
    """What is no tensor, as text"""

    def size(self, place: int) -> int:
        """Bytes of a tensor."""
        return prod(self.shapes[place]) * self.element(place)

    def element(self, place: int = 0) -> int:
        """Bytes of one of its elements; a KeyError where it is no tensor, or of a type that is not known."""
        return ELEMENT_BYTES[self.types[place]]

    def tensors(self) -> list[int]:
        """The places where a tensor is."""
        return [place for place, kind in enumerate(self.types) if kind in ELEMENT_BYTES]

    def elements_of_list(self, place: int = 0) -> int:
        """Of all tensors of a list; a ValueError where the profiler left out its shapes, as of more than 30."""
        if self.types[place] != LIST or not self.shapes[place]:
            raise ValueError
        return sum(map(prod, self.shapes[place]))

    def value(self, place: int) -> Any:
        """A number, a truth value or a list of them."""
        return ast.literal_eval(self.values[place])


Formula = Callable[[Inputs], Work]
Count = int | Callable[[Inputs], int]
"""A number, or one that depends on what the operator was called with"""


GATES = {0: 1, 1: 1, 2: 4, 3: 3}
"""Of a cell, by cuDNN's cudnnRNNMode_t: ReLU, tanh, LSTM, GRU."""
LOG_SUM = 13
"""Of CTC's recursion in logarithms, for a state and frame: log(eᵃ + eᵇ + eᶜ) + log p, the largest of the three taken
out and put back: 2 maxima, 3 subtractions, 3 exponentials, 2 additions, a logarithm and 2 additions."""
STATE_GRADIENT = 9
"""Of CTC's gradient, for a state and frame: log α + log β, and log(eᵃ + eᵇ) to add it to its character's: an addition;
a maximum, 2 subtractions, 2 exponentials, an addition, a logarithm and an addition."""
CHARACTER_GRADIENT = 6
"""Of CTC's gradient, for a character and frame: (p − exp(s + loss − log p)) times the loss' gradient: 2 exponentials,
an addition, 2 subtractions, a multiplication."""


def _of(count: Count, inputs: Inputs) -> int:
    return count(inputs) if callable(count) else count


def _product(left: int) -> Formula:
    """A (..., n, k) by B (..., k, m); what comes before the factors, a bias or a sum, is read, too."""

    def formula(inputs: Inputs) -> Work:
        *batch, n, k = inputs.shapes[left]
        *_, k_too, m = inputs.shapes[left + 1]
        if k != k_too:
            raise ValueError
        read = sum(inputs.size(place) for place in range(left + 2))
        return Work(2 * prod(batch) * n * k * m, read + prod(batch) * n * m * inputs.element(left))

    return formula


def _convolution(inputs: Inputs) -> Work:
    import torch

    x, weight = inputs.shapes[:2]
    how = [inputs.value(place) for place in range(3, 9)]
    sizes = [torch.empty(shape, device="meta") for shape in (x, weight)]  # no memory, and no arithmetic
    out = torch.convolution(*sizes, None, *how).shape
    read = sum(inputs.size(place) for place in range(3) if inputs.shapes[place])
    return Work(_convolution_flop(x, weight, out, how[3]), read + prod(out) * inputs.element())


def _convolution_backward(inputs: Inputs) -> Work:
    """The gradient of the input, of the weight, or both: each costs what the convolution does."""
    out, x, weight = inputs.shapes[:3]
    of_x, of_weight, _ = inputs.value(10)
    one = _convolution_flop(x, weight, out, inputs.value(7))
    read = sum(inputs.size(place) for place in range(3))
    return Work(one * (of_x + of_weight), read + of_x * inputs.size(1) + of_weight * inputs.size(2))


def _convolution_flop(x: list[int], weight: list[int], out: list[int], transposed: bool) -> int:
    # weight (C_out, C_in / groups, *kernel), or (C_in, C_out / groups, *kernel) where it is transposed
    return 2 * x[0] * prod((x if transposed else out)[2:]) * prod(weight)


def _embedding_bag(inputs: Inputs) -> Work:
    """Table (E, D), indices (N), offsets (B): N rows are read and added up to B."""
    (_, width), (lookups,), (bags,) = inputs.shapes[:3]
    moved = inputs.size(1) + inputs.size(2) + (lookups + bags) * width * inputs.element()
    return Work(max(0, lookups - bags) * width, moved)


def _table_gradient(rows: int, is_sparse: Count = 0) -> Formula:
    """Gradient (..., D) and indices: added to the rows of the table's, of which there are as many as an argument says.

    Of a dense one all rows are written, those that stay zero, too; a sparse one's are added up later by others.
    """

    def formula(inputs: Inputs) -> Work:
        width = inputs.shapes[0][-1]
        added, sparse = prod(inputs.shapes[1]) * width, _of(is_sparse, inputs)
        written = added if sparse else inputs.value(rows) * width
        return Work(0 if sparse else added, inputs.size(0) + inputs.size(1) + written * inputs.element())

    return formula


def _picked(index: int, count: Callable[[Inputs], int], *, adds: int = 0) -> Formula:
    """So many numbers are read at the places of indices and written, or added to what is there, and no more."""
    return lambda inputs: Work(adds * count(inputs), inputs.size(index) + (2 + adds) * count(inputs) * inputs.element())


def _each(flop: Count, *, written: Count = 1, more: int = 0) -> Formula:
    """So much arithmetic with each element of the first tensor.

    All tensors are read; `written` tensors like the first one and `more` bytes for each element are written.
    """

    def formula(inputs: Inputs) -> Work:
        count, read = prod(inputs.shapes[0]), sum(map(inputs.size, inputs.tensors()))
        return Work(_of(flop, inputs) * count, read + _of(written, inputs) * inputs.size(0) + more * count)

    return formula


def _broadcast(flop_each: int, *, element: int | None = None) -> Formula:
    """Tensors that are broadcast, and one that is made of them, whose elements have so many bytes."""

    def formula(inputs: Inputs) -> Work:
        tensors = inputs.tensors()
        if not tensors:
            raise ValueError
        out = prod(np.broadcast_shapes(*(tuple(inputs.shapes[place]) for place in tensors)))
        # of the widest type; numbers, which have no dimensions, do not widen
        widest = max((inputs.element(place) for place in tensors if inputs.shapes[place]), default=4)
        return Work(flop_each * out, sum(map(inputs.size, tensors)) + out * (element or widest))

    return formula


def _of_lists(flop_each: int, *, read: bool = True, written: bool = True) -> Formula:
    """An operator on each tensor of lists of like shapes, of which the first, or a new one, is written."""

    def formula(inputs: Inputs) -> Work:
        first = inputs.elements_of_list()
        lists = [place for place, kind in enumerate(inputs.types) if kind == LIST]
        elements = read * sum(map(inputs.elements_of_list, lists)) + written * first
        return Work(flop_each * first, elements * LIST_ELEMENT_BYTES)

    return formula


def _update(flop: Callable[[Inputs], int], states: Count) -> Formula:
    """Parameters and their states are read and written, gradients read."""

    def formula(inputs: Inputs) -> Work:
        elements = inputs.elements_of_list()
        return Work(flop(inputs) * elements, elements * LIST_ELEMENT_BYTES * (3 + 2 * _of(states, inputs)))

    return formula


def _adam(decay: int) -> Formula:
    """Kingma & Ba, ICLR 2015, algorithm 1, as torch arranges it.

    m + (1 − β₁) (g − m): 3; β₂ v + (1 − β₂) g g: 4; √v / a + ε: 3; p − b m / that: 3. With a largest v: 1; with
    weight decay `decay` more.
    """
    return _update(
        lambda inputs: 13 + (inputs.value(9) != 0) * decay + inputs.value(11), lambda inputs: 2 + inputs.value(11)
    )


def _onednn_layer(inputs: Inputs) -> Work:
    """One layer in one direction over x (T, B, I), with weights (G H, I) and (G H, H), biases and state.

    What it keeps for the backward pass cannot be told from its inputs.
    """
    steps, flop = _onednn(inputs)
    written = steps * inputs.shapes[2][1] * inputs.element() + inputs.size(5) + inputs.size(6)
    return Work(flop, sum(map(inputs.size, range(7))) + written)


def _onednn_layer_backward(inputs: Inputs) -> Work:
    """A product for the gradient of each of its factors, inputs and weights, so twice what the layer does."""
    moved = sum(map(inputs.size, inputs.tensors())) + sum(map(inputs.size, range(7)))
    return Work(2 * _onednn(inputs)[1], moved)


def _onednn(inputs: Inputs) -> tuple[int, int]:
    x, of_input, of_state = inputs.shapes[:3]
    return prod(x[:-1]), 2 * prod(x[:-1]) * (prod(of_input) + prod(of_state))


def _cudnn_layers(inputs: Inputs) -> Work:
    """All layers and directions over x (T, B, I), or (N, I) where sequences are packed."""
    steps, weights, biases, out = _cudnn(inputs, first=6)
    moved = (steps * out + weights + biases) * inputs.element()
    return Work(2 * steps * weights, inputs.size(0) + moved + 2 * _given(inputs, 4, 5))


def _cudnn_layers_backward(inputs: Inputs) -> Work:
    """The gradient of the inputs, and where it is asked for, that of the weights: each costs what the layers do."""
    steps, weights, biases, _ = _cudnn(inputs, first=10)
    of_weights = inputs.value(21)[3]
    moved = 2 * inputs.size(0) + _given(inputs, 4, 5, 6, 7, 8, 9, 20) + _given(inputs, 4, 5)
    moved += (1 + of_weights) * (weights + biases) * inputs.element()
    return Work(2 * steps * weights * (1 + of_weights), moved)


def _cudnn(inputs: Inputs, first: int) -> tuple[int, int, int, int]:
    """Steps, weights, biases, and outputs of a step; the arguments of the layers' form begin at `first`.

    Of form, as the list of weights has no shapes where it is long.
    """
    mode, hidden, projected, layers = (inputs.value(first + place) for place in range(4))
    directions = 2 if inputs.value(first + 7) else 1
    *steps, width = inputs.shapes[0]
    out = projected or hidden
    widths = [width, *[directions * out] * (layers - 1)]
    weights = directions * sum(GATES[mode] * hidden * (each + out) + projected * hidden for each in widths)
    has_biases = inputs.value(2) >= 4  # weights of a layer: two, two biases, a projection
    return prod(steps), weights, has_biases * 2 * GATES[mode] * hidden * directions * layers, directions * out


def _given(inputs: Inputs, *places: int) -> int:
    """Bytes of those that are tensors, not None."""
    return sum(inputs.size(place) for place in places if inputs.types[place])


def _ctc(inputs: Inputs) -> Work:
    """The forward recursion (Graves et al., ICML 2006, §4.1) over log-probabilities (T, B, C).

    An utterance of T frames and L characters has 2 L + 1 states, blanks between and around the characters, whose α is a
    log of a sum of three at each frame after the first: `LOG_SUM` (2 L + 1) (T − 1). Written are α (B, T, 2 L + 1) and
    the losses. Where lengths were not written down, as those in tensors or of more than 30 utterances are not, all
    count as the longest.
    """
    utterances, (frames, batch, _) = _utterances(inputs, first=0), inputs.shapes[0]
    alpha = batch * frames * (2 * max(length for _, length in utterances) + 1)
    return Work(_recursion(utterances), inputs.size(0) + inputs.size(1) + (alpha + batch) * inputs.element())


def _ctc_backward(inputs: Inputs) -> Work:
    """The backward recursion, β, as long as the forward one, and of both the gradient (T, B, C)."""
    utterances = _utterances(inputs, first=1)
    of_states = sum(frames * (2 * length + 1) for frames, length in utterances)
    of_characters = inputs.shapes[1][2] * sum(frames for frames, _ in utterances)
    flop = _recursion(utterances) + STATE_GRADIENT * of_states + CHARACTER_GRADIENT * of_characters
    return Work(flop, sum(map(inputs.size, inputs.tensors())) + inputs.size(1))


def _recursion(utterances: list[tuple[int, int]]) -> int:
    return LOG_SUM * sum((2 * length + 1) * max(0, frames - 1) for frames, length in utterances)


def _utterances(inputs: Inputs, first: int) -> list[tuple[int, int]]:
    """Frames and characters of each; log-probabilities, targets, and both lengths stand from `first` on."""
    (most_frames, batch, _), of_targets = inputs.shapes[first : first + 2]
    longest = of_targets[1] if len(of_targets) == 2 else of_targets[0] // batch  # (B, L), or one after another
    known = [
        inputs.value(place) if inputs.values[place] else [most] * batch
        for place, most in ((first + 2, most_frames), (first + 3, longest))
    ]
    return list(zip(*known, strict=True))


def _both(formula: Formula, *names: str, prefix: str = "aten::") -> dict[str, Formula]:
    """The operators of these names, and those that write to their first argument."""
    return {f"{prefix}{name}{place}": formula for name in names for place in ("", "_")}


def _aten(formula: Formula, *names: str) -> dict[str, Formula]:
    return {f"aten::{name}": formula for name in names}


def _is_summed(inputs: Inputs) -> bool:
    return inputs.value(4) != 0


# with gradient g, sums of g (1) and of g (x − μ) (3); then (g − a − (x − μ) b) c (5), or g c where μ was fixed:
# Ioffe & Szegedy, ICML 2015, §3, the terms that do not depend on the sample gathered in a, b and c
BATCH_NORM_BACKWARD, FIXED_BATCH_NORM_BACKWARD = 1 + 3 + 5, 1 + 3 + 1

FORMULAS: dict[str, Formula] = {
    **_aten(_product(0), "mm", "bmm"),
    **_aten(_product(1), "addmm", "baddbmm"),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::mkldnn_rnn_layer": _onednn_layer,
    "aten::mkldnn_rnn_layer_backward": _onednn_layer_backward,
    "aten::_cudnn_rnn": _cudnn_layers,
    "aten::_cudnn_rnn_backward": _cudnn_layers_backward,
    "aten::_ctc_loss": _ctc,
    "aten::_ctc_loss_backward": _ctc_backward,
    # max(x, 0) − x y + log(1 + exp(−|x|)), 7 with the absolute value, and 1 to add it up where it is reduced
    "aten::binary_cross_entropy_with_logits": _each(
        lambda inputs: 7 + _is_summed(inputs), written=lambda inputs: not _is_summed(inputs)
    ),
    **_aten(_embedding_bag, "_embedding_bag", "_embedding_bag_forward_only"),
    "aten::_embedding_bag_backward": _table_gradient(6, lambda inputs: inputs.value(9)),
    "aten::_embedding_bag_dense_backward": _table_gradient(5),
    "aten::_embedding_bag_sparse_backward": _table_gradient(5, True),
    "aten::embedding_dense_backward": _table_gradient(2),
    "aten::embedding": _picked(1, lambda inputs: prod(inputs.shapes[1]) * inputs.shapes[0][1]),
    "aten::index_select": _picked(
        2, lambda inputs: prod(inputs.shapes[0]) // inputs.shapes[0][inputs.value(1)] * prod(inputs.shapes[2])
    ),
    "aten::gather": _picked(2, lambda inputs: prod(inputs.shapes[2])),
    **_both(_picked(2, lambda inputs: prod(inputs.shapes[3])), "index_copy"),
    **_both(_picked(2, lambda inputs: prod(inputs.shapes[3]), adds=1), "index_add", "scatter_add"),
    # x a + b, and while training a mean (1) and a variance (subtract, multiply, add) of each channel before
    "aten::native_batch_norm": _each(lambda inputs: 6 if inputs.value(5) else 2),
    "aten::cudnn_batch_norm": _each(lambda inputs: 6 if inputs.value(5) else 2),
    "aten::native_batch_norm_backward": _each(
        lambda inputs: BATCH_NORM_BACKWARD if inputs.value(7) else FIXED_BATCH_NORM_BACKWARD
    ),
    "aten::cudnn_batch_norm_backward": _each(BATCH_NORM_BACKWARD),  # which only training has
    # x − max, exp, the sum and its quotient, with the maximum 5; of log_softmax x − max − log of the sum
    **_aten(_each(5), "_softmax", "_log_softmax"),
    # (g − sum of g y) y; g − exp(y) times the sum of g
    **_aten(_each(4), "_softmax_backward_data", "_log_softmax_backward_data"),
    # times the mask, which is written, too, times 1 / (1 − p)
    "aten::native_dropout": _each(2, more=ELEMENT_BYTES["bool"]),
    "aten::native_dropout_backward": _broadcast(2),
    # values and their places are written; comparisons are no arithmetic
    "aten::sort": _each(0, more=ELEMENT_BYTES["long"]),
    "aten::cat": lambda inputs: Work(0, 2 * inputs.elements_of_list() * LIST_ELEMENT_BYTES),
    # to the first argument, from the second; bits of a random generator are no floating-point arithmetic
    **_aten(_each(0, written=0), "copy_", "fill_", "zero_", "random_", "bernoulli_", "uniform_", "normal_"),
    # what is written is little beside what is read
    **_aten(_each(1, written=0), "sum", "mean"),
    "aten::linalg_vector_norm": _each(2, written=0),
    # exponentials and roots count as one, as a divide does: what they really cost is the processor's affair
    **_both(_broadcast(1), "add", "sub", "mul", "div", "relu", "neg", "abs", "sqrt", "rsqrt", "reciprocal", "pow",
            "square", "clamp", "clamp_min", "maximum", "minimum", "sigmoid", "tanh", "exp", "log", "log1p"),
    **_both(_broadcast(3), "addcmul", "addcdiv", "lerp"),
    **_both(_broadcast(0), "masked_fill"),
    "aten::where": _broadcast(0),
    **_aten(_broadcast(1, element=ELEMENT_BYTES["bool"]), "eq", "ne", "lt", "le", "gt", "ge"),
    "aten::threshold_backward": _broadcast(1),
    **_aten(_broadcast(3), "sigmoid_backward", "tanh_backward"),
    **_both(_of_lists(1), "add", "sub", "mul", "div", "neg", "abs", "sqrt", "reciprocal", "pow", "clamp_min", "maximum",
            prefix="aten::_foreach_"),
    **_both(_of_lists(3), "addcmul", "addcdiv", "lerp", prefix="aten::_foreach_"),
    "aten::_foreach_norm": _of_lists(2, written=False),
    "aten::_foreach_zero_": _of_lists(0, read=False),
    "aten::_fused_adam_": _adam(decay=2),  # g + λ p
    "aten::_fused_adamw_": _adam(decay=1),  # p times a number
    # Duchi et al., JMLR 2011, figure 1, diagonal: s + g g: 2; p − a g / (√s + ε): 5; weight decay: 2
    "aten::_fused_adagrad_": _update(lambda inputs: 7 + 2 * (inputs.value(6) != 0), 1),
    # p − a g: 2; weight decay, momentum and what Nesterov adds to it: 2 each
    "aten::_fused_sgd_": _update(
        lambda inputs: 2 * (1 + (inputs.value(3) != 0) + (inputs.value(4) != 0) + inputs.value(7)),
        lambda inputs: inputs.value(4) != 0,
    ),
}  # fmt: skip
"""By operator. Inside of each, what it calls is not counted again."""
