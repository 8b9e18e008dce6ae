"""The report of run folders: usual ones, odd ones, and those of own scripts."""

import json
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import DISTURBED, write_run, write_samples

import labkit
from labkit.errors import UserError
from labkit.live.feed import RunFeed
from labkit.report import write_report
from labkit.report.summary_text import headline
from labkit.runs import run_folders
from labkit.tta import curves, default_target, run_table, summary


def test_a_disturbed_run_is_marked_everywhere_and_can_be_left_out(tmp_path, cli):
    write_run(tmp_path / "runs", [0.6, 0.8])
    folder = write_run(tmp_path / "runs", [0.6, 0.8], seed=1, others=DISTURBED)
    printed = cli("runs list --runs-dir", tmp_path / "runs").out
    (line,) = [line for line in printed.splitlines() if folder.name in line]
    assert "done, disturbed" in line
    page = tmp_path / "page.html"
    for flags, words in ([], "2 runs in"), (["--undisturbed"], "1 disturbed run left out"):
        assert words in cli("report", str(tmp_path / "runs"), "--out", page, *flags).out
        html = page.read_text()
        told = ("other programs disturbed 1 of 2 runs", "other programs took 40% of its cores, most of it stress")
        assert all((each in html) is not bool(flags) for each in (folder.name, *told))


def test_run_table_tells_what_each_run_was_and_took_also_of_a_copy(tmp_path):
    folder = write_run(tmp_path, [0.6, 0.8], seed=3)
    assert curves([folder])[["metric", "value", "wall_s"]].values.tolist() == [["auc", 0.6, 2.0], ["auc", 0.8, 4.0]]
    assert curves([folder], metric="log_loss")["value"].tolist() == pytest.approx([0.4, 0.2])
    (row,) = run_table([folder]).itertuples()
    assert (row.job, row.budget, row.seed, row.provenance) == ("dlrm", "all-cores", 3, "measured")
    assert (row.wall_s, row.samples, row.samples_per_s, row.status) == (4.0, 2000, 660.0, "done")
    assert np.isnan(row.energy_j) and row.energy_note == "no counter"
    assert curves([shutil.copytree(folder, tmp_path / "kept")])["run"].unique().tolist() == ["kept"]
    with pytest.raises(UserError, match="two of the folders"):
        run_table([folder, shutil.copytree(folder, tmp_path / "there" / folder.name)])


def test_runs_that_differ_by_more_than_their_seed_are_not_pooled(tmp_path):
    folders = [write_run(tmp_path, [0.8], lr=lr, seed=seed) for lr in (0.1, 0.2) for seed in (0, 1)]
    table = summary(curves(folders), run_table(folders))
    assert table["budget"].tolist() == ["all-cores"] * 2 and table["setting"].tolist() == ["lr 0.1", "lr 0.2"]
    assert table["runs"].tolist() == [2, 2]
    folders = [write_run(tmp_path, [0.8], budget=name, precision=name[:3]) for name in ("one-core", "all-cores")]
    assert run_table(folders)["setting"].tolist() == ["", ""], "it goes with the budget"
    folders = [write_run(tmp_path, [0.8], config={"optimizer": {"momentum": each}}) for each in (0.0, 0.9)]
    assert run_table(folders)["setting"].tolist() == ["momentum 0.0", "momentum 0.9"]
    folders = [write_run(tmp_path, [0.8], data=data) for data in ("synthetic", "adult")]
    assert run_table(folders)["job"].tolist() == ["dlrm on synthetic", "dlrm on adult"]


def test_the_report_command_writes_a_page_of_all_runs_whatever_became_of_them(tmp_path, cli):
    runs_dir, out = tmp_path / "runs", tmp_path / "report" / "index.html"
    for seed in (0, 1):
        write_run(runs_dir, [0.6, 0.7, 0.79], seed=seed)
    (killed,) = run_table([write_run(runs_dir, [0.6, 0.7], seed=2, status=None)]).itertuples()
    assert (killed.status, killed.wall_s) == ("interrupted", 4.0)
    write_run(runs_dir, [], seed=3, status="failed")
    assert "4 runs in" in cli("report", runs_dir, "--out", out).out
    html = out.read_text(encoding="utf-8")
    assert "DLRM reached AUC 0.78 in 6.0 s (median, 2 of 4 runs reached it) on all cores." in html
    for words in (
        *("2 of 4, 1 cut off", '<span class="mark">interrupted</span>', "failed before the first evaluation"),
        *("censored at 4.0 s", "A test&#39;s CPU, 2 cores, 8.0 GiB", "labkit 0, torch 2"),
        "measured on this whole machine",
    ):
        assert words in html
    assert [path.name for path in out.parent.iterdir()] == ["index.html"]


def test_a_folder_without_runs_is_named_and_a_report_of_no_runs_is_a_page_too(tmp_path, cli):
    for folder, words in ((tmp_path / "nowhere", "nowhere holds no runs"), (tmp_path, "holds no runs")):
        assert words in cli("report", folder, status=2).err
    assert "No runs yet" in write_report([], tmp_path / "index.html").read_text(encoding="utf-8")


def test_energy_is_an_axis_of_the_page_where_it_was_measured(tmp_path):
    write_run(tmp_path, [0.6, 0.7, 0.8], seed=1)
    measured, began = write_run(tmp_path, [0.6, 0.7, 0.8], every_s=1.0, energy_note=None), time.time()
    with (measured / "events.jsonl").open("w") as events:
        for wall_s in (1, 2, 3):
            when = datetime.fromtimestamp(began + wall_s, UTC).isoformat(timespec="milliseconds")
            events.write(json.dumps({"event": "evaluated", "time": when, "wall_s": wall_s}) + "\n")
    joules = {number / 2: 25.0 * number for number in range(20)}  # 50 W
    write_samples(measured, "host", "cpu_energy_intel-rapl:0", joules, note="wraps at 100000.0 J", begin_s=began)
    html = write_report(run_folders(tmp_path), tmp_path / "page.html").read_text(encoding="utf-8")
    (job,) = json.loads(re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL)[1])["jobs"]
    (energy,) = (axis for axis in job["axes"] if axis["key"] == "energy_j")
    (median,) = (median for median, _ in energy["medians"][job["start"]] if median)
    assert median == pytest.approx(150.0, rel=0.01)


def change(folder: Path, **values) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def zero_a_part(folder: Path) -> None:
    part = folder / "metrics" / "part-00001.parquet"
    part.write_bytes(part.read_bytes()[:60] + bytes(16) + part.read_bytes()[76:])


def add_a_line(folder: Path) -> None:
    (folder / "events.jsonl").write_text("5\n" + (folder / "events.jsonl").read_text())


UNREADABLE = {
    "of-another-program": lambda folder: (folder / "run.json").write_text('{"run": 5}'),
    "paused": lambda folder: change(folder, status="paused"),
    "config-as-text": lambda folder: change(folder, config="lr=0.1"),
    "huge-number": lambda folder: (folder / "run.json").write_text('{"schema_version": 1' + "0" * 5000 + "}"),
}
COPY = "metrics/part-00000 2.parquet"
IN_PART = {
    "odd-line": (add_a_line, "events.jsonl: line 1"),
    "odd-part": (zero_a_part, "part-00001.parquet: this part"),
    "copied-part": (
        lambda folder: shutil.copy(folder / "metrics" / "part-00000.parquet", folder / COPY),
        "part-00000 2.parquet: ",
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    damages = {"good": str} | UNREADABLE | {name: damage for name, (damage, _) in IN_PART.items()}
    for name, damage in damages.items():
        damage(write_run(folder, [0.6, 0.8], target=0.7).rename(folder / name))
    return folder


@pytest.mark.parametrize(
    "command", [["runs", "list", "--runs-dir"], ["energy", "--estimate", "--runs-dir"], ["report"]]
)
def test_the_others_are_shown_and_each_odd_one_is_named(runs, tmp_path, cli, command):
    page = tmp_path / "page.html"
    told = cli(*command, runs, *(["--out", page] if command == ["report"] else []))
    for name in UNREADABLE:
        assert f"left out: {runs / name}/run.json" in told.err.replace(f"{runs / name}: ", "")
    if command == ["report"]:
        html = page.read_text(encoding="utf-8")
        assert "4 runs in" in told.out and all(name in html for name in UNREADABLE)
        assert all(note in told.err and note in html for _, note in IN_PART.values())
    else:
        ids = [json.loads((runs / name / "run.json").read_text())["id"] for name in ("good", *IN_PART)]
        assert all(run in told.out for run in ids)


def test_the_frame_of_many_leaves_out_and_that_of_one_refuses(runs, cli):
    with pytest.warns(UserWarning, match="paused"):
        assert len(run_table(run_folders(runs))) == 4
    with pytest.warns(UserWarning, match="config must be an object with keys, not 'lr=0.1'"):
        assert run_table([runs / "good", runs / "config-as-text"])["run"].tolist() == ["good"]
    for name in UNREADABLE:
        assert f"{runs / name}/run.json: this" in cli("runs show", str(runs / name), status=2).err


def test_a_copy_counts_no_rows_twice_and_a_damaged_part_costs_only_itself(runs):
    with pytest.warns(UserWarning):
        table = run_table([runs / name for name in IN_PART])
        values = curves(table["folder"]).groupby("run")["value"].apply(list).to_dict()
    assert values == {"odd-line": [0.6, 0.8], "odd-part": [0.6], "copied-part": [0.6, 0.8]}


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


def test_the_live_page_shows_the_metric_of_each_script(runs_dir):
    feeds = [RunFeed(folder) for folder in run_folders(runs_dir)]
    assert all(feed.update() for feed in feeds)
    assert {feed.metric for feed in feeds} == {None, "accuracy", "bleu", "perplexity"}
