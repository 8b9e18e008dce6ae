"""What calls what in a step, added up over the recorded steps: the frame of an icicle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.profiling.step_time import StepTime

if TYPE_CHECKING:
    import pandas as pd

DEEPEST = 12
"""Calls within calls that are told apart."""
SMALLEST = 0.001
"""Share of a step; what takes less is left out, and is the room that its caller has left."""


def call_tree(time: StepTime) -> pd.DataFrame:
    """One row for the step, for each of its phases, and for each way in which an operator is reached in one of them.

    Returns:
        Columns node, parent (−1: none), name, phase, depth (0 is the step), calls, total_us, self_us (all of one step),
        begin_us: where it lies when callees stand side by side in the order of their first call.
    """
    import pandas as pd

    rows: list[list] = [[0, -1, "step", "other", 0, time.steps, time.total_us, 0.0]]
    known: dict[tuple[int, str], int] = {}

    def node(above: int, name: str, phase: str) -> int:
        found = known.setdefault((above, name), len(rows))
        if found == len(rows):
            rows.append([found, above, name, phase, rows[above][4] + 1, 0, 0.0, 0.0])
        return found

    for segment in time.segments.itertuples():
        row = rows[node(0, segment.phase, segment.phase)]
        row[6] += segment.us
        row[7] += segment.us
    for phase in dict.fromkeys(time.segments["phase"]):
        rows[known[0, phase]][5] = time.steps
    node_of = [-1] * len(time.events)
    columns = (time.events[name].tolist() for name in ("name", "phase", "parent", "duration_us", "self_us"))
    for place, (name, phase, parent, total, own) in enumerate(zip(*columns, strict=True)):
        above = known[0, phase] if parent < 0 else node_of[parent]
        if above < 0 or rows[above][4] == DEEPEST:
            continue  # too deep
        node_of[place] = node(above, name, phase)
        row = rows[node_of[place]]
        row[5] += 1
        row[6] += total
        row[7] += own
        rows[known[0, phase]][7] -= own  # what is left of a phase lies outside of its operators
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
