"""How much arithmetic the operators of a trace did and how many bytes they had to move, by the shapes of their inputs.

`flop` counts a multiplication and an addition as two, as `torch.utils.flop_counter` does, which checks the formulas
where it knows the operator. `bytes` is the least there is to move: each input read and each output written once, as if
caches were boundless.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import numpy as np

from labkit.profiling.traces.device_time import launched_us
from labkit.profiling.work.formulas import FORMULAS, Inputs, Work

if TYPE_CHECKING:
    import pandas as pd

    from labkit.profiling.traces.trace import Trace


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
    outermost = known & ~_inside(known, events["parent"].to_numpy())
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


def _inside(marked: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Whether each event lies within a marked one, at whatever depth."""
    inside, above = np.zeros(len(marked), dtype=bool), parent.copy()
    while (has_parent := above >= 0).any():
        inside[has_parent] |= marked[above[has_parent]]
        above[has_parent] = parent[above[has_parent]]
    return inside
