"""What a training step asks the processor for: its operators in their order, with the sizes of what they work on.

Kernels, as the paper has them (Lin et al., arXiv 2201.07821), are on a CPU the operators below autograd: those that
torch does not make of others. A view is one, too, and computes nothing.
"""

from __future__ import annotations

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
from torch.utils.flop_counter import flop_registry

PHASES = ("forward", "backward", "optimiser")
ROWS = {
    "_embedding_bag": (1, 1), "embedding": (1, 2), "index": (1, 2), "update_tables": (2, 3), "index_add_": (2, 3),
    "index_put_": (1, 3), "index_put": (1, 3), "_index_put_impl_": (1, 3),
}  # fmt: skip
"""Of operators that work on random rows of their first argument: the argument that names these, and how often the bytes
of one are moved: to be read, to be written"""


@dataclass(frozen=True)
class Operator:
    """One call."""

    name: str
    """As torch has it, such as "aten.mm" """
    phase: str
    """One of `PHASES`"""
    tensors: tuple[tuple[str, tuple[int, ...], bool], ...]
    """Of each argument that is one, lists opened: its type, such as "float32", its sizes, whether it lies row by row"""
    numbers: tuple[float, ...] = ()
    """Arguments that are numbers, lists opened"""
    flop: float = 0.0
    """Products' and convolutions'"""
    bytes: float = 0.0
    """Read and written, each tensor once; of tables the rows that are named"""
    table_bytes: float = 0.0
    """Of the table whose random rows these bytes are; 0 where they lie side by side"""
    row_bytes: float = 0.0
    lookups: float = 0.0
    """Of rows"""
    distinct: float = 0.0
    """Of the rows that are named"""
    is_view: bool = False
    seen_s: float = field(default=0.0, compare=False)
    """What it took when it was written down, of which only shares are used"""
    after: tuple[int, ...] = ()
    """The numbers of the operators that made or last changed what it works on"""

    @cached_property
    def kind(self) -> str:
        """Calls of one kind take what one formula says: of one operator, in place or not; of products, of one type."""
        types = [kind for kind, _, _ in self.tensors if "float" in kind] if self.flop else []
        return " ".join([self.name.removesuffix("_"), *types[:1], *["rows"] * bool(self.lookups)])


class Calls(TorchDispatchMode):
    """Writes down the operators that a block calls."""

    def __init__(self):
        super().__init__()
        self.operators: list[Operator] = []
        self._made_by: dict[int, int] = {}
        """Of each memory of a tensor the number of the call that wrote it last"""
        self._alive: list[Any] = []
        """So that no memory is taken for another"""
        self._follows_backward = False

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple = (), keywords: dict | None = None) -> Any:
        keywords = keywords or {}
        began = time.perf_counter()
        result = function(*arguments, **keywords)
        seen_s = time.perf_counter() - began
        given, made = tree_flatten((arguments, keywords))[0], tree_flatten(result)[0]
        read = self._read(function, arguments, keywords, given, made, result)
        self.operators.append(replace(read, seen_s=seen_s))
        self._alive.append([each.untyped_storage() for each in (*given, *made) if _is_plain(each)])
        return result

    def _phase(self, computes: bool) -> str:
        """Gradients are off in an optimiser, which follows a backward pass, and in a forward pass of the user's own."""
        if torch._C._current_graph_task_id() != -1:
            self._follows_backward = True
            return "backward"
        if torch.is_grad_enabled() and computes:
            self._follows_backward = False
        return "optimiser" if self._follows_backward else "forward"

    def _read(self, function: Any, arguments: tuple, keywords: dict, given: list, made: list, result: Any) -> Operator:
        schema, number = function._schema, len(self.operators)
        inputs = [each for each in given if isinstance(each, Tensor)]
        results = [each for each in made if isinstance(each, Tensor)]
        writes = schema.is_mutable
        aliases = bool(schema.returns) and schema.returns[0].alias_info is not None
        after = {self._made_by[key] for each in inputs if _is_plain(each) and (key := _memory(each)) in self._made_by}
        # in place, some arguments are changed: the schema's, opened as the arguments are
        changed = [
            each
            for argument, value in zip(schema.arguments, arguments, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
            for each in tree_flatten(value)[0]
        ]
        is_view = aliases and not writes
        for each in (*changed, *([] if is_view else results)):
            if _is_plain(each):
                self._made_by[_memory(each)] = number
        name = f"{function.namespace}.{function._opname}"
        return Operator(
            name=name,
            phase=self._phase(bool(inputs)),
            tensors=tuple(
                (str(each.dtype).removeprefix("torch."), tuple(each.shape), _lies_plain(each)) for each in inputs
            ),
            numbers=tuple(float(each) for each in given if isinstance(each, (bool, int, float))),
            flop=_flop(function, arguments, keywords, result),
            is_view=is_view,
            after=tuple(sorted(after)),
            **({"bytes": 0.0} if is_view else _moved(function._opname, arguments, inputs, results, changed)),
        )


def _is_plain(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.layout is torch.strided


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _lies_plain(tensor: Tensor) -> bool:
    return not _is_plain(tensor) or tensor.is_contiguous()


def _flop(function: Any, arguments: tuple, keywords: dict, result: Any) -> float:
    if (count := flop_registry.get(function.overloadpacket)) is not None:
        return float(count(*arguments, **keywords, out_val=result))
    if "rnn_layer" in function._opname:  # each step of each sequence is multiplied by both weights
        steps = math.prod(arguments[0].shape[:-1])
        passes = 2 if "backward" in function._opname else 1
        return float(2 * passes * steps * (arguments[1].numel() + arguments[2].numel()))
    return 0.0


def _moved(name: str, arguments: tuple, inputs: list, results: list, changed: list) -> dict[str, float]:
    table, sparse = inputs[0] if inputs else None, [each for each in inputs if each.is_sparse]
    if name in ROWS:
        place, times = ROWS[name]
        rows = next(each for each in tree_flatten(arguments[place])[0] if isinstance(each, Tensor))
        row_bytes = _size(table) / max(len(table), 1)
        times += 2 * len(arguments[1]) if name == "update_tables" else 0
    elif len(sparse) == 1 and not table.is_sparse:  # added to rows of a table
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
    """Bytes of its numbers; a broadcast one's count once, a sparse one's are those that it has."""
    if not _is_plain(tensor):
        return tensor._nnz() * math.prod(tensor.shape[1:]) * tensor.element_size() if tensor.is_sparse else 0
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(sizes) * tensor.element_size()


class Times(TorchDispatchMode):
    """Times the operators that a block calls, each among the others, so that caches hold what the step leaves there."""

    def __init__(self):
        super().__init__()
        self.times_s: list[float] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple = (), keywords: dict | None = None) -> Any:
        keywords = keywords or {}
        began = time.perf_counter()
        result = function(*arguments, **keywords)
        self.times_s.append(time.perf_counter() - began)
        return result


def operators_of(step: Callable[[], object]) -> list[Operator]:
    """Take one step, and write down what it calls."""
    with Calls() as calls:
        step()
    return calls.operators


def operator_times(step: Callable[[], object]) -> list[float]:
    """Take one step, and time what it calls, in seconds; what timing itself takes is `timing_s`."""
    with Times() as timed:
        step()
    return timed.times_s


def timing_s(calls: int = 2000) -> float:
    """What timing adds to an operator's time: that of a view in it, less that of a view by itself."""
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
