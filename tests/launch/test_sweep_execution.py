"""Cells run in turns, each ends once whatever happens to it or to the sweep, and nothing is left running."""

import errno
import itertools
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from light_run import LOG
from processes import marked_where, wait_for

from labkit.errors import UserError
from labkit.hardware import leases
from labkit.json_data import to_json
from labkit.launch import Launches, opened, read_progress, read_sweep_file, run_sweep, sweep as sweeps
from labkit.launch.sweep import Progress, read_states, sweep_folder
from labkit.process import GRACE_S, SupervisedJobs
from labkit.runs import readable_runs, run_folders
from labkit.tracking import StopRequest

KILLED = Path(__file__).with_name("killed.py")
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals"),
    pytest.mark.usefixtures("light"),
]


def run(file, runs, on_event=lambda *event: None, stop=None, **how):
    """Run a sweep to its end; the states of its cells in order."""
    sweep = read_sweep_file(file)
    with opened(sweep, runs, **how) as progress:
        run_sweep(progress, on_event, StopRequest() if stop is None else stop)
    return [progress.launches.parts[cell.key] for cell in sweep.cells]


def ended(runs):
    """The results of each cell by the records: how many runs of it are done."""
    found = [record for _, record in readable_runs(run_folders(runs))]
    return Counter(record.config["sweep"]["cell"] for record in found if record.status == "done")


def start(file):
    return subprocess.Popen([sys.executable, KILLED, "sweep", file, "0"], stderr=subprocess.PIPE)


def cells_of(runs):
    """The processes of cells that are still there; their folder for runs is nobody else's."""
    return marked_where(lambda each: "light_run" in each.cmdline() and each.cwd() == str(runs.parent))


def test_all_of_a_repeat_runs_before_the_next_and_every_state_is_on_disk(write, runs):
    file, seen = write("grid: {x: [1, 2]}\nseeds: [3, 4]\nrepeats: 2\n"), []
    found = run(file, runs, lambda part, event: seen.append((event["kind"], part.status)))
    order = [line.split() for line in (runs / LOG).read_text().splitlines()]
    asked = [(words[words.index("repeat") + 1], words[words.index("--seed") + 1], words[1]) for words in order]
    assert asked == [(repeat, seed, x) for repeat in "12" for seed in "34" for x in "12"]
    assert seen[:3] == [("State", "running"), ("Started", "running"), ("Ended", "running")]
    assert {part.status for part in found} == {"done"} and all(part.seconds > 0 for part in found)
    assert read_states("s", runs)[0].parts == {part.name: part for part in found}
    record = json.loads((runs / found[0].run / "run.json").read_text())
    told = {"name": "s", "cell": found[0].name, "settings": {"x": "1"}, "repeat": 1}
    assert record["config"]["sweep"] == told and record["seed"] == 3


def test_finished_cells_stay_when_values_are_added_and_when_their_states_are_lost(write, runs):
    (old,) = run(write("grid: {x: [1]}\n"), runs)
    (sweep_folder(runs, "s") / "launches.jsonl").unlink()
    file = write("grid:\n  x: [2, 1]   # one more\n")
    sweep = read_sweep_file(file)
    assert read_progress(sweep, runs).count("done") == 1
    new, same = run(file, runs)
    assert (same.name, same.run) == (old.name, old.run) and len(run_folders(runs)) == 2
    other = read_sweep_file(write("grid: {x: [2]}\n"))
    assert read_progress(other, runs).not_in_file == 1
    for path in run_folders(runs):  # the run's own record is the truth
        if path.name == new.run:
            (path / "run.json").unlink()
    assert read_progress(sweep, runs).count("waiting") == 1


@pytest.mark.parametrize(
    ("ends", "state", "runs_made", "why"),
    [
        ("done", "done", 1, None),
        ("diverged", "done", 1, None),
        ("crashes-once", "done", 2, None),
        ("killed", "failed", 2, "its process was ended by SIGKILL"),
        ("error", "failed", 2, "ValueError: oops"),
        ("oom", "failed", 2, "too much memory"),
        ("refused", "failed", 0, "there is no such data"),
    ],
)
def test_what_crashed_is_tried_once_more_and_the_sweep_goes_on(write, runs, ends, state, runs_made, why):
    first, second = run(write(f"cells:\n  - ends: {ends}\n  - ends: done\n    x: 3\n"), runs)
    assert (first.status, first.reason) == (state, why or "") and len(run_folders(runs)) == runs_made + 1
    assert first.attempts == max(1, runs_made) and second.status == "done"
    again = [part.status for part in run(write("cells:\n  - ends: " + ends + "\n"), runs)]
    assert again == [state] and len(run_folders(runs)) == runs_made + 1, "what has failed stays so"


def test_failed_cells_are_tried_again_where_that_is_asked_for(write, runs):
    file = write("settings: {ends: killed}\n")
    assert [state.attempts for state in run(file, runs)] == [2]
    assert [(s.status, s.attempts) for s in run(file, runs, retry_failed=True)] == [("failed", 2)]
    assert len(run_folders(runs)) == 4
    with opened(read_sweep_file(file), runs, retry_failed=True):
        pass  # the sweep is killed here, say
    assert read_progress(read_sweep_file(file), runs).count("waiting") == 1, "the same command need not ask again"


def test_arguments_that_a_script_does_not_know_end_the_sweep_at_its_first_cell_only(write, runs):
    usage = write("cells:\n  - ends: usage\n  - ends: done\n")
    with pytest.raises(UserError, match=r"s\.yaml, line 1, field 'script'.*status 2.*unrecognized arguments"):
        run(usage, runs)
    assert read_progress(read_sweep_file(usage), runs).count("waiting") == 2
    later = run(write("cells:\n  - ends: done\n  - ends: usage\n"), runs)
    assert [(part.status, part.attempts) for part in later] == [("done", 1), ("failed", 1)]


def test_a_full_disk_ends_the_sweep_with_its_states_intact(write, runs, monkeypatch):
    file = write("cells:\n  - ends: done\n  - ends: full\n")
    with pytest.raises(UserError, match=r"the disk is full .*give the same command again"):
        run(file, runs)
    assert [read_progress(read_sweep_file(file), runs).count(state) for state in ("done", "waiting")] == [1, 1]

    def full(*arguments):
        raise OSError(errno.ENOSPC, "no space")

    file = write("grid: {x: [1, 2]}\n")
    with opened(read_sweep_file(file), runs) as progress, monkeypatch.context() as patched:
        patched.setattr(Launches, "save", full)
        with pytest.raises(OSError, match="no space"):
            run_sweep(progress, lambda *event: None, StopRequest())
    assert {part.status for part in run(file, runs)} == {"done"}
    assert set(ended(runs).values()) == {1}


def test_a_script_is_asked_to_end_when_its_time_is_over_and_that_is_its_result(write, runs, monkeypatch):
    file = write("settings: {takes: 60}\nmax_seconds: 0.4\n")
    (state,) = run(file, runs)
    assert (state.status, state.out_of_time) == ("done", True)
    assert [state.run for state in run(file, runs)] == [state.run], "it is not repeated"
    monkeypatch.setattr(sweeps._SweepEngine, "grace_s", 0.5)
    (deaf,) = run(write("settings: {takes: 60, deaf: 1}\nmax_seconds: 0.4\n", "deaf.yaml"), runs)
    assert deaf.status == "failed" and deaf.attempts == 1
    assert deaf.reason.startswith("it had not ended 0.5 s after its 0.4 s were over, and was killed")


def test_ctrl_c_ends_the_run_under_way_and_its_cell_waits(write, runs):
    file, stop = write("settings: {takes: 60}\ngrid: {x: [1, 2]}\n"), StopRequest()

    def interrupt(part, event):
        if event["kind"] == "Started":
            stop.request("SIGINT")

    run(file, runs, interrupt, stop)
    progress = read_progress(read_sweep_file(file), runs)
    assert progress.count("waiting") == 2 and [part.attempts for part in progress.launches.parts.values()] == [0, 0]
    ((_, record),) = readable_runs(run_folders(runs))
    assert record.status == "stopped"


def test_a_cell_that_was_under_way_when_the_sweep_broke_off_comes_last(write, runs):
    file = write("grid: {x: [1, 2]}\n")
    with opened(read_sweep_file(file), runs) as progress:
        first = next(iter(progress.launches.parts.values()))
        first.status, first.attempts = "running", 1
        progress.launches.save(first)
    assert [(part.attempts, part.broken_off) for part in run(file, runs)] == [(1, 1), (1, 0)]
    assert [line.split()[1] for line in (runs / LOG).read_text().splitlines()] == ["2", "1"]


def test_a_run_that_goes_on_is_waited_for_and_killed_where_it_does_not_end(write, runs, monkeypatch):
    """By its record, as of a sweep that an earlier version of labkit ran."""
    for name, words, statuses in (("s", "takes: 0.5", ["done"]), ("deaf", "takes: 60, deaf: 1", ["interrupted"])):
        monkeypatch.setattr("labkit.process.GRACE_S", GRACE_S if name == "s" else 0.3)
        sweep = read_sweep_file(write(f"settings: {{{words}}}\nname: {name}\n", f"{name}.yaml"))
        with SupervisedJobs(0.1) as jobs:
            command = to_json(sweep.command(sweep.cells[0], runs / name))
            jobs.start("a", "light_run", command, str(runs.parent / "log"), {})
            while (jobs.next_event(1) or {}).get("event", {}).get("kind") != "Started":
                pass
            with opened(sweep, runs / name) as progress:
                assert progress.count(statuses[0].replace("interrupted", "waiting")) == 1
        assert [record.status for _, record in readable_runs(run_folders(runs / name))] == statuses


def test_a_second_process_is_refused_and_a_run_without_a_folder_has_ended_before_its_cell_starts_again(write, runs):
    file = write("settings: {late: 3}\n")
    process = start(file)
    wait_for(lambda: cells_of(runs))
    with pytest.raises(UserError, match=rf"process {process.pid} on .* runs this"):
        run(file, runs)
    process.kill()
    process.wait()
    assert cells_of(runs), "its process has not begun its run, and does not listen"
    with opened(read_sweep_file(file), runs) as progress:
        assert not cells_of(runs) and progress.count("waiting") == 1


def test_two_sweeps_take_turns_on_the_cores(write, runs, monkeypatch, tmp_path):
    """Both want all cores, so no two of their runs overlap."""
    # an earlier test may have left leases to this process, which would lend them to both
    monkeypatch.delenv(leases.LEASED_VARIABLE, raising=False)
    monkeypatch.setenv(leases.FOLDER_VARIABLE, str(tmp_path / "cores"))
    files = [write(f"settings: {{takes: 0.1}}\ngrid: {{x: [1, 2]}}\nname: {name}\n", f"{name}.yaml") for name in "ab"]
    processes = [start(file) for file in files]
    assert [process.wait(60) for process in processes] == [0, 0]
    spans = sorted((record.started_at, record.ended_at) for _, record in readable_runs(run_folders(runs)))
    assert len(spans) == 4
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans)), spans


def test_the_time_left_is_that_of_finished_cells_of_earlier_runs_or_at_most_the_limit(write, runs):
    sweep = read_sweep_file(write("grid: {x: [1, 2]}\nmax_seconds: 30\n"))
    assert read_progress(sweep, runs).time_left() == (60, "limit")
    progress = Progress(sweep, read_progress(sweep, runs).launches, [5.0, 7.0, 90.0])
    assert progress.time_left() == (14, "runs")
    done = progress.launches.parts[sweep.cells[0].key]
    done.status, done.seconds = "done", 3.0
    assert progress.time_left() == (3, "cells")
    unlimited = read_sweep_file(write("grid: {x: [1, 2]}\n"))
    assert read_progress(unlimited, runs).time_left() == (None, "")


@pytest.mark.parametrize(("lead_s", "took_s"), [(5, 15), (600, 10), (-30, 10)])
def test_a_run_took_the_start_of_its_process_unless_that_ran_others_before(lead_s, took_s):
    began = datetime(2026, 11, 28, 12, tzinfo=UTC)
    record = SimpleNamespace(
        started_at=began.isoformat(),
        ended_at=(began + timedelta(seconds=10)).isoformat(),
        pid_started=began.timestamp() - lead_s,
    )
    assert sweeps._took_s(record) == took_s
