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

    sums: dict[tuple[str, ...], list[float]] = {(): [time.steps, time.total_us, 0.0]}  # calls, total and own time
    for phase, us in time.segments.groupby("phase", sort=False)["us"].sum().items():
        sums[(phase,)] = [time.steps, us, us]
    paths: list[tuple[str, ...]] = []
    columns = (time.events[name].tolist() for name in ("name", "phase", "parent", "duration_us", "self_us"))
    for name, phase, parent, total_us, own_us in zip(*columns, strict=True):
        above = (phase,) if parent < 0 else paths[parent]
        paths.append((*above, name) if 0 < len(above) < DEEPEST else ())
        if path := paths[-1]:
            row = sums.setdefault(path, [0, 0.0, 0.0])
            sums[path] = [row[0] + 1, row[1] + total_us, row[2] + own_us]
            sums[path[:1]][2] -= own_us  # what is left of a phase lies outside of its operators
    number = {path: place for place, path in enumerate(sums)}
    begin, taken, rows, least_us = {}, dict.fromkeys(sums, 0.0), [], SMALLEST * time.total_us
    for path, (calls, total_us, own_us) in sums.items():
        if total_us < least_us:
            continue
        above = path[:-1]
        begin[path] = begin.get(above, 0.0) + taken[above] if path else 0.0
        taken[above] += total_us if path else 0.0
        parent, name, phase = (number[above], path[-1], path[0]) if path else (-1, "step", "other")
        rows.append((number[path], parent, name, phase, len(path), calls, total_us, own_us, begin[path]))
    columns = ["node", "parent", "name", "phase", "depth", "calls", "total_us", "self_us", "begin_us"]
    frame = pd.DataFrame(rows, columns=columns)
    frame[["calls", "total_us", "self_us", "begin_us"]] /= time.steps
    return frame
