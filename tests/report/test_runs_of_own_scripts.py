"""Runs of anyone's script: with a metric that labkit does not know, without a target, without a metric."""

import pandas as pd
import pytest

import labkit
from labkit.report.summary_text import headline
from labkit.runs import run_folders
from labkit.tta import curves, default_target, run_table, summary
from labkit.widgets.run_monitor import RunFeed


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_QUIET", "1")
        with labkit.Run("chars", target="perplexity <= 12", confirm=1, config={"lr": 0.1}, runs_dir=folder) as run:
            for perplexity in (40, 20, 10):
                run.step(perplexity / 10, samples=8)
                run.evaluate(perplexity=perplexity, bits=perplexity / 2)
        with labkit.Run("translate", target="bleu >= 30", runs_dir=folder) as run:
            for bleu in (10, 20):
                run.step(samples=8)
                run.evaluate(bleu=bleu)
        with labkit.Run("without-target", runs_dir=folder) as run:
            for accuracy in (0.5, 0.8):
                run.step(samples=8)
                run.evaluate(accuracy=accuracy)
        with labkit.Run("without-metric", runs_dir=folder) as run:
            run.step(samples=8)
    return folder


def test_metrics_of_ones_own_are_judged_in_their_direction_and_without_one_nothing_is_claimed(runs_dir):
    runs = run_table(run_folders(runs_dir))
    results = summary(curves(runs["folder"], runs=runs), runs)
    chars, translate = (results[results["job"] == job].iloc[0] for job in ("chars", "translate"))
    assert (chars["metric"], chars["target"], chars["reached"], chars["samples_median"]) == ("perplexity", 12, 1, 24)
    assert (translate["metric"], translate["reached"]) == ("bleu", 0)
    assert headline(results[results["job"] == "translate"]) == "translate did not reach bleu 30: 0 of 1 runs got there."

    own = runs[runs["job"] == "without-target"]
    assert own["metric"].item() == "accuracy", "the first that was evaluated"
    assert default_target(curves(own["folder"], runs=own), own) == 0.8
    own = results[results["job"] == "without-metric"]
    assert headline(own) == "without-metric has no target, and was not evaluated."
    assert own["cost_note"].item() == "there is no target"


@pytest.mark.parametrize("texts_are_typed", [False, True])  # as pandas 3 has them
def test_the_page_shows_them_all(runs_dir, tmp_path, texts_are_typed, cli):
    with pd.option_context("future.infer_string", texts_are_typed):
        cli("report", runs_dir, "--out", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "chars reached perplexity 12 in " in page
    assert "1 run under 1 budget; no metric; provenance: measured." in page
    assert ">nan<" not in page and "None" not in page.partition("<script")[0]


def test_they_are_listed_and_shown_and_their_energy_is_accounted_for(runs_dir, cli):
    listed = cli("runs list --runs-dir", runs_dir).out
    assert "perplexity 12" in listed and listed.count("–") >= 2
    shown = "".join(cli("runs show", folder).out for folder in run_folders(runs_dir))
    assert "accuracy 0.8" in shown and "logged" in shown
    accounts = cli("energy --runs-dir", runs_dir, "--power", "50", "--json").json
    assert len(accounts) == 4 and all(account["energy_j"] > 0 for account in accounts)


def test_the_monitor_shows_the_metric_of_each_script(runs_dir):
    metrics = [RunFeed(folder).read().curves[0].title for folder in run_folders(runs_dir)]
    assert sorted(metrics) == ["Metric", "accuracy", "bleu", "perplexity"]
