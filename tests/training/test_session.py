"""From a request to a result, in this process, with run folder and sampler."""

import contextlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from labkit.compiled import SWITCH
from labkit.errors import UserError
from labkit.runs import find_run, read_events, read_run, read_telemetry
from labkit.training import session
from labkit.training.announcements import Started
from labkit.training.loop import Progress
from labkit.training.request import TrainRequest
from labkit.training.resume import resumed_request
from labkit.training.session import RunFailed, train
from labkit.training.stop import StopRequest
from labkit.tta import run_table

SMALL = TrainRequest("dlrm", data="synthetic-small", max_epochs=1, batch_size=4096)


def run(request: TrainRequest, runs_dir: Path, on_event=lambda event: None, **more) -> dict:
    return train(request, runs_dir=runs_dir, on_event=on_event, stop=StopRequest(), **more)


def test_the_answer_is_what_json_promises_and_what_the_folder_holds(tmp_path):
    events = []
    answer = run(replace(SMALL, target="0.55", max_epochs=30), tmp_path, events.append)
    assert list(answer) == ["run", "folder", "status", "result"]
    assert set(answer["result"]["metrics"]) == {"auc", "log_loss", "normalised_entropy", "accuracy"}
    assert answer["result"]["target_reached"] is True
    assert 0 < answer["result"]["time_to_target_s"] <= answer["result"]["wall_s"]
    first = next(event for event in read_events(answer["folder"]) if event["event"] == "target_reached")
    assert answer["result"]["samples_to_target"] == first["samples"] > 0
    assert answer["result"]["samples_per_s"] > 0
    assert answer["result"]["peak_memory_bytes"] > 50 * 2**20
    record = read_run(answer["folder"])
    assert record.status == answer["status"] == "done"
    assert record.result == json.loads(json.dumps(answer["result"]))
    assert any(isinstance(event, Started) for event in events)


def test_a_recogniser_trains_from_a_manifest(tmp_path, tiny_speech):
    answer = run(TrainRequest("speech", data=str(tiny_speech), max_epochs=2, batch_size=4), tmp_path)
    assert set(answer["result"]["metrics"]) == {"cer", "wer"}
    assert answer["result"]["target_reached"] is None


def test_the_test_split_is_touched_once_at_the_end(tmp_path, monkeypatch):
    from labkit.training.clicks_job import ClicksJob

    splits = []
    real = ClicksJob.evaluate

    def evaluate(self, model, split):
        splits.append(split)
        return real(self, model, split)

    monkeypatch.setattr(ClicksJob, "evaluate", evaluate)
    run(SMALL, tmp_path)
    assert splits.count("test") == 1
    assert splits[-1] == "test"
    assert "validation" in splits


def test_a_smaller_budget_is_emulated_and_the_whole_machine_measured(tmp_path, monkeypatch):
    whole, part = session.offered_budgets()[-1], session.parse_budget("one-core")
    monkeypatch.setattr(type(whole), "enforce", lambda self: [])  # the test's own process stays unbound
    kinds = {}
    for budget in {whole.name: whole, part.name: part}.values():
        answer = run(replace(SMALL, budget=budget.name), tmp_path)
        kinds[budget.emulated] = read_run(answer["folder"]).provenance.kind
    assert kinds[part.emulated] == ("emulated" if part.emulated else "measured")
    assert kinds[whole.emulated] == "measured"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": "cores=4096"}, "4096 cores"),
        ({"budget": "everything"}, "'everything'"),
        ({"device": "cuda:7"}, "cuda:7"),
        ({"device": "tpu"}, "tpu"),
        ({"data": "no-such-data"}, "no-such-data"),
        ({"preset": "mlperf-v1", "budget": "cores=1,memory=1MiB"}, "MiB for its embedding tables"),
    ],
)
def test_what_cannot_be_is_refused_before_a_run_begins(tmp_path, monkeypatch, changes, words):
    monkeypatch.setattr(session.Budget, "enforce", lambda self: [])
    with pytest.raises(UserError, match=words):
        run(replace(SMALL, **changes), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"job": "vision"}, "dlrm, speech"),
        ({"preset": "huge"}, "tour, kaggle"),
        ({"target": "1.2"}, "above 0 and below 1"),
        ({"target": "cer=0.1"}, "cer"),
        ({"schema": "clicks.toml", "data": None}, "name that file too, with --data"),
        ({"sample_hz": 0.0}, "sample_hz is 0: give a number of samples a second from 0.1 to 100"),
        ({"optimiser": "adagrad"}, "for adam, and would not suit adagrad: give one with --lr"),
        ({"job": "speech", "optimiser": "rowwise-adagrad", "lr": 0.1}, "choose --optimiser adagrad"),
    ],
)
def test_a_request_that_cannot_be_is_refused(changes, words):
    with pytest.raises(UserError, match=words):
        replace(SMALL, **changes)


@pytest.mark.parametrize("changes", [{"batch_size": 0}, {"lr": -1.0}, {"max_seconds": 0.0}, {"seed": -1}])
def test_settings_out_of_range_are_refused_by_name(changes):
    name = next(iter(changes))
    with pytest.raises(UserError, match=f"{name} .--{name.replace('_', '-')}. is"):
        replace(SMALL, **changes).train_config(1000)


def test_a_run_is_sampled_as_often_as_asked(tmp_path):
    counts = []
    for hz in (None, 50.0):
        folder = run(replace(SMALL, sample_hz=hz), tmp_path)["folder"]
        counts.append(read_telemetry([folder])["time_ns"].nunique())
    assert counts[1] > 2 * counts[0]


def test_an_optimiser_is_chosen_for_a_run(tmp_path):
    with pytest.raises(UserError, match=r"optimiser .--optimiser. is 'lamb', which is unknown: choose one of sgd"):
        replace(SMALL, optimiser="lamb", lr=0.1).train_config(1000)
    answer = run(replace(SMALL, optimiser="rowwise-adagrad", lr=0.02), tmp_path)
    folder = find_run(answer["run"], tmp_path)
    assert read_run(folder).config["train"]["optimiser"] == "rowwise-adagrad"
    with pytest.raises(UserError, match="--optimiser cannot be given"):
        resumed_request(folder, "dlrm", {"optimiser": "sgd"})


def test_a_learning_rate_that_diverges_fails_with_the_fix_and_keeps_the_folder(tmp_path):
    with pytest.raises(RunFailed, match=r"learning rate 1e\+30.*--lr") as failure:
        run(replace(SMALL, lr=1e30, max_epochs=3), tmp_path)
    (folder,) = tmp_path.iterdir()
    answer = failure.value.answer
    assert (answer["status"], answer["folder"]) == ("failed", str(folder))
    assert read_run(folder).status == "failed"
    assert read_run(folder).result == json.loads(json.dumps(answer["result"]))
    with pytest.raises(UserError, match="diverged"):
        resumed_request(folder, "dlrm", {})


def test_a_run_goes_on_for_more_epochs(tmp_path):
    first = run(replace(SMALL, max_epochs=2), tmp_path)
    folder = find_run(first["run"], tmp_path)
    with pytest.raises(UserError, match="larger --max-epochs"):
        resumed_request(folder, "dlrm", {})
    with pytest.raises(UserError, match="--batch-size, --seed cannot be given"):
        resumed_request(folder, "dlrm", {"seed": 1, "batch_size": 8})
    with pytest.raises(UserError, match="labkit train dlrm --resume"):
        resumed_request(folder, "speech", {})
    with pytest.raises(UserError, match="has used 2 of max_epochs already"):
        resumed_request(folder, "dlrm", {"max_epochs": 2})
    with pytest.raises(UserError, match="--max-seconds more than that"):
        resumed_request(folder, "dlrm", {"max_seconds": 1e-3, "target": "0.7"})
    second = run(resumed_request(folder, "dlrm", {"max_epochs": 3}), tmp_path, resume=folder)
    assert second["run"] == first["run"]
    assert second["result"]["samples"] == 1.5 * first["result"]["samples"]
    assert len(list(tmp_path.iterdir())) == 1


def test_changed_data_is_not_mixed_into_a_resumed_run(tmp_path):
    first = run(SMALL, tmp_path)
    folder = Path(first["folder"])
    record = read_run(folder)
    record.config["data"]["fingerprint"] = "of other rows"
    record.save(folder)
    with pytest.raises(UserError, match="has changed since"):
        run(replace(SMALL, max_epochs=2), tmp_path, resume=folder)


def test_a_resume_keeps_budget_and_precision(tmp_path, monkeypatch):
    monkeypatch.setattr(session.Budget, "enforce", lambda self: [])
    first = run(replace(SMALL, budget="one-core", precision="bf16"), tmp_path)
    request = resumed_request(Path(first["folder"]), "dlrm", {"max_epochs": 2})
    assert (request.budget, request.precision) == ("one-core", "bf16")


def test_a_resumed_run_stays_in_the_series_of_its_seeds(tmp_path):
    seeds = [run(replace(SMALL, seed=seed), tmp_path) for seed in (0, 1)]
    folder = Path(seeds[0]["folder"])
    note = read_run(folder).config["step_note"]
    run(resumed_request(folder, "dlrm", {"max_epochs": 2}), tmp_path, resume=folder)
    assert read_run(folder).config["step_note"] == note
    assert run_table([answer["folder"] for answer in seeds])["budget"].nunique() == 1


def test_a_run_is_not_resumed_on_other_hardware(tmp_path):
    folder = Path(run(SMALL, tmp_path)["folder"])
    record = read_run(folder)
    record.budget["cores"] = 4096
    record.save(folder)
    with pytest.raises(UserError, match=r"4096 cores.*would mix two machines"):
        run(resumed_request(folder, "dlrm", {"max_epochs": 2}), tmp_path, resume=folder)


@pytest.mark.compiled
def test_a_run_is_not_resumed_with_another_kind_of_step(tmp_path, monkeypatch):
    folder = Path(run(replace(SMALL, precision="fp32", compiled_tables=True), tmp_path)["folder"])
    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "0")
        with pytest.raises(UserError, match=rf"not compiled tables: {SWITCH}=0\), so its times would mix two ways"):
            run(resumed_request(folder, "dlrm", {"max_epochs": 2}), tmp_path, resume=folder)
    run(resumed_request(folder, "dlrm", {"max_epochs": 2}), tmp_path, resume=folder)
    assert read_run(folder).config["train"]["compiled_tables"]


def test_a_falling_learning_rate_is_not_stretched_by_a_resume(tmp_path, tiny_speech):
    answer = run(TrainRequest("speech", data=str(tiny_speech), max_epochs=2, batch_size=4), tmp_path)
    with pytest.raises(UserError, match=r"falls to zero over max_epochs 2.*--max-epochs"):
        resumed_request(Path(answer["folder"]), "speech", {"max_epochs": 3})


def test_a_second_look_at_the_test_split_is_told(tmp_path):
    first = run(SMALL, tmp_path)
    folder, told = Path(first["folder"]), []
    run(resumed_request(folder, "dlrm", {"max_epochs": 2}), tmp_path, told.append, resume=folder)
    looks = [event["look"] for event in read_events(folder) if event["event"] == "tested"]
    assert looks == [1, 2]
    assert any("test split 2 times" in str(event) for event in told)
    # nothing is trained for a target that was passed long ago, so the same weights are not scored again
    again = run(resumed_request(folder, "dlrm", {"target": "0.5"}), tmp_path, resume=folder)
    assert again["result"]["metrics"] == [e for e in read_events(folder) if e["event"] == "tested"][-1]["metrics"]
    assert [event["look"] for event in read_events(folder) if event["event"] == "tested"] == [1, 2]


def broken_test_split(monkeypatch, error: Exception):
    from labkit.training.clicks_job import ClicksJob

    real = ClicksJob.evaluate

    def evaluate(self, model, split):
        if split == "test":
            raise error
        return real(self, model, split)

    monkeypatch.setattr(ClicksJob, "evaluate", evaluate)


def test_an_error_on_the_test_split_loses_no_time_to_target(tmp_path, monkeypatch):
    broken_test_split(monkeypatch, UserError("this split holds one class only"))
    with pytest.raises(UserError, match="one class"):
        run(replace(SMALL, target="0.5"), tmp_path)
    (folder,) = tmp_path.iterdir()
    result = read_run(folder).result
    assert result["time_to_target_s"] > 0
    assert result["reason"] == "this split holds one class only"


def test_a_bug_is_recorded_and_the_run_may_go_on(tmp_path, monkeypatch):
    broken_test_split(monkeypatch, KeyError("oops"))
    with pytest.raises(KeyError):
        run(SMALL, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert read_run(folder).status == "failed"
    assert read_events(folder)[-2]["what"] == "KeyError: 'oops'"
    resumed_request(folder, "dlrm", {})


def test_a_disk_that_fills_up_at_the_end_leaves_no_run_running(tmp_path, monkeypatch):
    real = session.RunWriter.event

    def event(self, name, /, **values):
        if name == "ended":
            raise UserError("the disk is full")
        real(self, name, **values)

    monkeypatch.setattr(session.RunWriter, "event", event)
    with pytest.raises(UserError, match="disk is full"):
        run(SMALL, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert read_run(folder).status == "done"


def test_a_run_without_its_sampler_goes_on_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    told = []
    answer = run(SMALL, tmp_path, told.append)
    assert answer["status"] == "done"
    assert answer["result"]["peak_memory_bytes"] is None
    assert any("sampler failed" in str(event) for event in told)


def test_a_sampler_killed_midway_is_started_again_and_its_gap_is_told(tmp_path):
    told = []

    def kill_the_sampler(event):
        if isinstance(event, Progress) and not any(isinstance(earlier, Progress) for earlier in told):
            (sampler,) = (c for c in psutil.Process().children() if "labkit.telemetry.sampling" in c.cmdline())
            sampler.kill()
        told.append(event)

    answer = run(SMALL, tmp_path, kill_the_sampler)
    assert answer["result"]["peak_memory_bytes"] > 0
    (fault,) = (event for event in read_events(answer["folder"]) if event["event"] == "fault")
    assert (fault["kind"], fault["what"]) == ("sampler_died", "the sampler ended with -9")
    assert any("its samples have a gap" in str(event) for event in told)


def test_a_sampler_that_dies_again_and_again_leaves_no_half_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.telemetry.sampler.MOST_RESTARTS", 0)
    told = []

    def kill_the_sampler(event):
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):  # it was killed at the step before, and is not buried yet
                if isinstance(event, Progress) and "labkit.telemetry.sampling" in child.cmdline():
                    child.kill()
        told.append(event)

    result = run(SMALL, tmp_path, kill_the_sampler)["result"]
    assert (result["peak_memory_bytes"], result["energy_j"]) == (None, None)
    assert "sampler failed" in result["energy_note"]
    assert any("sampler failed" in str(event) for event in told)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can cap a process' memory")
def test_a_run_that_its_memory_budget_ends_says_so_in_its_record(tmp_path):
    code = """
import sys
from pathlib import Path
from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget
from labkit.training import loop
from labkit.training.request import TrainRequest
from labkit.training.session import train
from labkit.training.stop import StopRequest
def fit(self):
    import numpy as np
    kept = []
    while True:  # as torch does, down to the last page
        kept.append(np.ones(2**20))
loop.Loop.fit = fit
request = TrainRequest(job="dlrm", budget="cores=1,memory=2GiB", max_seconds=1)
try:
    train(request, runs_dir=Path(sys.argv[1]), on_event=lambda event: None, stop=StopRequest())
except UserError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    (folder,) = tmp_path.iterdir()
    record = read_run(folder)
    assert record.status == "failed"
    assert "its budget 'cores=1,memory=2GiB' allows (2 GiB)" in record.result["reason"]
    assert record.result["reason"] in said
    assert [event["kind"] for event in read_events(folder) if event["event"] == "fault"] == ["error"]
