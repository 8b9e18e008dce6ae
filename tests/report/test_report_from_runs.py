"""From run folders on disk to frames and the page, with synthetic runs written as a training loop writes them."""

import json
import re
import shutil
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from made_up import DISTURBED, write_run

from labkit.errors import UserError
from labkit.report import write_report
from labkit.runs import TELEMETRY, run_folders
from labkit.runs.parts import PartWriter
from labkit.tta import curves, run_table, summary


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
    parts = PartWriter(measured / "telemetry", TELEMETRY)
    counter = {"device": "cpu", "scope": "host", "pid": 1, "counter": "cpu_energy_intel-rapl:0", "unit": "J"}
    counter |= {"source": "RAPL", "note": "wraps at 100000.0 J"}
    for number in range(20):  # 50 W
        parts.append(counter | {"time_ns": int((began + number / 2) * 1e9), "value": 25.0 * number})
    parts.flush()
    html = write_report(run_folders(tmp_path), tmp_path / "page.html").read_text(encoding="utf-8")
    (job,) = json.loads(re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL)[1])["jobs"]
    (energy,) = (axis for axis in job["axes"] if axis["key"] == "energy_j")
    (median,) = (median for median, _ in energy["medians"][job["start"]] if median)
    assert median == pytest.approx(150.0, rel=0.01)
