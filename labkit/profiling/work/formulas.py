"""Formulas of the work of operators, by the shapes of their inputs: what `labkit.profiling.work.operators` counts with.

Those that move much or compute much in the steps of this course's models. Without one, because there is nothing to
count by shapes: views (`slice`, `transpose`, `unsafe_split`, …), `empty`, nodes of autograd (`MulBackward0`,
`_MaskedRelu`, …) and calls such as `aten::gru` that are their parts, `aten::index` and `aten::index_put_`, of whose
indices the profiler writes down no shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from labkit.profiling.work import sequences
from labkit.profiling.work.inputs import ELEMENT_BYTES, LIST, LIST_ELEMENT_BYTES, Inputs, Work

Formula = Callable[[Inputs], Work]
Count = int | Callable[[Inputs], int]
"""A number, or one that depends on what the operator was called with"""


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
    x, weight, transposed, groups = *inputs.shapes[:2], inputs.value(6), inputs.value(8)
    stride, padding, dilation, extra = (inputs.value(place) for place in (3, 4, 5, 7))
    out = [x[0], weight[1] * groups if transposed else weight[0]]
    for place, (size, kernel) in enumerate(zip(x[2:], weight[2:], strict=True)):
        reach = dilation[place] * (kernel - 1)
        if transposed:
            out.append((size - 1) * stride[place] - 2 * padding[place] + reach + extra[place] + 1)
        else:
            out.append((size + 2 * padding[place] - reach - 1) // stride[place] + 1)
    read = sum(inputs.size(place) for place in range(3) if inputs.shapes[place])
    return Work(_convolution_flop(x, weight, out, transposed), read + prod(out) * inputs.element())


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
    "aten::mkldnn_rnn_layer": sequences.onednn_layer,
    "aten::mkldnn_rnn_layer_backward": sequences.onednn_layer_backward,
    "aten::_cudnn_rnn": sequences.cudnn_layers,
    "aten::_cudnn_rnn_backward": sequences.cudnn_layers_backward,
    "aten::_thnn_fused_lstm_cell": sequences.fused_lstm_cell,
    "aten::_thnn_fused_gru_cell": sequences.fused_gru_cell,
    "aten::_ctc_loss": sequences.ctc,
    "aten::_ctc_loss_backward": sequences.ctc_backward,
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
