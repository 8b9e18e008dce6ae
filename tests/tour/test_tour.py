"""The main job."""

import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from labkit.hardware.budgets import offered_budgets
from labkit.runs import list_runs
from labkit.tour.display import TourDisplay
from labkit.tour.plan import plan_tour
from labkit.tour.run import run_tour
from labkit.training.request import TrainRequest


def test_the_plan_is_every_job_budget_and_seed_once():
    budgets = [budget.name for budget in offered_budgets()]
    plan = [(request.job, request.budget, request.seed) for request in plan_tour()]
    assert sorted(plan) == sorted((job, b, seed) for job in ("dlrm", "speech") for b in budgets for seed in (0, 1))


def test_a_run_that_fails_costs_no_other_run(tmp_path):
    good = TrainRequest("dlrm", data="synthetic-small", max_epochs=1, target="0.5")
    bad = TrainRequest("dlrm", data="no-such-data")
    console = Console(record=True, width=200, file=io.StringIO())
    with TourDisplay(console) as display:
        tour = run_tour([bad, good], tmp_path, display.show)
    assert [run.state for run in tour] == ["failed", "done"]
    assert tour[1].folder.is_dir()
    text = console.export_text()
    assert "no-such-data" in text
    assert re.search(r"reached its target after \d+\.\d s", text)


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
    assert answer.stdout.count("2 of 2") == 2 * len(offered_budgets())
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "DLRM" in page and "Speech" in page
    assert "<input" in page
