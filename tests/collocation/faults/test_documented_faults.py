"""What is documented says where, and that it was not run."""

from __future__ import annotations

from labkit.collocation.faults.documented import COLUMNS, documented_behaviour
from labkit.collocation.faults.fault import FAULTS
from labkit.collocation.plan.plan import MODES


def test_each_row_has_its_source_and_says_that_it_was_not_run_here():
    frame = documented_behaviour()
    assert list(frame.columns) == COLUMNS
    assert set(frame["provenance"]) == {"documented, not run here"}
    assert frame["url"].str.startswith("https://").all()
    assert (frame[["source", "section", "documented", "neighbours"]].map(len) > 1).all(axis=None)


def test_it_speaks_of_modes_and_faults_that_there_are():
    frame = documented_behaviour()
    assert {"naive", "mps", "mig"} <= set(frame["mode"]) <= {*MODES, "any"}
    assert set(frame["fault"]) <= {*FAULTS, "uncorrectable memory error"}
    assert not frame.duplicated(["mode", "fault", "gpus"]).any()
