"""Cells that processes of their own run, as any scheduler starts them: each ends once, and goes on where it stopped."""

import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from light_run import LOG
from made_up import write_run
from processes import marked_where, wait_for

from labkit import hardware
from labkit.errors import UserError
from labkit.launch import opened, opened_cell, read_progress, read_sweep, read_sweep_file, run_sweep
from labkit.runs import read_run, readable_runs, run_folders
from labkit.tracking import StopRequest

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals"),
    pytest.mark.usefixtures("light_cells"),
]


def start(file, key):
    command = [sys.executable, "-m", "labkit", "sweep", file.name, "--cell", key]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def keys_of(file):
    return [cell.key for cell in read_sweep_file(file).cells]


def records(runs):
    return [record for _, record in readable_runs(run_folders(runs))]


def test_cells_on_their_own_end_once_each_and_the_sweep_then_has_nothing_to_do(write, runs, cli):
    file = write("settings: {takes: 0.2}\ngrid: {x: [1, 2]}\n")
    listed = cli("sweep --dry-run --json", file).json
    assert listed["waiting_keys"] == keys_of(file)
    for process in [start(file, key) for key in listed["waiting_keys"]]:
        assert process.wait(60) == 0, process.communicate()
    assert cli("sweep --cell", listed["waiting_keys"][0], file).text == "x 1: done already.", "it may be called twice"
    assert cli("sweep --dry-run --json", file).json["waiting_keys"] == []
    assert list(read_sweep(file, runs)["state"]) == ["done", "done"] and len(records(runs)) == 2
    cli("sweep", file)
    assert len(records(runs)) == 2 and not list(runs.glob("sweeps/s/cells/*.jsonl")), "the sweep has their states now"
    assert list(read_sweep("s", runs)["state"]) == ["done", "done"]


def test_a_cell_that_failed_stays_so_until_it_is_to_be_tried_again(write, runs, cli):
    file = write("settings: {ends: error}\n")
    (key,) = keys_of(file)
    assert "failed: ValueError: oops" in cli("sweep --cell", key, file, status=1).text and len(records(runs)) == 2
    said = cli("sweep --cell", key, file, status=1).text
    assert "failed already; --retry-failed tries it again" in said and len(records(runs)) == 2
    cli("sweep --retry-failed --cell", key, file, status=1)
    assert len(records(runs)) == 4
    assert read_progress(read_sweep_file(file), runs).count("failed") == 1


def test_of_one_cell_one_process_at_a_time_and_no_sweep_next_to_it(write, runs, cli):
    file = write("settings: {takes: 60}\ngrid: {x: [1, 2]}\n")
    key, other = keys_of(file)
    process = start(file, key)
    wait_for(lambda: read_progress(read_sweep_file(file), runs).count("running") == 1)
    holder = f"cells/{key}: process {process.pid} on {platform.node()} runs this"
    assert holder in cli("sweep --cell", key, file, status=2).text
    with pytest.raises(UserError, match=holder), opened(read_sweep_file(file), runs):
        pass
    with opened(read_sweep_file(file), runs, elsewhere=True) as progress:
        assert [progress.count(state) for state in ("running", "waiting")] == [1, 1]
        assert process.poll() is None, "what only submits ends nothing"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("labkit.launch.sweep.LOCK_WAIT_S", 0.1)
            whole = read_sweep_file(file).only(other)
            with pytest.raises(UserError, match=rf"sweeps/s: process {os.getpid()} on"), opened_cell(whole, runs):
                pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert read_progress(read_sweep_file(file), runs).count("waiting") == 2
    assert not marked_where(lambda each: each.cwd() == str(runs.parent))


def test_a_key_of_a_file_that_has_changed_is_refused(write, runs, cli):
    file = write("grid: {x: [1]}\n")
    (key,) = keys_of(file)
    write("grid: {x: [2]}\n")
    said = cli("sweep --cell", key, file, status=2).text
    assert f"s.yaml: no cell has the key '{key}': the file has changed" in said and not runs.exists()


def test_a_cell_has_its_key_on_machines_where_its_budget_has_another_name(write, runs, monkeypatch):
    file = write("grid: {x: [1]}\n")
    here = keys_of(file)
    for name in ("one-core", "all-cores", "gpu"):
        budgets = [hardware.Budget(name, 1, torch_name="cuda:0" if name == "gpu" else "cpu")]
        monkeypatch.setattr(hardware, "offered_budgets", lambda budgets=budgets: budgets)
        assert [cell.key for cell in read_sweep_file(file).only(here[0]).cells] == here
    monkeypatch.undo()
    fixed = write("grid: {x: [1]}\nbudget: [one-core]\n", "t.yaml")
    assert read_sweep_file(fixed).cells[0].other_keys == ()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_cell_that_was_cut_off_goes_on_in_its_folder(write, runs, cli, how):
    file = write("settings: {takes: 1, saves: 1}\n")
    (key,) = keys_of(file)
    for _ in range(2):
        process, before = start(file, key), sum(saved(runs))
        wait_for(lambda before=before: sum(saved(runs)) > before + 1)
        process.send_signal(how)
        process.communicate()
        wait_for(lambda: not marked_where(lambda each: each.cwd() == str(runs.parent)))
    cli("sweep --cell", key, file)
    (record,) = records(runs)
    assert record.status == "done" and record.result["samples"] == 10
    assert (runs / LOG).read_text().count("\n") == 1


def saved(runs):
    return [path.stat().st_size for path in runs.glob("*/checkpoint/latest.pt")]


@pytest.mark.parametrize(
    ("more", "statuses"),
    [
        ("settings: {takes: 1, saves: 1}", ["done"]),
        # each process would have the whole time, or the machine is another one
        ("settings: {takes: 1, saves: 1}\nmax_seconds: 30", ["done", "stopped"]),
        ("settings: {takes: 1, saves: 1, resumes: refused}", ["done", "stopped"]),
    ],
)
def test_a_sweep_here_goes_on_in_the_folder_too_where_that_is_the_same_run(write, runs, more, statuses):
    file, stop = write(f"{more}\n"), StopRequest()

    def interrupt(part, event):
        if event["kind"] == "Started":
            wait_for(lambda: sum(saved(runs)) > 2)
            stop.request("SIGINT")

    for asked, on_event in ((stop, interrupt), (StopRequest(), lambda *event: None)):
        with opened(read_sweep_file(file), runs) as progress:
            run_sweep(progress, on_event, asked)
    assert sorted(record.status for record in records(runs)) == statuses
    (part,) = progress.launches.parts.values()
    assert (part.status, part.attempts) == ("done", 1)


def test_a_cell_of_another_host_is_alive_while_its_folder_changes(write, runs, monkeypatch):
    file = write("grid: {x: [1, 2]}\n")
    sweep = read_sweep_file(file)
    told = sweep.command(sweep.cells[0], runs).sweep
    folder = write_run(runs, [0.7], config={"sweep": told}, status=None)
    record = read_run(folder)
    replace(record, host="elsewhere", status="running").save(folder)
    assert read_progress(sweep, runs).count("running") == 1
    monkeypatch.setattr("labkit.launch.sweep.SILENT_S", 0.1)
    monkeypatch.setattr("labkit.process.GRACE_S", 0.1)
    only = sweep.only(sweep.cells[0].key)
    with pytest.raises(UserError, match="this run of the cell goes on on elsewhere"), opened_cell(only, runs):
        pass
    past = time.time() - 3600
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (past, past))
    assert read_progress(sweep, runs).count("waiting") == 2
    with opened_cell(only, runs) as progress:
        run_sweep(progress, lambda *event: None, StopRequest())
    assert progress.count("done") == 1


def test_the_file_of_a_cell_of_another_host_says_that_it_runs_before_there_is_a_run(write, runs):
    sweep = read_sweep_file(write("grid: {x: [1]}\n"))
    with opened_cell(sweep, runs) as progress:
        launches, (part,) = progress.launches, progress.launches.parts.values()
        part.status, part.attempts, launches.head.host = "running", 1, "elsewhere"
        launches.write()
    assert read_progress(sweep, runs).count("running") == 1
    os.utime(launches.file, (1, 1))
    assert read_progress(sweep, runs).count("waiting") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--slurm --time=1", "--slurm is for Slurm: add --executor slurm"),
        ("--at-most 3", "--at-most is for Slurm"),
        ("--executor slurm --at-most 0", "--at-most is 0"),
        ("--executor slurm --cell a", "--cell runs one cell on this machine"),
        ("--executor slurm --slurm --array=0-3", "--slurm --array=0-3: labkit makes the array itself"),
        ("--executor slurm", "Slurm's command squeue is not here: use a machine that submits jobs"),
    ],
)
def test_flags_that_do_not_fit_are_refused(write, runs, cli, monkeypatch, words, said):
    monkeypatch.setenv("PATH", str(runs))
    assert said in cli(f"sweep {words} --runs-dir {runs}", write("grid: {x: [1]}\n"), status=2).text
