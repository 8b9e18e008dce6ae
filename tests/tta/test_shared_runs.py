"""Runs that shared their device are lines of their own, without energy or cost that are not theirs."""

from __future__ import annotations

import numpy as np

from labkit.runs import Provenance, RunWriter
from labkit.telemetry.energy import OF_ALL
from labkit.tta import run_table

PAIR = {"group": "g", "job": "a", "jobs": "2 × a.py", "mix": "f0"}


def new_run(folder, collocation=None):
    config = {"job": "a", "train": {"seed": 0}} | ({} if collocation is None else {"collocation": collocation})
    writer = RunWriter.create(
        folder, "a", config=config, budget={"name": "all-cores", "torch_name": "cpu"}, tier="cpu-2core", devices=[],
        seed=0, provenance=Provenance.now("measured"), software={},
    )  # fmt: skip
    writer.finish("done", {})
    return writer.folder


def test_only_runs_with_the_same_neighbours_in_the_same_mode_share_a_line(tmp_path):
    told = [
        None,
        PAIR | {"mode": "alone"},
        PAIR | {"mode": "cpu-shared"},
        PAIR | {"mode": "cpu-shared", "job": "b", "group": "h"},
        PAIR | {"mode": "cpu-pinned"},
        PAIR | {"mode": "cpu-pinned", "mix": "e1"},
    ]
    runs = run_table([new_run(tmp_path, each) for each in told])
    assert list(runs["budget"]) == [
        "all-cores",
        "all-cores",
        "cpu-shared, 2 × a.py",
        "cpu-shared, 2 × a.py",
        "cpu-pinned, 2 × a.py · mix f0",
        "cpu-pinned, 2 × a.py · mix e1",
    ]
    assert list(runs["tier"]) == ["cpu-2core"] * 2 + [None] * 4
    assert np.isnan(runs["energy_j"][2:].to_numpy(float)).all()
    assert set(runs["energy_note"][2:]) == {OF_ALL}
