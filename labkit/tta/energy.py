"""What a run had taken in energy at each of its evaluations."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd

from labkit.runs import read_events
from labkit.telemetry import run_energy
from labkit.telemetry.energy import Step


def with_energy(curves: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The curves with a column energy_j: what each run had taken at each evaluation, in joules since its first sample.

    Args:
        curves: evaluations, as `curves` gives them.
        runs: `run_table` of the same runs.

    Returns:
        NaN where the energy of a run was not measurable; `energy_note` of its row in `runs` says why. Between two
        samples the power is taken as constant; an evaluation after the last sample has the energy of that.
    """
    energy = pd.Series(np.nan, curves.index, dtype=float)
    measured = runs[runs["energy_j"].notna()]
    for run, folder in zip(measured["run"], measured["folder"], strict=True):
        own = curves.index[curves["run"] == run]
        evaluated = [e for e in read_events(folder) if e["event"] == "evaluated" and "wall_s" in e]
        if len(own) and evaluated:
            # sorted: after a resume the clock goes on from the checkpoint, before the last evaluations until then
            pairs = sorted((event["wall_s"], epoch_ns(event["time"])) for event in evaluated)
            wall_s, time_ns = zip(*pairs, strict=True)
            when_ns = np.interp(curves.loc[own, "wall_s"], wall_s, time_ns)
            energy[own] = energy_until(when_ns, run_energy(folder).steps)
    return curves.assign(energy_j=energy)


def energy_until(when_ns: np.ndarray, steps: tuple[Step, ...]) -> np.ndarray:
    """Joules of all steps until each moment, in the moments' shape.

    >>> energy_until(np.array([0, 5, 10, 15]), (Step(0, 10, 4.0), Step(12, 14, 1.0)))
    array([0., 2., 4., 5.])
    """
    begin_ns, end_ns, joules = (np.array(column, dtype=float) for column in zip(*steps, strict=True))
    shares = (np.clip((moment - begin_ns) / (end_ns - begin_ns), 0.0, 1.0) for moment in when_ns)
    return np.array([share @ joules for share in shares])


def epoch_ns(time: str) -> float:
    """Nanoseconds since 1970 of an event's time."""
    return datetime.fromisoformat(time).timestamp() * 1e9
