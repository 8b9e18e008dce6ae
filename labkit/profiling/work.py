"""How much arithmetic the operators of a trace did and how many bytes they had to move, by the shapes of their inputs.

`flop` counts a multiplication and an addition as two, as `torch.utils.flop_counter` does, which checks the products.
`bytes` is the least there is to move: each input read and each output written once, as if caches were boundless.

Operators without a formula have nothing to count by shapes: views, `empty`, nodes of autograd, calls that are their
parts (`aten::gru`), `aten::index`, of whose indices the profiler writes down no shapes, and CTC, whose work is in the
lengths of its utterances.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labkit.profiling.traces.device_time import launched_us
from labkit.profiling.traces.nesting import within

if TYPE_CHECKING:
    import pandas as pd

    from labkit.profiling.traces.trace import Trace

LIST = "TensorList"
"""What the profiler writes in place of the type of a list of tensors, which is taken as float, as parameters are."""
ELEMENT_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8, "int": 4, "short": 2,
    "signed char": 1, "unsigned char": 1, "bool": 1, LIST: 4,
}  # fmt: skip
"""Of a tensor's elements, by the C++ type that the profiler writes down."""


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

    def elements(self, place: int) -> int:
        """Of a tensor, or of all in a list."""
        shape = self.shapes[place]
        return sum(map(prod, shape)) if self.types[place] == LIST else prod(shape)

    def element(self, place: int = 0) -> int:
        """Bytes of an element; a KeyError where it is no tensor, or of a type that is not known."""
        return ELEMENT_BYTES[self.types[place]]

    def size(self, *places: int) -> int:
        """Bytes of tensors."""
        return sum(self.elements(place) * self.element(place) for place in places)

    def tensors(self) -> list[int]:
        """The places where a tensor or a list of them is."""
        return [place for place, kind in enumerate(self.types) if kind in ELEMENT_BYTES]

    def value(self, place: int) -> Any:
        """A number, a truth value or a list of them."""
        return ast.literal_eval(self.values[place])


Formula = Callable[[Inputs], Work]


def _each(flop: int, written: int = 1, more: int = 0) -> Formula:
    """So much arithmetic for each element of what comes of the tensors, broadcast to each other, or of a list.

    All of them are read; `written` results, of the widest type among them, and `more` bytes an element are written.
    """

    def formula(inputs: Inputs) -> Work:
        read = inputs.tensors()
        if inputs.types[0] == LIST:
            count, element = inputs.elements(0), inputs.element(0)
        else:
            count = _broadcast([tuple(inputs.shapes[place]) for place in read])
            # a number, which has no dimensions, does not widen
            element = max((inputs.element(place) for place in read if inputs.shapes[place]), default=4)
        if not read or not count:
            raise ValueError  # no tensor, or a list of more than 30, of which the profiler writes no shapes
        return Work(flop * count, inputs.size(*read) + (written * element + more) * count)

    return formula


def _broadcast(shapes: list[tuple[int, ...]]) -> int:
    try:
        return prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return prod(shapes[0])  # the others are statistics of its channels


def _product(left: int) -> Formula:
    """A (..., n, k) by B (..., k, m); what comes before the factors, a bias or a sum, is read, too."""

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

    x, weight = inputs.shapes[:2]
    how = [inputs.value(place) for place in range(3, 9)]
    sizes = [torch.empty(shape, device="meta") for shape in (x, weight)]  # no memory, and no arithmetic
    out = torch.convolution(*sizes, None, *how).shape
    read = inputs.size(*(place for place in range(3) if inputs.shapes[place]))
    return Work(_convolution_flop(x, weight, out, how[3]), read + prod(out) * inputs.element())


def _convolution_backward(inputs: Inputs) -> Work:
    """The gradient of the input, of the weight, or both: each costs what the convolution does."""
    out, x, weight = inputs.shapes[:3]
    of_x, of_weight, _ = inputs.value(10)
    one = _convolution_flop(x, weight, out, inputs.value(7))
    written = of_x * inputs.size(1) + of_weight * inputs.size(2)
    return Work(one * (of_x + of_weight), inputs.size(0, 1, 2) + written)


def _convolution_flop(x: list[int], weight: list[int], out: list[int], transposed: bool) -> int:
    # weight (C_out, C_in / groups, *kernel), or (C_in, C_out / groups, *kernel) where it is transposed
    return 2 * x[0] * prod((x if transposed else out)[2:]) * prod(weight)


def _recurrent(*weights: int, width: Callable[[Inputs], int] | None = None) -> Formula:
    """Layers over x (T, B, I), or (N, I) where sequences are packed: each step is multiplied by all weights.

    What gates and cells add is not counted, of an LSTM some 20 a step for each element of its state; biases among the
    weights are. `width` is that of the output; backward, without it, each factor has a product for its gradient.
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
    """Table (E, D), indices (N), offsets (B): N rows are read and added up to B."""
    (_, width), (lookups,), (bags,) = inputs.shapes[:3]
    moved = inputs.size(1, 2) + (lookups + bags) * width * inputs.element()
    return Work(max(0, lookups - bags) * width, moved)


def _table_gradient(rows: int, sparse: Callable[[Inputs], bool] = lambda inputs: False) -> Formula:
    """Gradient (..., D) and indices: added to the rows of the table's, of which there are as many as an argument says.

    Of a dense one all rows are written, those that stay zero, too; a sparse one's are added up later by others.
    """

    def formula(inputs: Inputs) -> Work:
        width, is_sparse = inputs.shapes[0][-1], sparse(inputs)
        added = inputs.elements(1) * width
        written = added if is_sparse else inputs.value(rows) * width
        return Work(0 if is_sparse else added, inputs.size(0, 1) + written * inputs.element())

    return formula


def _picked(index: int, count: Callable[[Inputs], int], adds: int = 0) -> Formula:
    """So many numbers are read at the places of indices and written, or added to what is there, and no more."""
    return lambda inputs: Work(adds * count(inputs), inputs.size(index) + (2 + adds) * count(inputs) * inputs.element())


def _update(flop: int, of_state: int = 0) -> Formula:
    """Lists of parameters, gradients and states: all are read, and all but the gradients written."""

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
    "index_select": _picked(
        2, lambda inputs: inputs.elements(0) // inputs.shapes[0][inputs.value(1)] * inputs.elements(2)
    ),
    "gather": _picked(2, lambda inputs: inputs.elements(2)),
    "index_copy": _picked(2, lambda inputs: inputs.elements(3)),
    **_all(_picked(2, lambda inputs: inputs.elements(3), adds=1), "index_add scatter_add"),
    # exponentials and roots count as one, as a divide does: what they really cost is the processor's affair
    **_all(_each(1), "add sub mul div relu neg abs sqrt rsqrt reciprocal pow square clamp clamp_min maximum minimum "
           "sigmoid tanh exp log log1p threshold_backward"),
    **_all(_each(3), "addcmul addcdiv lerp sigmoid_backward tanh_backward"),
    **_all(_each(0), "cat masked_fill where"),
    **_all(_each(1, written=0, more=ELEMENT_BYTES["bool"]), "eq ne lt le gt ge"),
    # to the first argument, from the second; bits of a random generator are no floating-point arithmetic
    **_all(_each(0, written=0), "copy fill zero random bernoulli uniform normal"),
    # what is written is little beside what is read
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
    # times the mask, which is written, too, times 1 / (1 − p)
    "native_dropout": _each(2, more=ELEMENT_BYTES["bool"]),
    "native_dropout_backward": _each(2),
    # values and their places are written; comparisons are no arithmetic
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
"""By operator, in place or not, of tensors or of lists of them. Inside of each, what it calls is not counted again."""


def operator_work(name: str, inputs: Inputs) -> Work | None:
    """What a call has to do; None where no formula is known for the operator or these inputs.

    >>> operator_work("aten::mm", Inputs([[2, 3], [3, 5]], ["float", "float"], ["", ""]))
    Work(flop=60, bytes=124)
    """
    own = name.removeprefix("aten::")
    formula = FORMULAS.get(own.removeprefix("_foreach_").removesuffix("_"))
    if formula is None or own == name:
        return None
    try:
        return formula(inputs)
    except (IndexError, KeyError, ValueError, SyntaxError, TypeError, ZeroDivisionError, RuntimeError):
        return None  # another overload, or a type that is not counted


def operators_at_work(trace: Trace) -> pd.DataFrame:
    """What the operators of a trace had to do, and how fast they did it.

    A call inside another one that has a formula is part of that one. The profiler must have recorded shapes.

    Returns:
        Columns operator, calls, time_us (with what they called; where a device computes, of the kernels), flop, bytes,
        gflop_per_s, gb_per_s, flop_per_byte; the longest time first; empty without shapes.
    """
    import pandas as pd

    events = trace.events
    calls = events[(events["category"] == "cpu_op") & (events["shapes"] != "")]
    kinds = list(zip(*(calls[column].astype(str) for column in ("name", "shapes", "types", "values")), strict=True))
    works = {kind: operator_work(kind[0], Inputs(*map(ast.literal_eval, kind[1:]))) for kind in set(kinds)}
    known = np.zeros(len(events), dtype=bool)
    known[calls.index[[works[kind] is not None for kind in kinds]]] = True
    outermost = known & ~within(known, events["parent"].to_numpy())
    took = calls["duration_us"] if trace.kernels.empty else launched_us(trace)[calls.index]
    rows = [
        (kind[0], 1, duration, *works[kind])
        for kind, duration, counts in zip(kinds, took, outermost[calls.index], strict=True)
        if counts
    ]
    frame = pd.DataFrame(rows, columns=["operator", "calls", "time_us", "flop", "bytes"])
    sums = frame.groupby("operator").sum()
    sums["gflop_per_s"] = sums["flop"] / sums["time_us"] / 1e3
    sums["gb_per_s"] = sums["bytes"] / sums["time_us"] / 1e3
    sums["flop_per_byte"] = sums["flop"] / sums["bytes"]
    return sums.reset_index().sort_values("time_us", ascending=False, ignore_index=True)
