"""How much arithmetic an operator does and how many bytes it must move, by the shapes of its inputs.

Formulas for the operators of these models. `flop` counts a multiplication and an addition as two, as
`torch.utils.flop_counter` does, which checks them where it knows the operator. `bytes` is the least there is to move:
each input read and each output written once, as if caches were boundless.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from labkit.profiling.trace import Trace

ELEMENT_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8, "int": 4, "short": 2,
    "signed char": 1, "unsigned char": 1, "bool": 1,
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

    def size(self, place: int) -> int:
        """Bytes of a tensor."""
        return prod(self.shapes[place]) * self.element(place)

    def element(self, place: int = 0) -> int:
        """Bytes of one of its elements.

        Raises:
            KeyError: it is of a type that is not known, or no tensor.
        """
        return ELEMENT_BYTES[self.types[place]]

    def value(self, place: int) -> Any:
        """A number, a truth value or a list of them."""
        return ast.literal_eval(self.values[place])


def operator_work(name: str, inputs: Inputs) -> Work | None:
    """What a call has to do; None where no formula is known for the operator or these inputs.

    >>> operator_work("aten::mm", Inputs([[2, 3], [3, 5]], ["float", "float"], ["", ""]))
    Work(flop=60, bytes=124)
    """
    formula = FORMULAS.get(name)
    if formula is None:
        return None
    try:
        return formula(inputs)
    except (IndexError, KeyError, ValueError, SyntaxError, TypeError):
        return None  # another overload, or a type that is not counted


def operators_at_work(trace: Trace) -> pd.DataFrame:
    """What the operators of a trace had to do, and how fast they did it.

    A call inside another one that has a formula is part of that one. The profiler must have recorded shapes.

    Returns:
        Columns operator, calls, time_us (with what they called), flop, bytes, gflop_per_s, gb_per_s, flop_per_byte; the
        longest time first; empty without shapes.
    """
    import pandas as pd

    events = trace.events
    calls = events[(events["category"] == "cpu_op") & (events["shapes"] != "")]
    what = ["name", "shapes", "types", "values"]
    kinds = calls.drop_duplicates(what)[what].astype(str)
    works = {
        tuple(kind): work
        for kind in kinds.itertuples(index=False)
        if (work := operator_work(kind.name, Inputs(*map(ast.literal_eval, kind[1:])))) is not None
    }
    names, shapes, types, values = (calls[column].astype(str).to_numpy() for column in what)
    found = [works.get(key) for key in zip(names, shapes, types, values, strict=True)]
    known = np.zeros(len(events), dtype=bool)
    known[calls.index[[work is not None for work in found]]] = True
    outermost = known & ~_inside(known, events["parent"].to_numpy())
    rows = [
        (name, duration, *work)
        for name, duration, work, row in zip(names, calls["duration_us"], found, calls.index, strict=True)
        if outermost[row]
    ]
    frame = pd.DataFrame(rows, columns=["operator", "time_us", "flop", "bytes"])
    sums = frame.groupby("operator").agg(
        calls=("operator", "size"), time_us=("time_us", "sum"), flop=("flop", "sum"), bytes=("bytes", "sum")
    )
    sums["gflop_per_s"] = sums["flop"] / sums["time_us"] / 1e3
    sums["gb_per_s"] = sums["bytes"] / sums["time_us"] / 1e3
    sums["flop_per_byte"] = sums["flop"] / sums["bytes"]
    return sums.reset_index().sort_values("time_us", ascending=False, ignore_index=True)


def _inside(marked: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Whether each event lies within a marked one, at whatever depth."""
    inside, above = np.zeros(len(marked), dtype=bool), parent.copy()
    while (has_parent := above >= 0).any():
        inside[has_parent] |= marked[above[has_parent]]
        above[has_parent] = parent[above[has_parent]]
    return inside


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


def _elementwise(flop_each: int) -> Callable[[Inputs], Work]:
    def formula(inputs: Inputs) -> Work:
        tensors = [place for place, kind in enumerate(inputs.types) if kind in ELEMENT_BYTES]
        out = prod(np.broadcast_shapes(*(tuple(inputs.shapes[place]) for place in tensors)))
        return Work(flop_each * out, sum(map(inputs.size, tensors)) + out * inputs.element(tensors[0]))

    return formula


def _reduction(inputs: Inputs) -> Work:
    return Work(prod(inputs.shapes[0]), inputs.size(0))  # what is written is little beside it


def _copy(inputs: Inputs) -> Work:
    """To its first argument from its second."""
    return Work(0, inputs.size(0) + inputs.size(1))


FORMULAS: dict[str, Callable[[Inputs], Work]] = {
    "aten::mm": lambda inputs: _product(inputs, 0, 1),
    "aten::bmm": lambda inputs: _product(inputs, 0, 1),
    "aten::addmm": lambda inputs: _product(inputs, 1, 2),
    "aten::baddbmm": lambda inputs: _product(inputs, 1, 2),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::_embedding_bag": _embedding_bag,
    "aten::_embedding_bag_forward_only": _embedding_bag,
    "aten::embedding": _lookup,
    "aten::copy_": _copy,
    "aten::sum": _reduction,
    "aten::mean": _reduction,
    **dict.fromkeys(
        (f"aten::{name}{place}" for name in ("add", "sub", "mul", "div", "relu", "neg", "sqrt", "clamp_min")
         for place in ("", "_")),
        _elementwise(1),
    ),
    "aten::threshold_backward": _elementwise(1),
    # exponentials count as one, as a divide does: what they really cost is the processor's affair
    **dict.fromkeys((f"aten::{name}{place}" for name in ("sigmoid", "tanh", "exp", "log") for place in ("", "_")),
                    _elementwise(1)),
    "aten::sigmoid_backward": _elementwise(3),
    "aten::tanh_backward": _elementwise(3),
}  # fmt: skip
"""By operator. Inside of each, what it calls is not counted again."""
