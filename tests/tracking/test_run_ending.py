"""How runs end; what a run's sampler adds to its record, and what happens when it or the disk fails."""

import errno
import importlib
import math
import os
import pkgutil
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest
import torch
from folders import as_killed, events, in_harness

import labkit
from labkit.errors import UserError
from labkit.runs import list_runs, read_events, read_metrics, read_run, read_telemetry, run_folders
from labkit.telemetry import Look
from labkit.tracking.ending import CLOSE_RECORD, RunFailed
from labkit.tracking.events import Notice, Progress
from labkit.tracking.position import random_state
from labkit.tta import run_table

# how it ends


def test_a_loss_that_is_no_number_fails_the_run_and_loses_nothing(run):
    with (
        pytest.raises(RunFailed, match=r"loss is nan at step 3 with learning rate 0.5.*Lower the learning rate"),
        run(target="auc >= 0.9") as open_run,
    ):
        model = torch.nn.Linear(1, 1)
        table = torch.nn.Embedding.from_pretrained(torch.ones(100_000, 1).half())  # whose sum is beyond float16
        open_run.keep(model=model, table=table, optimizer=torch.optim.SGD(model.parameters(), lr=0.5))
        open_run.step(torch.tensor(0.25), samples=1)
        open_run.evaluate(auc=0.5)
        open_run.step(torch.tensor(0.75), samples=1)
        open_run.step(torch.tensor(math.nan), samples=1)
    record = read_run(open_run.folder)
    assert (record.status, record.result["ended_by"]) == ("failed", "diverged")
    assert "latest.pt, of step 1" in record.result["reason"]
    rows = read_metrics([open_run.folder])
    assert rows[rows["name"] == "loss"]["value"].tolist() == [0.25, 0.75]
    assert [event["kind"] for event in events(open_run.folder, "fault")] == ["diverged"]


@pytest.mark.parametrize("evaluated", [True, False])
def test_weights_that_are_no_numbers_are_never_saved(run, evaluated):
    """The loss before the bad update was finite, and so is the error rate of a model that outputs NaN."""
    with pytest.raises(RunFailed, match="a weight is not a number at step 1"), run(target="cer <= 0.1") as open_run:
        model = torch.nn.Linear(1, 1)
        open_run.keep(model=model)
        torch.nn.init.constant_(model.weight, math.nan)
        open_run.step(0.5, samples=1)
        if evaluated:
            open_run.evaluate(cer=0.5)
    assert read_run(open_run.folder).status == "failed"
    assert not (open_run.folder / "checkpoint").exists()


@pytest.mark.parametrize(
    ("error", "status", "word", "reason"),
    [
        (ValueError("oops"), "failed", "error", "ValueError: oops"),
        (SystemExit(3), "failed", "exit", "the script ended by sys.exit(3)"),
        (SystemExit(0), "done", "exit", "the script ended by sys.exit(0)"),
        (KeyboardInterrupt(), "stopped", "stopped", "stopped by Ctrl-C"),
        (UserError("the disk is full"), "stopped", "refused", "the disk is full"),
    ],
)
def test_however_a_script_leaves_the_record_says_so(run, error, status, word, reason):
    with pytest.raises(type(error)), run() as open_run:
        open_run.step(0.5, samples=1)
        raise error
    record = read_run(open_run.folder)
    assert (record.status, record.result["ended_by"], record.result["reason"]) == (status, word, reason)
    assert events(open_run.folder, "ended")[0]["ended_by"] == word


@pytest.mark.parametrize("batches", [True, False], ids=["batches", "a loop of the script's own"])
def test_sigterm_ends_a_run_after_its_step_and_exits_as_a_shell_expects(run, batches):
    importlib.import_module("ipykernel")  # which no more makes a notebook of a script than `labkit.widgets` does
    model = torch.nn.Linear(1, 1)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ending, run() as open_run:
        open_run.keep(model=model)
        for step in open_run.batches(range(100)) if batches else range(100):
            if step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            open_run.step(0.5, samples=1)
    assert ending.value.code == 130
    assert signal.getsignal(signal.SIGTERM) == handler
    record = read_run(open_run.folder)
    assert (record.status, record.result["steps"], record.result["reason"]) == ("stopped", 3, "stopped by SIGTERM")
    assert (open_run.folder / "checkpoint" / "latest.pt").exists()


# what cannot be


def test_a_run_that_cannot_be_is_refused_before_anything_is_written(run, runs):
    for options, words in (
        ({"target": "accuracy >= 1.5"}, "above 0 and up to 1"),
        ({"confirm": 0}, "confirm is 0: give a whole number of at least 1"),
        ({"evaluate_every": 2.5}, "evaluate_every is 2.5"),
        ({"patience": -1}, "patience is -1"),
        ({"max_seconds": 0}, "max_seconds is 0: give a number above 0"),
    ):
        with pytest.raises(UserError, match=words):
            run(**options)
    assert not runs.exists()
    runs.write_text("a file")
    with pytest.raises(UserError, match="runs"), run():
        pass
    runs.unlink()
    with run():  # the one that was refused is not open
        pass


def test_a_call_that_cannot_be_says_what_to_write(run):
    with run(target="auc >= 0.9") as open_run:
        open_run.step(0.5, samples=1)
        for call, words in (
            (lambda: open_run.evaluate(cer=0.1), r"got cer, but the target auc >= 0.9 needs auc"),
            (lambda: open_run.evaluate(), "got no metric, but the target"),
            (lambda: open_run.evaluate(auc="good"), "metric auc is 'good', not a number"),
            (lambda: open_run.evaluate(auc=60.0), "Divide a percentage by 100"),
            (lambda: open_run.evaluate(auc=0.5, cer=-0.1), "cer is -0.1"),
            (lambda: open_run.step(samples=-4), "run.step: samples is -4"),
            (lambda: open_run.keep(model=3), "a int has no state_dict"),
            (lambda: open_run.epochs(0), "run.epochs: count is 0: give a whole number"),
            (lambda: list(open_run.batches([])), "run.batches got no batch: pass a loader"),
            (lambda: labkit.Run("second").__enter__(), "run 't' is still open"),
            (lambda: open_run.step(torch.zeros(3), samples=1), r"of shape \(3,\) \(torch.float32 on cpu\): give one"),
            (lambda: open_run.step(torch.tensor(1j), samples=1), r"a loss of shape \(\) \(torch.complex64 on cpu\)"),
            (lambda: open_run.step(torch.ones((), device="meta"), samples=1), r"torch.float32 on meta\)"),
        ):
            with pytest.raises(UserError, match=words):
                call()
    assert read_metrics([open_run.folder]).query("name == 'loss'")["value"].tolist() == [0.5]


def test_outside_of_its_block_a_run_takes_nothing(run):
    calls = {"step": {"samples": 1}, "epochs": {"count": 1}, "batches": {"loader": []}}
    closed = run()
    with closed:
        pass
    for each in (run(), closed):
        for name in ("step", "evaluate", "keep", "epochs", "batches", "due", "log", "load_best", "test"):
            with pytest.raises(UserError, match=f"run.{name} was called outside the run's block: write `with"):
                getattr(each, name)(**calls.get(name, {}))


def test_a_seed_that_a_script_fixes_cannot_be_repeated_with_others(runs):
    with in_harness(runs, seed=1):
        with pytest.raises(UserError, match="the script fixes seed 5"), labkit.Run("t", seed=5):
            pass
        with labkit.Run("t") as run:
            pass
    assert read_run(run.folder).seed == 1


# several processes, threads, devices


def test_a_run_draws_no_random_number_tells_those_who_listen_and_says_what_it_lacks(run, runs):
    before, heard = random_state(), []
    with labkit.Run("../a b/ü", runs_dir=runs, target="auc >= 0.9", seed=7) as open_run:
        open_run.listen(heard.append)
        open_run.step(0.5, samples=3)
        open_run.evaluate(auc=0.8)
    assert str(random_state()) == str(before)
    assert (read_run(open_run.folder).seed, read_run(open_run.folder).config["job"]) == (7, "../a b/ü")
    assert open_run.folder.parent == runs
    evaluated = [event for event in heard if isinstance(event, Progress) and event.evaluated]
    assert [(event.point.samples, event.metrics, event.loss) for event in evaluated] == [(3, {"auc": 0.8}, 0.5)]
    with run(target="auc >= 0.9") as unseeded:
        unseeded.step(0.5, samples=1)
    assert "auc was never evaluated: call run.evaluate(auc=...)" in unseeded.result["reason"]
    assert set(list_runs(runs)["seed"]) == {"none", 7}


def test_the_name_that_the_memory_watch_is_given_closes_the_record_of_a_killed_run(run):
    close_record = pkgutil.resolve_name(CLOSE_RECORD)
    with run() as open_run:
        open_run.step(0.5, samples=1)
        killed = as_killed(open_run.folder)
    close_record("it was killed", killed=True, folder=str(killed))  # as the watch calls it, with a noted fact
    assert read_run(killed).result == {"reason": "it was killed", "ended_by": "killed"}


@pytest.fixture
def sampled(tmp_path):
    """Runs a few steps in a harness, with a real sampler; (folder, notices)."""

    def run(at_step=lambda: None, **options):
        told = []
        with in_harness(tmp_path, None, told.append, **options), labkit.Run("t") as open_run:
            for _ in range(3):
                open_run.step(0.5, samples=1)
                at_step()
        return open_run.folder, [event.text for event in told if isinstance(event, Notice)]

    return run


def test_a_run_is_sampled_as_often_as_asked(sampled):
    folder, notices = sampled(lambda: time.sleep(0.3), sample_hz=50)
    assert notices == []
    assert read_telemetry([folder])["time_ns"].nunique() > 10  # two a second, unless asked
    assert read_run(folder).result["peak_memory_bytes"] > 50 * 2**20


NO_MORE = Mock(side_effect=BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))


@pytest.mark.parametrize(
    ("place", "fails", "words"),
    [("sys.executable", "/bin/false", ""), ("subprocess.Popen", NO_MORE, "`ulimit -u`")],
    ids=["it dies", "no process may be started"],
)
def test_a_run_without_its_sampler_goes_on_and_says_so(sampled, monkeypatch, place, fails, words):
    monkeypatch.setenv("LABKIT_WARM", "0")
    monkeypatch.setattr(place, fails)
    folder, notices = sampled()
    record = read_run(folder)
    result = record.result
    assert (record.status, result["steps"], result["peak_memory_bytes"], result["energy_j"]) == ("done", 3, None, None)
    assert any("the sampler failed" in each and words in each for each in notices)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can cap a process' memory")
def test_a_run_that_its_memory_budget_ends_says_so_in_its_record(tmp_path):
    (tmp_path / "greedy.py").write_text(
        "import labkit, numpy as np\n"
        "with labkit.Run('t') as run:\n"
        "    kept = []\n"
        "    while True: kept.append(np.ones(2**20)); run.step(0.5, samples=1)\n"  # piece by piece, as torch does
    )
    command = ["-m", "labkit", "run", "--budget", "cores=1,memory=1GiB", "greedy.py"]
    said = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 2
    (folder,) = (tmp_path / "runs").iterdir()
    record, events = read_run(folder), read_events(folder)
    assert record.status == "failed"
    assert "its budget 'cores=1,memory=1GiB' allows (1 GiB)" in record.result["reason"]
    assert record.result["reason"] in said.stderr
    assert events[-1]["event"] == "ended"
    assert [event["kind"] for event in events if event["event"] == "fault"] == ["error"]


def test_what_other_programs_took_is_recorded_and_jobs_beside_it_by_plan_are_none(runs, monkeypatch):
    class Told(Look):
        def others(self):
            return super().others() | {"cpu_share": 0.4, "disturbed": True}

    monkeypatch.setattr("labkit.telemetry.Look", Told)
    with labkit.Run("t", runs_dir=runs) as run:
        run.step(0.5, samples=1)
    others = read_run(run.folder).result["others"]
    assert (others["cpu_share"], others["disturbed"]) == (0.4, True)
    for mode, family in (("cpu-pinned", os.getpid()), ("cpu-shared", os.getppid())):
        with in_harness(runs, collocation={"mode": mode}) as harness:
            assert harness.family == family


def test_a_power_limit_is_a_setting_of_the_training_and_tells_series_apart(runs):
    for limit in (100.0, 200.0):
        with in_harness(runs, power_limit_w=limit), labkit.Run("t", target="auc >= 0.7", confirm=1) as run:
            run.step(samples=1)
            run.evaluate(auc=0.8)
    assert read_run(run.folder).config["train"]["power_limit_w"] == 200
    table = run_table(run_folders(runs))
    assert sorted(table["setting"]) == ["power_limit_w 100.0", "power_limit_w 200.0"]
