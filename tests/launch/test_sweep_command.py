"""`labkit sweep` on a real script: preview, a line a cell, memory that runs out, table, figure, page; and the frame."""

import numpy as np
import pandas as pd
import pytest
from made_up import write_run

from labkit.cli import build_parser
from labkit.cli.run import resumed_command
from labkit.errors import DataError, UserError
from labkit.launch import read_sweep, read_sweep_file, sweep as sweeps
from labkit.plots import describe, figure_sweep
from labkit.runs import list_runs, read_run
from labkit.tracking import StopRequest
from labkit.tta import run_table

SCRIPT = """
import argparse, time, labkit
flags = argparse.ArgumentParser()
flags.add_argument("--mib", type=int)
flags.add_argument("--seed", type=int)
args = flags.parse_args()
with labkit.Run("greedy", target="score >= 0.5", config={"mib": args.mib}, seed=args.seed) as run:
    run.step(0.5, samples=10)
    held = bytearray(args.mib << 20)
    time.sleep(1 if args.mib > 100 else 0)
    run.log(state=7.0, held=len(held) >> 20)
    for score in (0.6, 0.7):
        run.evaluate(score=score)
    run.test(score=0.65)
"""


def test_a_script_is_swept_and_one_cell_runs_out_of_its_memory(write, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweeps, "MOST_ATTEMPTS", 1)  # the second attempt is tried with light runs
    file = write("grid: {mib: [2, 3000]}\nseeds: [4]\nbudget: ['cores=1,memory=700MiB']\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    out = cli("sweep --dry-run", file).out
    assert "s: 2 cells of train.py; what varies: mib (2); 0 of 2 done." in out and "not known until" in out
    out = cli("sweep", file, status=1).out
    assert "1/2  mib 2: target after" in out and "1 of 2 done, 1 failed" in out
    assert "2/2  mib 3000: failed: The run needs more memory than its budget" in out

    shown = cli("sweep show --json --csv s.csv --html s.html --y held", file)
    done, failed = shown.json
    told = {"mib": 2, "seed": 4, "repeat": 1, "state": "done", "held": 2, "state_logged": 7, "score": 0.7}
    assert told.items() <= done.items() and (done["test_score"], done["target_reached"]) == (0.65, True)
    assert done["time_to_target_s"] > 0 and done["cost_usd"] > 0 and done["provenance"] == "emulated"
    assert failed["state"] == "failed" and failed["held"] is None and "more memory" in failed["error"]
    assert list(pd.read_csv("s.csv")["held"].dropna()) == [2] and "mib 3000: The run needs more memory" in shown.err
    page = (tmp_path / "s.html").read_text()
    assert "Line chart. Horizontal axis: mib" in page and 'src="http' not in page

    runs = list_runs("runs")
    assert len(runs) == 2 and read_run(runs["folder"][0]).config["sweep"]["settings"] == {"mib": "2"}
    cli("sweep show s")  # by its name, too
    assert "--csv nowhere/s.csv: there is no folder nowhere" in cli("sweep show s --csv nowhere/s.csv", status=2).err
    assert "there is no sweep 't' in runs" in cli("sweep show t", status=2).err


def test_shapes_without_room_are_told_before_the_start(write, tmp_path, cli):
    file = write("grid: {num_rows: [1000, 9000000000000]}\n", first="script: dlrm_shape.py\n")
    out = cli("sweep --dry-run --runs-dir", tmp_path, file).out
    assert "2 cells of dlrm_shape.py" in out
    assert "No room for 1 of them here and now, which will say so and fail: num_rows 9000000000000: this shape" in out


def test_the_command_goes_on_where_it_was_and_says_what_its_file_has_no_more(write, light, tmp_path, cli, monkeypatch):
    runs = ("--runs-dir", tmp_path / "runs")
    cli("sweep", write("grid: {x: [1, 2]}\n"), *runs)
    file = write("grid: {x: [2, 3, 4]}\nsettings: {ends: done}\nmax_seconds: 9\n")
    told = cli("sweep --dry-run --json", file, *runs).json
    assert told == {"name": "s", "cells": 3, "done": 0, "failed": 0, "running": 0, "waiting": 3} | {
        "predicted_s": pytest.approx(told["predicted_s"]), "predicted_by": "cells",
        "waiting_keys": [cell.key for cell in read_sweep_file(file).cells],
    }  # fmt: skip

    monkeypatch.setattr(StopRequest, "__bool__", lambda stop: True)
    out = cli("sweep", file, *runs, status=130).out
    assert "2 finished cells of this name are not in this file any more; they stay." in out
    assert f"0 of 3 done. Continue with the same command: labkit sweep {file}" in out


def test_cells_without_a_result_are_rows_and_runs_of_other_cells_are_none(write, tmp_path, monkeypatch):
    sweep = read_sweep_file(write("grid: {x: [8, b], y: [1]}\nrepeats: 2\n"))
    runs, told = tmp_path / "runs", [sweep.command(cell, "").sweep for cell in sweep.cells]
    first = write_run(runs, [0.7, 0.8], config={"sweep": told[0]})
    write_run(runs, [0.5], config={"sweep": told[1]}, status=None)
    write_run(runs, [0.6], config={"sweep": told[2] | {"name": "another"}})
    frame = read_sweep(tmp_path / "s.yaml", runs)
    assert list(frame.columns[:6]) == ["x", "y", "budget", "seed", "repeat", "state"]
    assert list(frame["x"]) == ["8", "b", "8", "b"] and list(frame["y"]) == [1] * 4
    assert list(frame["state"]) == ["done", "waiting", "waiting", "waiting"]
    assert frame["run"][0] == first.name and frame["auc"][0] == 0.8 and frame["auc"][1:].isna().all()
    assert frame["samples_per_s"][0] == 660
    assert not (runs / "sweeps").exists(), "looking writes nothing"
    with pytest.raises(UserError, match=r"there is no sweep 'nope' in .*none has run there"):
        read_sweep("nope", runs)
    # a script need not record what it was given for its runs to be told apart, and repeats are pooled
    other = write_run(runs, [0.7], config={"sweep": told[1]})
    again = write_run(runs, [0.7], config={"sweep": told[2]})
    assert list(run_table([first, other, again])["setting"]) == ["x 8", "x b", "x 8"]


def test_a_run_that_is_resumed_by_hand_is_still_one_of_its_sweep(write, tmp_path):
    sweep = read_sweep_file(write("grid: {x: [8]}\n"))
    told = sweep.command(sweep.cells[0], "").sweep
    config = {"sweep": told, "script": str(sweep.script)}
    folder = write_run(tmp_path / "runs", [0.7], config=config, status="stopped", keeps=["model"])
    assert resumed_command(build_parser("run").parse_args(["run", "--resume", str(folder)]), []).sweep == told


def test_a_damaged_state_is_refused_with_its_line(write, light, tmp_path, cli):
    file = write("grid: {x: [1]}\n")
    cli("sweep", file, "--runs-dir", tmp_path / "runs")
    path = tmp_path / "runs" / "sweeps" / "s" / "launches.jsonl"
    head, launch, *_ = path.read_text().splitlines()
    for line in ("{", "[]", '{"state": {"launch": "other"}}', launch.replace('"name"', '"nome"', 1)):
        path.write_text(f"{head}\n{line}\n")
        with pytest.raises(DataError) as error:
            read_sweep(file, tmp_path / "runs")
        assert (error.value.file, error.value.line) == (path, 2)
    path.write_text(f"{head}\n{launch}\n" + '{"state": {"launch":')
    assert list(read_sweep(file, tmp_path / "runs")["state"]) == ["done"], "the half of a line is none yet"
    path.write_text("")
    with pytest.raises(UserError, match="nothing was started here"):
        read_sweep(file, tmp_path / "runs")


def test_a_sweep_of_an_earlier_version_is_continued_by_the_records_of_its_runs(write, light, tmp_path, cli):
    """It kept a file for each cell, which is not read any more."""
    file, runs = write("grid: {x: [1, 2]}\n"), tmp_path / "runs"
    sweep = read_sweep_file(file)
    write_run(runs, [0.7], config={"sweep": sweep.command(sweep.cells[0], runs).sweep})
    old = runs / "sweeps" / "s"
    old.mkdir(parents=True)
    (old / f"{sweep.cells[0].key}.json").write_text("{}")
    with pytest.raises(UserError, match="an earlier version of labkit ran this sweep: give its file"):
        read_sweep("s", runs)
    cli("sweep", file, "--runs-dir", runs)
    assert len(list_runs(runs)) == 2 and list(read_sweep("s", runs)["state"]) == ["done", "done"]


FRAME = pd.DataFrame(
    [(64, "half", 0, 10.0), (64, "half", 1, 20.0), (64, "half", 2, 90.0), (4096, "half", 0, 900.0),
     (64, "<b>", 0, 30.0), (4096, "<b>", 0, np.nan)],
    columns=["batch_size", "budget", "seed", "samples_per_s"],
).assign(provenance="measured", word=list("bbabab"))  # fmt: skip


def test_the_figure_has_medians_over_points_and_axes_as_their_values_ask_for():
    figure = figure_sweep(FRAME, "batch_size", "samples_per_s", "budget")
    points, half, other = figure.data
    assert [trace.name for trace in (half, other)] == ["half · measured", "&lt;b&gt; · measured"]
    assert (list(half.x), list(half.y), list(half.text)) == ([64, 4096], [20, 900], ["median of 3", "one cell"])
    assert points.hoverinfo == "skip" and sorted(points.y) == [10, 20, 90, 900] and list(other.y) == [30]
    assert figure.layout.xaxis.type == "log" == figure.layout.yaxis.type
    words = describe(figure).text
    assert "greatest at budget half, batch_size 4096: 900; least at budget half, batch_size 64: 20." in words
    narrow = figure_sweep(FRAME[:3], "seed", "samples_per_s")
    assert narrow.layout.xaxis.type is None and len(narrow.data) == 1, "no repeats, no points"
    words = figure_sweep(FRAME, "word", "samples_per_s")
    assert words.layout.xaxis.type == "category" and list(words.layout.xaxis.categoryarray) == ["b", "a"]
    for x, y, said in (("nope", "seed", "'nope' is no column"), ("word", "word", "no cell of this sweep has a word")):
        with pytest.raises(UserError, match=said):
            figure_sweep(FRAME, x, y)
