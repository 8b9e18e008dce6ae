"""Damaged run folders: a command about many runs shows the others, one about this run says what is wrong."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import campaign
import pytest
from campaign import labkit

from labkit.errors import UserError

TWO_RUNS = """
import labkit, sys, time
for seed in (0, 1):
    with labkit.Run("soak", target="accuracy >= 0.8", config={"lr": 0.1, "model": {"width": 3}}, seed=seed) as run:
        for step in range(1, 4):
            run.step(1.0 / step, samples=10)
            run.evaluate(accuracy=step / 4)
        run.test(accuracy=0.7)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two finished runs of a script, `runs/first` and `runs/second`."""
    folder = tmp_path_factory.mktemp("two")
    subprocess.run([sys.executable, "-c", TWO_RUNS], cwd=folder, check=True, capture_output=True)
    for path, name in zip(sorted((folder / "runs").iterdir()), ("first", "second"), strict=True):
        path.rename(path.with_name(name))
    return folder / "runs"


def list_all(runs: Path) -> list:
    return [labkit("runs", "list", "--runs-dir", runs), labkit("energy", "--estimate", "--runs-dir", runs)]


def show_each(runs: Path) -> list:
    told = []
    for name in ("first", "second"):
        for command in (["runs", "show", name], ["energy", name], ["profile", "show", name, "--text"]):
            try:
                told.append(labkit(*command, "--runs-dir", runs))
            except UserError as error:
                told.append(str(error))
    return told


def frames(runs: Path) -> list:
    from labkit.runs import list_runs, read_telemetry
    from labkit.tta import curves, run_table, summary
    from labkit.widgets.feed import RunFeed

    folders = sorted(runs.iterdir())
    table = run_table(folders)
    for folder in table["folder"]:
        RunFeed(folder).read()
    frame = curves(folders, runs=table)
    telemetry = read_telemetry(folders)
    return [each.to_csv() for each in (list_runs(runs), table, frame, summary(frame, table), telemetry)]


def page(runs: Path) -> str:
    out = runs.parent / "page.html"
    labkit("report", runs, "--out", out)
    return hashlib.sha256(out.read_bytes()).hexdigest()  # it has megabytes of plotly


def explorer(runs: Path) -> str:
    from labkit.widgets import explore

    return explore(runs).words.value


@pytest.mark.parametrize("read", [list_all, show_each, frames, page, explorer], ids=lambda read: read.__name__)
def test_a_damaged_run_takes_nothing_from_the_other(reader, runs, seeds, read):
    outcomes = campaign.campaign(reader, read, runs, seeds)
    assert not [each for each in outcomes if each.kind == "refused"], "one of the two runs can always be shown"
