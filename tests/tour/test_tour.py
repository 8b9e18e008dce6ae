"""The tour: its plan, what a failure and Ctrl-C cost, its exit status, and the whole of it."""

import io
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
from rich.console import Console

from labkit.cli.display import TourDisplay
from labkit.cli.tour import exit_status
from labkit.errors import UserError
from labkit.hardware import offered_budgets
from labkit.launch import TourRun, run_tour
from labkit.runs import list_runs, read_run
from labkit.tracking import WorkerFailed

SCRIPT = """
import argparse
import labkit
flags = argparse.ArgumentParser()
flags.add_argument("--seed", type=int)
flags.add_argument("--max-seconds", type=float)
args = flags.parse_args()
with labkit.Run("own", target="accuracy >= 0.5", seed=args.seed, max_seconds=args.max_seconds) as run:
    for _ in run.epochs(2):
        run.step(samples=1)
        run.evaluate(accuracy=0.6)
"""


def test_a_run_that_fails_costs_no_other_run(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(SCRIPT, encoding="utf-8")
    tour = [TourRun("no-such-job", "all-cores"), TourRun(str(script), "all-cores", seed=3)]
    console = Console(record=True, width=200, file=io.StringIO())
    with TourDisplay(console) as display:
        run_tour(tour, tmp_path / "runs", display.show)
    assert [run.state for run in tour] == ["failed", "done"]
    assert read_run(tour[1].folder).seed == 3
    text = console.export_text()
    assert "no-such-job" in text
    assert re.search(r"reached its target after \d+\.\d s", text)


def test_late_in_a_tour_no_further_run_begins(tmp_path, monkeypatch):
    script = tmp_path / "own.py"
    script.write_text(SCRIPT, encoding="utf-8")
    tour = [TourRun(str(script), "all-cores", seed) for seed in range(3)]
    console = Console(record=True, width=200, file=io.StringIO())
    with TourDisplay(console) as display:

        def show(run, event):
            display.show(run, event)
            if run.state == "done":
                monkeypatch.setattr("labkit.launch.tour.LAST_START_S", 0.0)

        run_tour(tour, tmp_path / "runs", show)
    assert [run.state for run in tour] == ["done", "left out", "left out"]
    assert exit_status(tour) == 1
    assert (
        "all-cores seed 2: left out, because the tour has gone on for so long: `labkit train" in console.export_text()
    )


OUT_OF_DATA, KILLED = UserError("no data"), WorkerFailed("killed")


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ([("done", True, None), ("done", True, None)], 0),
        ([("done", True, None), ("done", False, None)], 1),
        ([("failed", None, OUT_OF_DATA), ("failed", None, KILLED)], 1),
        ([("done", True, None), ("failed", None, OUT_OF_DATA)], 2),
        ([("done", True, None), ("stopped", None, None), ("waiting", None, None)], 130),
    ],
)
def test_the_exit_status_tells_success_from_a_missed_target(ended, status):
    tour = [
        TourRun("dlrm", "all-cores", state=state, answer={"result": {"target_reached": reached}}, error=error)
        for state, reached, error in ended
    ]
    assert exit_status(tour) == status


@pytest.mark.skipif(sys.platform == "win32", reason="signals a process group")
def test_ctrl_c_stops_the_tour_keeps_what_it_has_and_starts_no_further_run(tmp_path):
    """In the terminal's manner: SIGINT to the whole group."""
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit", "tour", "--jobs", "dlrm"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    next(line for line in process.stdout if "auc" in line)  # the first evaluation of the first run
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130, rest
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_run(folder).status == "stopped"
    assert "0 of 1" in rest
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tour_reaches_every_target_and_writes_the_page(tmp_path):
    command = [sys.executable, "-m", "labkit", "tour", "--seeds", "0"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    runs = list_runs(tmp_path / "runs")
    assert len(runs) == 2 * len(offered_budgets())
    assert runs["target_reached"].all(), runs
    assert len(re.findall(r"1 of 1(?! runs)", answer.stdout)) == 2 * len(offered_budgets())
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "DLRM" in page and "Speech" in page
    assert "<input" in page
