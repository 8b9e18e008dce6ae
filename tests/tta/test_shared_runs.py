"""Runs that shared their device are lines of their own, without energy or cost that are not theirs."""

import numpy as np
from made_up import write_run

from labkit.runs import Series
from labkit.telemetry.energy import OF_ALL
from labkit.tta import run_table

PAIR = {"group": "g", "job": "a", "jobs": "2 × a.py", "mix": "f0"}


def test_only_runs_with_the_same_neighbours_in_the_same_mode_share_a_line(tmp_path):
    told = {
        "all-cores": [None, PAIR | {"mode": "alone"}],
        "cpu-shared, 2 × a.py": [
            PAIR | {"mode": "cpu-shared"},
            PAIR | {"mode": "cpu-shared", "job": "b", "group": "h"},
        ],
        "cpu-pinned, 2 × a.py · mix f0": [PAIR | {"mode": "cpu-pinned"}],
        "cpu-pinned, 2 × a.py · mix e1": [PAIR | {"mode": "cpu-pinned", "mix": "e1"}],
    }
    configs = [{"collocation": each} if each else {} for line in told.values() for each in line]
    runs = run_table([write_run(tmp_path, [], config=each, energy_note=None) for each in configs])
    assert [Series.of(run).label for run in runs.to_dict("records")] == [
        budget for budget, line in told.items() for _ in line
    ]
    assert list(runs["tier"]) == ["cloud-cpu-2"] * 2 + [None] * 4
    assert np.isnan(runs["energy_j"][2:].to_numpy(float)).all()
    assert set(runs["energy_note"][2:]) == {OF_ALL}
