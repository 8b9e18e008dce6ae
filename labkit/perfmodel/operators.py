"""The operators that a training step calls, in order, with the sizes of their arguments; and their times.

On a CPU the kernels of the paper (Lin et al., arXiv 2201.07821) are the operators below autograd, which torch does not
build from others. A view is one as well, and computes nothing.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from labkit import profiling

PHASES = ("forward", "backward", "optimiser")
ROWS = {
    "_embedding_bag": (1, 1), "embedding": (1, 2), "index": (1, 2), "update_tables": (2, 3), "index_add_": (2, 3),
    "index_put_": (1, 3), "index_put": (1, 3), "_index_put_impl_": (1, 3),
}  # fmt: skip
"""Operators on random rows of their first argument: the argument with the rows' indices, and how often each row's bytes
are moved, by reading and writing"""
PRODUCTS = {
    "mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "mkldnn_rnn_layer",
    "mkldnn_rnn_layer_backward",
}  # fmt: skip
"""Operators whose arithmetic counts: that of others takes less time than their bytes"""


@dataclass(frozen=True)
class Operator:
    """One call."""

    name: str
    """torch's name, such as "aten.mm" """
    phase: str
    """One of `PHASES`"""
    tensors: tuple[tuple[str, tuple[int, ...], bool], ...]
    """Type (such as "float32"), sizes and contiguity of each tensor among the arguments, those in lists included"""
    numbers: tuple[float, ...] = ()
    """Numbers among the arguments, those in lists included"""
    flop: float = 0.0
    """Arithmetic of products and convolutions; 0 for others"""
    bytes: float = 0.0
    """Bytes read and written, each tensor once; of tables only the rows that are looked up"""
    table_bytes: float = 0.0
    """Size of the table that random rows are taken from; 0 for contiguous access"""
    row_bytes: float = 0.0
    lookups: float = 0.0
    """Number of rows looked up"""
    distinct: float = 0.0
    """Number of different rows looked up"""
    is_view: bool = False
    seen_s: float = field(default=0.0, compare=False)
    """Time when it was captured; only its share is used"""
    after: tuple[int, ...] = ()
    """Numbers of the operators that made or last changed its arguments"""

    @cached_property
    def kind(self) -> str:
        """Group of calls with one model: of one operator, in place or not, and for products of one type."""
        types = [kind for kind, _, _ in self.tensors if "float" in kind] if self.flop else []
        return " ".join([self.name.removesuffix("_"), *types[:1], *["rows"] * bool(self.lookups)])


class Times(TorchDispatchMode):
    """Times the operators of a block within the block, so that caches hold what the step leaves there."""

    def __init__(self):
        super().__init__()
        self.times_s: list[float] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple = (), keywords: dict | None = None) -> Any:
        began = time.perf_counter()
        result = function(*arguments, **(keywords or {}))
        self.times_s.append(time.perf_counter() - began)
        return result


class Calls(Times):
    """Captures the operators that a block calls."""

    def __init__(self):
        super().__init__()
        self.operators: list[Operator] = []
        self._made_by: dict[int, int] = {}
        """Number of the call that last wrote a tensor's memory, by its address"""
        self._alive: list[Any] = []
        """Storages that must not be freed, so that no address is used twice"""
        self._follows_backward = False

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple = (), keywords: dict | None = None) -> Any:
        result = super().__torch_dispatch__(function, types, arguments, keywords)
        given, made = tree_flatten((arguments, keywords))[0], tree_flatten(result)[0]
        read = self._read(function, arguments, given, made)
        self.operators.append(replace(read, seen_s=self.times_s[-1]))
        self._alive.append([each.untyped_storage() for each in (*given, *made) if _is_plain(each)])
        return result

    def _phase(self, computes: bool) -> str:
        """Gradients are off in an optimiser, after a backward pass, but may be off in a forward pass, too."""
        if torch._C._current_graph_task_id() != -1:
            self._follows_backward = True
            return "backward"
        if torch.is_grad_enabled() and computes:
            self._follows_backward = False
        return "optimiser" if self._follows_backward else "forward"

    def _read(self, function: Any, arguments: tuple, given: list, made: list) -> Operator:
        schema, number = function._schema, len(self.operators)
        inputs = [each for each in given if isinstance(each, Tensor)]
        results = [each for each in made if isinstance(each, Tensor)]
        aliases = bool(schema.returns) and schema.returns[0].alias_info is not None
        is_view = aliases and not schema.is_mutable
        after = {self._made_by[key] for each in inputs if _is_plain(each) and (key := _memory(each)) in self._made_by}
        # the schema marks the arguments that are changed in place; lists are flattened
        changed = [
            each
            for argument, value in zip(schema.arguments, arguments, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
            for each in tree_flatten(value)[0]
        ]
        for each in (*changed, *([] if is_view else results)):
            if _is_plain(each):
                self._made_by[_memory(each)] = number
        shown = [(each, not _is_plain(each) or each.is_contiguous()) for each in inputs]
        return Operator(
            name=f"{function.namespace}.{function._opname}",
            phase=self._phase(bool(inputs)),
            tensors=tuple((str(each.dtype).removeprefix("torch."), tuple(each.shape), lies) for each, lies in shown),
            numbers=tuple(float(each) for each in given if isinstance(each, (bool, int, float))),
            flop=_flop(function._opname, arguments),
            is_view=is_view,
            after=tuple(sorted(after)),
            **({"bytes": 0.0} if is_view else _moved(function._opname, arguments, inputs, results, changed)),
        )


def _is_plain(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.layout is torch.strided


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _flop(name: str, arguments: tuple) -> float:
    """Arithmetic of a product, by the formula for a profiler's record of the same call."""
    if name not in PRODUCTS:
        return 0.0
    shapes = tuple(tuple(each.shape) if isinstance(each, Tensor) else () for each in arguments)
    types = tuple("float" if isinstance(each, Tensor) else "" for each in arguments)  # which only bytes depend on
    values = tuple("" if isinstance(each, Tensor) else each for each in arguments)
    work = profiling.operator_work(f"aten::{name}", profiling.Inputs(shapes, types, values))
    return 0.0 if work is None else float(work.flop)


def _moved(name: str, arguments: tuple, inputs: list[Any], results: list, changed: list) -> dict[str, float]:
    table: Any = inputs[0] if inputs else None
    sparse = [each for each in inputs if each.is_sparse]
    if name in ROWS:
        place, times = ROWS[name]
        rows = next(each for each in tree_flatten(arguments[place])[0] if isinstance(each, Tensor))
        row_bytes = _size(table) / max(len(table), 1)
        times += 2 * len(arguments[1]) if name == "update_tables" else 0
    elif len(sparse) == 1 and not table.is_sparse:  # a sparse gradient, added to rows of a table
        rows, times = sparse[0]._indices()[0], 3
        row_bytes = table[:1].nbytes
    else:
        return {"bytes": float(sum(_size(each) for each in (*inputs, *results, *changed)))}
    return {
        "bytes": float(times * rows.numel() * row_bytes),
        "table_bytes": float(table.nbytes),
        "row_bytes": float(row_bytes),
        "lookups": float(rows.numel()),
        "distinct": float(rows.unique().numel()),
    }


def _size(tensor: Tensor) -> int:
    """Bytes of a tensor's numbers: broadcast ones count once, of a sparse tensor those that it stores."""
    if not _is_plain(tensor):
        return tensor._nnz() * math.prod(tensor.shape[1:]) * tensor.element_size() if tensor.is_sparse else 0
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(sizes) * tensor.element_size()


def operators_of(step: Callable[[], object]) -> list[Operator]:
    """Take one step, and capture the operators that it calls."""
    with Calls() as calls:
        step()
    return calls.operators


def operator_times(step: Callable[[], object]) -> list[float]:
    """Take one step, and return the seconds of each operator; they include the time of timing, `timing_s`."""
    with Times() as timed:
        step()
    return timed.times_s


def timing_s(calls: int = 2000) -> float:
    """Time that timing adds to an operator: the time of a timed view minus that of an untimed one."""
    number = torch.zeros(1)

    def views() -> None:
        for _ in range(calls):
            number.detach()

    with torch.no_grad():
        timed = statistics.median(operator_times(views))
        rounds = []
        for _ in range(5):
            began = time.perf_counter()
            views()
            rounds.append((time.perf_counter() - began) / calls)
    return max(0.0, timed - statistics.median(rounds))


def interaction_cost(batch_size: int, vectors: int, width: int, *, by_hand: bool = False) -> tuple[float, float]:
    """FLOP and bytes of a DLRM's interaction in one training step, forward and backward, in single precision.

    With N vectors of width D, all N · N products of a sample are one `bmm` of 2·N²·D FLOP. PyTorch's autograd makes two
    more of the same size, one for each operand of `bmm`, although both operands are the same vectors: 6·B·N²·D in all.
    A backward pass by hand adds each pair's gradient at both of its places, and then needs one: 4·B·N²·D.

    Bytes count each operator's tensors once. Vectors (N · D numbers each): `cat` 2, `bmm` 2 a product, the sum of the
    two gradients 3, and its two parts copied for bottom MLP and tables 2. Products (N² numbers each): 1 a `bmm`, pairs
    taken out 1, zeros and pairs put back 2. By hand there is no sum, and putting pairs in both places moves 1.5.

    Args:
        batch_size: B.
        vectors: N, the tables and the bottom MLP's vector.
        width: D.
        by_hand: of a backward pass with one product, instead of autograd's two.

    >>> interaction_cost(512, 27, 16) == (6 * 512 * 27**2 * 16, 4 * 512 * (13 * 27 * 16 + 6 * 27**2))
    True
    """
    products = 2 if by_hand else 3
    of_vectors, of_products = (8, 4.5) if by_hand else (13, 6)
    moved = of_vectors * vectors * width + of_products * vectors**2
    return 2.0 * products * batch_size * vectors**2 * width, 4.0 * batch_size * moved
