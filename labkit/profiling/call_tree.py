"""What calls what in a step, added up over the recorded steps: the frame of an icicle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.profiling.step_time import StepTime
from labkit.profiling.trace import STEP

if TYPE_CHECKING:
    import pandas as pd

DEEPEST = 12
"""Calls within calls that are told apart."""
SMALLEST = 0.001
"""Share of a step; what takes less is left out, and is the room that its caller has left."""


def call_tree(time: StepTime) -> pd.DataFrame:
    """One row for each way in which an operator or annotation is reached, callers before what they call.

    Returns:
        Columns node, parent (−1: none), name, phase, depth (0 is the step), calls, total_us, self_us (all of one step),
        begin_us: where it lies when callees stand side by side in the order of their first call.
    """
    import pandas as pd

    events = time.events
    known: dict[tuple[int, str], int] = {}
    rows: list[list] = []
    node_of = [-1] * len(events)
    columns = (events[name].tolist() for name in ("name", "phase", "parent", "duration_us", "self_us"))
    for row, (name, phase, parent, total, own) in enumerate(zip(*columns, strict=True)):
        above = node_of[parent] if parent >= 0 else -1
        if parent >= 0 and above < 0:
            continue  # below something too deep
        name = "step" if name.startswith(STEP) else name
        depth = rows[above][4] + 1 if above >= 0 else 0
        if depth > DEEPEST:
            continue
        node = known.setdefault((above, name), len(rows))
        if node == len(rows):
            rows.append([node, above, name, phase, depth, 0, 0.0, 0.0])
        node_of[row] = node
        rows[node][5] += 1
        rows[node][6] += total
        rows[node][7] += own
    columns = ["node", "parent", "name", "phase", "depth", "calls", "total_us", "self_us"]
    frame = pd.DataFrame(rows, columns=columns)
    frame[["calls", "total_us", "self_us"]] /= time.steps
    frame = frame[frame["total_us"] >= SMALLEST * time.step_us]
    frame["begin_us"] = _side_by_side(frame)
    return frame.reset_index(drop=True)


def _side_by_side(frame: pd.DataFrame) -> list[float]:
    begin: dict[int, float] = {}
    taken: dict[int, float] = {}
    for row in frame.itertuples():
        start = begin.get(row.parent, 0.0) + taken.get(row.parent, 0.0)
        begin[row.node] = start
        taken[row.parent] = taken.get(row.parent, 0.0) + row.total_us
    return [begin[node] for node in frame["node"]]
