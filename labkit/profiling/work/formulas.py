"""Formulas of the work of operators, by the shapes of their inputs: what `labkit.profiling.work.operators` counts with.

Those that move much or compute much in the steps of this course's models. Without one, because there is nothing to
count by shapes: views (`slice`, `transpose`, `unsafe_split`, …), `empty`, nodes of autograd (`MulBackward0`,
`_MaskedRelu`, …) and calls such as `aten::gru` that are their parts, `aten::index` and `aten::index_put_`, of whose
indices the profiler writes down no shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from labkit.profiling.work import sequences
from labkit.profiling.work.inputs import ELEMENT_BYTES, LIST, LIST_ELEMENT_BYTES, Inputs, Work

Formula = Callable[[Inputs], Work]


def _product(inputs: Inputs, left: int, right: int) -> Work:
    """A (..., n, k) by B (..., k, m); what comes before the factors, a bias or a sum, is read, too."""
    *batch, n, k = inputs.shapes[left]
    *_, k_too, m = inputs.shapes[right]
    if k != k_too:
        raise ValueError
    written = prod(batch) * n * m
    read = sum(inputs.size(place) for place in range(right + 1))
    return Work(2 * prod(batch) * n * k * m, read + written * inputs.element(left))


def _convolution(inputs: Inputs) -> Work:
    x, weight = inputs.shapes[0], inputs.shapes[1]
    out = _convolved(x, weight, inputs, first=3)
    read = sum(inputs.size(place) for place in range(3) if inputs.shapes[place])
    return Work(_convolution_flop(x, weight, out, inputs.value(6)), read + prod(out) * inputs.element())


def _convolution_backward(inputs: Inputs) -> Work:
    """The gradient of the input, of the weight, or both: each costs what the convolution does."""
    out, x, weight = inputs.shapes[:3]
    wanted = inputs.value(10)
    one = _convolution_flop(x, weight, out, inputs.value(7))
    read = sum(inputs.size(place) for place in range(3))
    written = sum(inputs.size(place) for place, asked in ((1, wanted[0]), (2, wanted[1])) if asked)
    return Work(one * (wanted[0] + wanted[1]), read + written)


def _convolution_flop(x: Sequence[int], weight: Sequence[int], out: Sequence[int], transposed: bool) -> int:
    # weight (C_out, C_in / groups, *kernel), or (C_in, C_out / groups, *kernel) where it is transposed
    spatial = x[2:] if transposed else out[2:]
    return 2 * x[0] * prod(spatial) * prod(weight)


def _convolved(x: Sequence[int], weight: Sequence[int], inputs: Inputs, first: int) -> list[int]:
    """The shape of the output; stride, padding, dilation, transposed, output padding and groups begin at `first`."""
    stride, padding, dilation, transposed, extra, groups = (inputs.value(place) for place in range(first, first + 6))
    out = []
    for place, (size, kernel) in enumerate(zip(x[2:], weight[2:], strict=True)):
        reach = dilation[place] * (kernel - 1)
        if transposed:
            out.append((size - 1) * stride[place] - 2 * padding[place] + reach + extra[place] + 1)
        else:
            out.append((size + 2 * padding[place] - reach - 1) // stride[place] + 1)
    channels = weight[1] * groups if transposed else weight[0]
    return [x[0], channels, *out]


def _embedding_bag(inputs: Inputs) -> Work:
    """Table (E, D), indices (N), offsets (B): N rows are read and added up to B."""
    (_, width), (lookups,), (bags,) = inputs.shapes[:3]
    moved = inputs.size(1) + inputs.size(2) + (lookups + bags) * width * inputs.element()
    return Work(max(0, lookups - bags) * width, moved)


def _lookup(inputs: Inputs) -> Work:
    """Rows of a table (E, D), as many as there are indices."""
    _, width = inputs.shapes[0]
    return Work(0, inputs.size(1) + 2 * prod(inputs.shapes[1]) * width * inputs.element())


def _embedding_bag_backward(inputs: Inputs) -> Work:
    """Gradient (B, D), indices (N), offsets: added to the rows of the table's, or N rows of a sparse one."""
    *_, width = inputs.shapes[0]
    (lookups,) = inputs.shapes[1]
    return _table_gradient(inputs, lookups * width, rows=inputs.value(6), is_sparse=inputs.value(9))


def _embedding_bag_dense_backward(inputs: Inputs) -> Work:
    *_, width = inputs.shapes[0]
    return _table_gradient(inputs, prod(inputs.shapes[1]) * width, rows=inputs.value(5), is_sparse=False)


def _embedding_bag_sparse_backward(inputs: Inputs) -> Work:
    *_, width = inputs.shapes[0]
    return _table_gradient(inputs, prod(inputs.shapes[1]) * width, rows=inputs.value(5), is_sparse=True)


def _embedding_dense_backward(inputs: Inputs) -> Work:
    """Gradient (N, D), indices (N)."""
    return _table_gradient(inputs, prod(inputs.shapes[0]), rows=inputs.value(2), is_sparse=False)


def _table_gradient(inputs: Inputs, added: int, rows: int, is_sparse: bool) -> Work:
    """Of a dense one all rows are written, those that stay zero, too; a sparse one's are added up later by others."""
    width = inputs.shapes[0][-1]
    written = added if is_sparse else rows * width
    return Work(0 if is_sparse else added, inputs.size(0) + inputs.size(1) + written * inputs.element())


def _elementwise(flop_each: int) -> Formula:
    def formula(inputs: Inputs) -> Work:
        tensors = inputs.tensors()
        out = _broadcast(inputs, tensors)
        # of the widest type; numbers, which have no dimensions, do not widen
        element = max((inputs.element(place) for place in tensors if inputs.shapes[place]), default=4)
        return Work(flop_each * out, sum(map(inputs.size, tensors)) + out * element)

    return formula


def _comparison(inputs: Inputs) -> Work:
    tensors = inputs.tensors()
    out = _broadcast(inputs, tensors)
    return Work(out, sum(map(inputs.size, tensors)) + out * ELEMENT_BYTES["bool"])


def _broadcast(inputs: Inputs, tensors: Sequence[int]) -> int:
    """Elements of what is made of tensors that are broadcast."""
    if not tensors:
        raise ValueError
    return prod(np.broadcast_shapes(*(tuple(inputs.shapes[place]) for place in tensors)))


def _reduction(flop_each: int) -> Formula:
    # what is written is little beside it
    return lambda inputs: Work(flop_each * prod(inputs.shapes[0]), inputs.size(0))


def _along(flop_each: int) -> Formula:
    """Tensors of one shape, and one more of it that is written."""

    def formula(inputs: Inputs) -> Work:
        return Work(flop_each * prod(inputs.shapes[0]), sum(map(inputs.size, inputs.tensors())) + inputs.size(0))

    return formula


def _batch_norm(inputs: Inputs) -> Work:
    """x a + b, and while training a mean (1) and a variance (subtract, multiply, add) of each channel before."""
    each = 2 + (1 + 3 if inputs.value(5) else 0)
    return Work(each * prod(inputs.shapes[0]), sum(map(inputs.size, inputs.tensors())) + inputs.size(0))


def _batch_norm_backward(inputs: Inputs, *, was_training: bool = True) -> Work:
    """With gradient g, sums of g (1) and of g (x − μ) (3); then (g − a − (x − μ) b) c (5), or g c where μ was fixed.

    Source: Ioffe & Szegedy, ICML 2015, §3, the terms that do not depend on the sample gathered in a, b and c.
    """
    each = 1 + 3 + (5 if was_training else 1)
    return Work(each * prod(inputs.shapes[0]), sum(map(inputs.size, inputs.tensors())) + inputs.size(0))


def _cross_entropy_of_logits(inputs: Inputs) -> Work:
    """max(x, 0) − x y + log(1 + exp(−|x|)), 7 with the absolute value, and 1 to add it up where it is reduced."""
    is_reduced = inputs.value(4) != 0
    written = 0 if is_reduced else inputs.size(0)
    count = prod(inputs.shapes[0])
    return Work((8 if is_reduced else 7) * count, sum(map(inputs.size, inputs.tensors())) + written)


def _copy(inputs: Inputs) -> Work:
    """To its first argument from its second."""
    return Work(0, inputs.size(0) + inputs.size(1))


def _write(inputs: Inputs) -> Work:
    """Only written; bits of a random generator are no floating-point arithmetic."""
    return Work(0, inputs.size(0))


def _concatenate(inputs: Inputs) -> Work:
    return Work(0, 2 * inputs.elements_of_list() * LIST_ELEMENT_BYTES)


def _sort(inputs: Inputs) -> Work:
    """Values and their places are written; comparisons are no arithmetic."""
    return Work(0, 2 * inputs.size(0) + prod(inputs.shapes[0]) * ELEMENT_BYTES["long"])


def _select(inputs: Inputs) -> Work:
    """Of a tensor, a dimension and indices: what is selected is read and written, and no more."""
    shape = list(inputs.shapes[0])
    shape[inputs.value(1)] = prod(inputs.shapes[2])
    return Work(0, inputs.size(2) + 2 * prod(shape) * inputs.element())


def _gather(inputs: Inputs) -> Work:
    return Work(0, inputs.size(2) + 2 * prod(inputs.shapes[2]) * inputs.element())


def _put(adds: bool) -> Formula:
    """Of a tensor, a dimension, indices and a source, which is copied or added to the places of the indices."""

    def formula(inputs: Inputs) -> Work:
        count = prod(inputs.shapes[3])
        return Work(count if adds else 0, inputs.size(2) + (3 if adds else 2) * count * inputs.element(3))

    return formula


def _dropout(inputs: Inputs) -> Work:
    """Times the mask, which is written, too, times 1 / (1 − p)."""
    count = prod(inputs.shapes[0])
    return Work(2 * count, 2 * inputs.size(0) + count * ELEMENT_BYTES["bool"])


def _of_lists(flop_each: int, *, read: bool = True, written: bool = True) -> Formula:
    """An operator on each tensor of lists of like shapes, of which the first, or a new one, is written."""

    def formula(inputs: Inputs) -> Work:
        first = inputs.elements_of_list()
        lists = [place for place, kind in enumerate(inputs.types) if kind == LIST]
        elements = read * sum(map(inputs.elements_of_list, lists)) + written * first
        return Work(flop_each * first, elements * LIST_ELEMENT_BYTES)

    return formula


def _updated(inputs: Inputs, flop_each: int, states: int) -> Work:
    """Parameters and their states are read and written, gradients read."""
    elements = inputs.elements_of_list()
    return Work(flop_each * elements, elements * LIST_ELEMENT_BYTES * (3 + 2 * states))


def _adam(decay: int) -> Formula:
    """Kingma & Ba, ICLR 2015, algorithm 1, as torch arranges it.

    m + (1 − β₁) (g − m): 3; β₂ v + (1 − β₂) g g: 4; √v / a + ε: 3; p − b m / that: 3. With a largest v: 1; with
    weight decay `decay` more.
    """

    def formula(inputs: Inputs) -> Work:
        decays, keeps_largest = inputs.value(9) != 0, inputs.value(11)
        return _updated(inputs, 13 + decays * decay + keeps_largest, states=2 + keeps_largest)

    return formula


def _adagrad(inputs: Inputs) -> Work:
    """Duchi et al., JMLR 2011, figure 1, diagonal: s + g g: 2; p − a g / (√s + ε): 5; weight decay: 2."""
    return _updated(inputs, 7 + 2 * (inputs.value(6) != 0), states=1)


def _sgd(inputs: Inputs) -> Work:
    """p − a g: 2; weight decay, momentum and what Nesterov adds to it: 2 each."""
    decay, momentum, nesterov = inputs.value(3), inputs.value(4), inputs.value(7)
    return _updated(inputs, 2 * (1 + (decay != 0) + (momentum != 0) + nesterov), states=int(momentum != 0))


def _both(formula: Formula, *names: str, prefix: str = "aten::") -> dict[str, Formula]:
    """The operators of these names, and those that write to their first argument."""
    return {f"{prefix}{name}{place}": formula for name in names for place in ("", "_")}


FORMULAS: dict[str, Formula] = {
    "aten::mm": lambda inputs: _product(inputs, 0, 1),
    "aten::bmm": lambda inputs: _product(inputs, 0, 1),
    "aten::addmm": lambda inputs: _product(inputs, 1, 2),
    "aten::baddbmm": lambda inputs: _product(inputs, 1, 2),
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
    "aten::binary_cross_entropy_with_logits": _cross_entropy_of_logits,
    "aten::_embedding_bag": _embedding_bag,
    "aten::_embedding_bag_forward_only": _embedding_bag,
    "aten::_embedding_bag_backward": _embedding_bag_backward,
    "aten::_embedding_bag_dense_backward": _embedding_bag_dense_backward,
    "aten::_embedding_bag_sparse_backward": _embedding_bag_sparse_backward,
    "aten::embedding": _lookup,
    "aten::embedding_dense_backward": _embedding_dense_backward,
    "aten::native_batch_norm": _batch_norm,
    "aten::native_batch_norm_backward": lambda inputs: _batch_norm_backward(inputs, was_training=inputs.value(7)),
    "aten::cudnn_batch_norm": _batch_norm,
    "aten::cudnn_batch_norm_backward": _batch_norm_backward,  # which only training has
    # x − max, exp, the sum and its quotient, with the maximum 5; of log_softmax x − max − log of the sum
    "aten::_softmax": _along(5),
    "aten::_log_softmax": _along(5),
    # (g − sum of g y) y; g − exp(y) times the sum of g
    "aten::_softmax_backward_data": _along(4),
    "aten::_log_softmax_backward_data": _along(4),
    "aten::native_dropout": _dropout,
    "aten::native_dropout_backward": _elementwise(2),
    "aten::copy_": _copy,
    "aten::cat": _concatenate,
    "aten::sort": _sort,
    "aten::index_select": _select,
    "aten::gather": _gather,
    **_both(_put(adds=False), "index_copy"),
    **_both(_put(adds=True), "index_add", "scatter_add"),
    **dict.fromkeys((f"aten::{name}_" for name in ("fill", "zero", "random", "bernoulli", "uniform", "normal")),
                    _write),
    "aten::sum": _reduction(1),
    "aten::mean": _reduction(1),
    "aten::linalg_vector_norm": _reduction(2),
    # exponentials and roots count as one, as a divide does: what they really cost is the processor's affair
    **_both(_elementwise(1), "add", "sub", "mul", "div", "relu", "neg", "abs", "sqrt", "rsqrt", "reciprocal", "pow",
            "square", "clamp", "clamp_min", "maximum", "minimum", "sigmoid", "tanh", "exp", "log", "log1p"),
    **_both(_elementwise(3), "addcmul", "addcdiv", "lerp"),
    **_both(_elementwise(0), "masked_fill"),
    "aten::where": _elementwise(0),
    **dict.fromkeys((f"aten::{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")), _comparison),
    "aten::threshold_backward": _elementwise(1),
    "aten::sigmoid_backward": _elementwise(3),
    "aten::tanh_backward": _elementwise(3),
    **_both(_of_lists(1), "add", "sub", "mul", "div", "neg", "abs", "sqrt", "reciprocal", "pow", "clamp_min", "maximum",
            prefix="aten::_foreach_"),
    **_both(_of_lists(3), "addcmul", "addcdiv", "lerp", prefix="aten::_foreach_"),
    "aten::_foreach_norm": _of_lists(2, written=False),
    "aten::_foreach_zero_": _of_lists(0, read=False),
    "aten::_fused_adam_": _adam(decay=2),  # g + λ p
    "aten::_fused_adamw_": _adam(decay=1),  # p times a number
    "aten::_fused_adagrad_": _adagrad,
    "aten::_fused_sgd_": _sgd,
}  # fmt: skip
"""By operator. Inside of each, what it calls is not counted again."""
