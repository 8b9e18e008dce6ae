"""The arithmetic and the least memory traffic of operators, from the shapes of their inputs: the one place of formulas.

`flop` counts a multiplication and an addition as two, as `torch.utils.flop_counter` does, which checks the products.
`bytes` is the least that must be moved: each input read and each output written once, as if caches were unlimited.

These operators have no formula: views, `empty`, nodes of autograd, calls that only call others (`aten::gru`),
`aten::index` (the profiler records no shapes of its indices), and CTC (its work depends on the utterances' lengths).
"""

import contextlib
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

LIST = "TensorList"
"""Kineto's type of a list of tensors, counted as a list of float, which parameters are."""
ELEMENT_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8, "int": 4, "short int": 2,
    "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1, LIST: 4,
}  # fmt: skip
"""Bytes of a tensor's element, by the C++ type that the profiler records."""


class Inputs(NamedTuple):
    """The arguments of one call of an operator, with one entry per argument."""

    shapes: tuple = ()
    """Sizes of a tensor; a tuple of sizes for a list of tensors; () for anything else"""
    types: tuple[str, ...] = ()
    values: tuple = ()
    """Number, truth value or tuple; text for a tensor ("") and for whatever is none of these"""

    def elements(self, place: int) -> int:
        shape = self.shapes[place]
        return sum(map(prod, shape)) if self.types[place] == LIST else prod(shape)

    def element(self, place: int = 0) -> int:
        """Bytes of one element; a KeyError for what is no tensor, or for an unknown type."""
        return ELEMENT_BYTES[self.types[place]]

    def size(self, *places: int) -> int:
        """Bytes of tensors or lists of them."""
        return sum(self.elements(place) * self.element(place) for place in places)

    def tensors(self) -> list[int]:
        return [place for place, kind in enumerate(self.types) if kind in ELEMENT_BYTES]

    def value(self, place: int) -> Any:
        """The value of an argument; a ValueError where only text is known."""
        value = self.values[place]
        if isinstance(value, str):
            raise ValueError(value)
        return value


class Work(NamedTuple):
    """The least that one call has to do."""

    flop: int
    bytes: int


Formula = Callable[[Inputs], Work]


def _each(flop: int, written: int = 1, more: int = 0) -> Formula:
    """`flop` per element of the result: of tensors that are broadcast to each other, or of a list.

    All of them are read. `written` results, of the widest type among them, and `more` bytes per element are written.
    """

    def formula(inputs: Inputs) -> Work:
        read = inputs.tensors()
        count = inputs.elements(0)
        if inputs.types[0] != LIST:
            with contextlib.suppress(ValueError):  # the others are statistics of the first one's channels
                count = prod(np.broadcast_shapes(*(tuple(inputs.shapes[place]) for place in read)))
        if not read or not count:
            raise ValueError  # no tensor, or a list of more than 30, whose shapes the profiler does not record
        # a number, which has no dimensions, does not widen
        element = max((inputs.element(place) for place in read if inputs.shapes[place]), default=4)
        return Work(flop * count, inputs.size(*read) + (written * element + more) * count)

    return formula


def _product(left: int) -> Formula:
    """A (..., n, k) times B (..., k, m); whatever comes before the factors, a bias or a sum, is read as well."""

    def formula(inputs: Inputs) -> Work:
        *batch, n, k = inputs.shapes[left]
        *_, k_too, m = inputs.shapes[left + 1]
        if k != k_too:
            raise ValueError
        out = prod(batch) * n * m
        return Work(2 * out * k, inputs.size(*range(left + 2)) + out * inputs.element(left))

    return formula


def _convolution(inputs: Inputs) -> Work:
    import torch
    from torch.utils.flop_counter import conv_flop_count

    x, weight = inputs.shapes[:2]
    how = [inputs.value(place) for place in range(3, 9)]
    image, kernel = (torch.empty(shape, device="meta") for shape in (x, weight))  # no memory, and no arithmetic
    out = [*torch.convolution(image, kernel, None, *how).shape]
    read = inputs.size(*(place for place in range(3) if inputs.shapes[place]))
    return Work(conv_flop_count(x, weight, out, how[3]), read + prod(out) * inputs.element())


def _convolution_backward(inputs: Inputs) -> Work:
    """The gradient of the input, of the weight, or both: each costs as much as the convolution, grouped or not."""
    from torch.utils.flop_counter import conv_flop_count

    out, x, weight = inputs.shapes[:3]
    of_x, of_weight, _ = inputs.value(10)
    one = conv_flop_count(x, weight, out, inputs.value(7))
    written = of_x * inputs.size(1) + of_weight * inputs.size(2)
    return Work(one * (of_x + of_weight), inputs.size(0, 1, 2) + written)


def _recurrent(*weights: int, width: Callable[[Inputs], int] | None = None) -> Formula:
    """Layers over x (T, B, I), or (N, I) for packed sequences: each step is multiplied by all weights.

    The arithmetic of gates and cells is not counted (for an LSTM about 20 per step and element of its state); that of
    biases among the weights is. `width` is the width of the output. The backward pass has no `width`: there each
    factor takes one product for its gradient.
    """

    def formula(inputs: Inputs) -> Work:
        steps = prod(inputs.shapes[0][:-1])
        flop = 2 * steps * sum(map(inputs.elements, weights))
        read = inputs.size(*(place for place in inputs.tensors() if inputs.types[place] != LIST))
        if width is None:
            return Work(2 * flop, read + inputs.size(0, *weights))
        return Work(flop, read + steps * width(inputs) * inputs.element())

    return formula


def _embedding_bag(inputs: Inputs) -> Work:
    """Table (E, D), indices (N), offsets (B): N rows are read and summed to B rows."""
    (_, width), (lookups,), (bags,) = inputs.shapes[:3]
    moved = inputs.size(1, 2) + (lookups + bags) * width * inputs.element()
    return Work(max(0, lookups - bags) * width, moved)


def _table_gradient(rows: int, sparse: Callable[[Inputs], bool] = lambda inputs: False) -> Formula:
    """Gradient (..., D) and indices: added to the rows of the table's gradient; argument `rows` is their number.

    A dense gradient is written whole, including rows that stay zero. A sparse one's rows are summed by later operators.
    """

    def formula(inputs: Inputs) -> Work:
        width, is_sparse = inputs.shapes[0][-1], sparse(inputs)
        added = inputs.elements(1) * width
        written = added if is_sparse else inputs.value(rows) * width
        return Work(0 if is_sparse else added, inputs.size(0, 1) + written * inputs.element())

    return formula


def _picked(index: int, count: Callable[[Inputs], int], adds: int = 0) -> Formula:
    """`count` numbers are read at the indices and written, or added to what is there; nothing else is touched."""
    return lambda inputs: Work(adds * count(inputs), inputs.size(index) + (2 + adds) * count(inputs) * inputs.element())


def _update(flop: int, of_state: int = 0) -> Formula:
    """Lists of parameters, gradients and states: all are read, and all but the gradients are written."""

    def formula(inputs: Inputs) -> Work:
        count = inputs.elements(0)
        lists = sum(kind == LIST and inputs.elements(place) == count for place, kind in enumerate(inputs.types))
        if not count:
            raise ValueError
        return Work((flop + of_state * (lists - 2)) * count, (2 * lists - 1) * count * inputs.element())

    return formula


def _all(formula: Formula, names: str) -> dict[str, Formula]:
    return dict.fromkeys(names.split(), formula)


FORMULAS: dict[str, Formula] = {
    **_all(_product(0), "mm bmm"),
    **_all(_product(1), "addmm baddbmm"),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "mkldnn_rnn_layer": _recurrent(1, 2, width=lambda inputs: inputs.shapes[2][1]),
    "mkldnn_rnn_layer_backward": _recurrent(1, 2),
    # all weights in one buffer; the state's width, in one direction or two
    "_cudnn_rnn": _recurrent(3, width=lambda inputs: inputs.shapes[4][-1] * (1 + inputs.value(13))),
    "_cudnn_rnn_backward": _recurrent(3),
    **_all(_embedding_bag, "_embedding_bag _embedding_bag_forward_only"),
    "_embedding_bag_backward": _table_gradient(6, lambda inputs: inputs.value(9)),
    "_embedding_bag_dense_backward": _table_gradient(5),
    "_embedding_bag_sparse_backward": _table_gradient(5, lambda inputs: True),
    "embedding_dense_backward": _table_gradient(2),
    "embedding": _picked(1, lambda inputs: inputs.elements(1) * inputs.shapes[0][1]),
    "index_select": _picked(2, lambda inputs: inputs.elements(0) // inputs.shapes[0][inputs.value(1)]
                            * inputs.elements(2)),
    "gather": _picked(2, lambda inputs: inputs.elements(2)),
    "index_copy": _picked(2, lambda inputs: inputs.elements(3)),
    **_all(_picked(2, lambda inputs: inputs.elements(3), adds=1), "index_add scatter_add"),
    # exponentials and roots count as one, as a division does: their real cost depends on the processor
    **_all(_each(1), "add sub mul div relu neg abs sqrt rsqrt reciprocal pow square clamp clamp_min maximum minimum "
           "sigmoid tanh exp log log1p threshold_backward"),
    **_all(_each(3), "addcmul addcdiv lerp sigmoid_backward tanh_backward"),
    **_all(_each(0), "cat masked_fill where"),
    **_all(_each(1, written=0, more=ELEMENT_BYTES["bool"]), "eq ne lt le gt ge"),
    # from the second argument to the first; drawing random bits is not floating-point arithmetic
    **_all(_each(0, written=0), "copy fill zero random bernoulli uniform normal"),
    # little is written compared with what is read
    **_all(_each(1, written=0), "sum mean"),
    **_all(_each(2, written=0), "linalg_vector_norm norm"),
    # max(x, 0) − x y + log(1 + exp(−|x|)), 7 with the absolute value, and 1 to add it up
    "binary_cross_entropy_with_logits": _each(8, written=0),
    # while training a mean (1) and a variance (subtract, multiply, add) of each channel, and x a + b
    **_all(_each(6), "native_batch_norm cudnn_batch_norm"),
    # with gradient g, sums of g (1) and of g (x − μ) (3), then (g − a − (x − μ) b) c (5): Ioffe & Szegedy, ICML 2015,
    # §3, the terms that do not depend on the sample gathered in a, b and c
    **_all(_each(9), "native_batch_norm_backward cudnn_batch_norm_backward"),
    # x − max, exp, the sum and its quotient, with the maximum 5; of log_softmax x − max − log of the sum
    **_all(_each(5), "_softmax _log_softmax"),
    # (g − sum of g y) y; g − exp(y) times the sum of g
    **_all(_each(4), "_softmax_backward_data _log_softmax_backward_data"),
    # times the mask, which is written as well, times 1 / (1 − p)
    "native_dropout": _each(2, more=ELEMENT_BYTES["bool"]),
    "native_dropout_backward": _each(2),
    # values and their places are written; comparisons are not arithmetic
    "sort": _each(0, more=ELEMENT_BYTES["long"]),
    # Kingma & Ba, ICLR 2015, algorithm 1, as torch arranges it: m + (1 − β₁) (g − m): 3; β₂ v + (1 − β₂) g g: 4;
    # √v / a + ε: 3; p − b m / that: 3; with decoupled weight decay 1 more
    "_fused_adam": _update(13),
    "_fused_adamw": _update(14),
    # Duchi et al., JMLR 2011, figure 1, diagonal: s + g g: 2; p − a g / (√s + ε): 5
    "_fused_adagrad": _update(7),
    # p − a g: 2; momentum 2
    "_fused_sgd": _update(2, of_state=2),
}  # fmt: skip
"""By operator, in place or not, of tensors or of lists of them. What an operator calls is not counted again."""


def operator_work(name: str, inputs: Inputs) -> Work | None:
    """The work of a call; None if there is no formula for the operator or for these inputs.

    >>> operator_work("aten::mm", Inputs(((2, 3), (3, 5)), ("float", "float"), ("", "")))
    Work(flop=60, bytes=124)
    """
    own = name.removeprefix("aten::")
    formula = FORMULAS.get(own.removeprefix("_foreach_").removesuffix("_"))
    if formula is None or own == name:
        return None
    try:
        return formula(inputs)
    except (IndexError, KeyError, ValueError, TypeError, ZeroDivisionError, RuntimeError):
        return None  # another overload, or a type that is not counted
