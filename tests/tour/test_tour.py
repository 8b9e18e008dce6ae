"""The tour: its plan, what a failure and Ctrl-C cost, its exit status, and the whole of it."""

import io
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest
from rich.console import Console

from labkit.cli.display import TourDisplay
from labkit.cli.tour import exit_status
from labkit.errors import UserError
from labkit.hardware.budgets.names import offered_budgets
from labkit.runs import list_runs, read_run
from labkit.tour import run as tour_run
from labkit.tour.run import TourRun, plan_tour, run_tour
from labkit.tracking.launch import WorkerFailed

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


def test_the_plan_is_every_job_budget_and_seed_once():
    budgets = [budget.name for budget in offered_budgets()]
    plan = [(run.job, run.budget, run.seed) for run in plan_tour(("dlrm", "speech"), (0, 1))]
    assert sorted(plan) == sorted((job, b, seed) for job in ("dlrm", "speech") for b in budgets for seed in (0, 1))


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


def ended(state: str = "done", reached: bool | None = None, error: Exception | None = None) -> TourRun:
    answer = None if reached is None else {"result": {"target_reached": reached}}
    return TourRun("dlrm", "all-cores", state=state, answer=answer, error=error)


@pytest.mark.parametrize(
    ("tour", "status"),
    [
        ([ended(reached=True), ended(reached=True)], 0),
        ([ended(reached=True), ended(reached=False)], 1),
        ([ended(reached=True), ended("failed", error=WorkerFailed("killed"))], 1),
        ([ended("failed", error=UserError("no data")), ended("failed", error=WorkerFailed("killed"))], 1),
        ([ended(reached=True), ended("failed", error=UserError("no data"))], 2),
        ([ended(reached=True), ended("stopped"), ended("waiting")], 130),
    ],
)
def test_the_exit_status_tells_success_from_a_missed_target(tour, status):
    assert exit_status(tour) == status


def test_runs_share_the_time_that_is_left(tmp_path, monkeypatch):
    """A tour on a machine so slow that each run takes all it may ends when the tour is to end."""
    clock, spent = [0.0], []

    class Slow:
        answer = None

        def __init__(self, command):
            spent.append(float(command.arguments[command.arguments.index("--max-seconds") + 1]))
            clock[0] += 100  # it waits for its cores, which is not its time

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

        def events(self):
            yield {"kind": "Started", "folder": "runs/x"}
            clock[0] += spent[-1]

    monkeypatch.setattr(tour_run, "LaunchedRun", Slow)
    monkeypatch.setattr(tour_run, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    run_tour([TourRun("dlrm", "all-cores") for _ in range(8)], tmp_path, lambda run, event: None)
    assert sum(spent) == pytest.approx(8 * tour_run.SECONDS_A_RUN)
    assert max(spent) <= tour_run.RUN_SECONDS


@pytest.mark.skipif(sys.platform == "win32", reason="signals a process group")
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_stops_the_tour_keeps_what_it_has_and_starts_no_further_run(tmp_path, presses):
    """In the terminal's manner: SIGINT to the whole group. Two presses at once, for the impatient."""
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit", "tour", "--jobs", "dlrm"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "auc" in line:  # the first evaluation of the first run
            break
    family = psutil.Process(process.pid).children(recursive=True)
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130, rest
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_run(folder).status in (("stopped",) if presses == 1 else ("stopped", "interrupted"))
    assert "0 of 1" in rest
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.quiet
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tour_reaches_every_target_and_writes_the_page(tmp_path):
    answer = subprocess.run(
        [sys.executable, "-m", "labkit", "tour"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    runs = list_runs(tmp_path / "runs")
    assert len(runs) == 4 * len(offered_budgets())
    assert runs["target_reached"].all(), runs
    assert len(re.findall(r"2 of 2(?! runs)", answer.stdout)) == 2 * len(offered_budgets())
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "DLRM" in page and "Speech" in page
    assert "<input" in page
