"""The kit's own jobs, scripts of plain PyTorch: trained alone and in the harness, placed, copied and watched."""

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import labkit
import labkit.jobs.dlrm as dlrm
import labkit.jobs.speech as speech
from labkit.cli import main
from labkit.data.clicks import click_metrics
from labkit.data.speech import speech_metrics
from labkit.errors import UserError
from labkit.fast import chosen_precision
from labkit.jobs.settings import ENDLESS, JOBS, SpeechJob
from labkit.runs import read_events, read_metrics, read_run
from labkit.tracking import Notice, Progress, Run, RunFailed, StopRequest, load_checkpoint
from labkit.tta import run_table


def losses(answer: dict) -> dict[int, float]:
    rows = read_metrics([answer["folder"]]).query("name == 'loss'")
    return dict(zip(rows["step"], rows["value"], strict=True))


def events(answer: dict, name: str) -> list[dict]:
    return [event for event in read_events(answer["folder"]) if event["event"] == name]


def stopped_at(step: int, train, job: str, told: list | None = None, **settings) -> dict:
    """The answer of a run that is asked to stop at a step; `told` gets its events."""
    stop, told = StopRequest(), [] if told is None else told

    def hear(event):
        told.append(event)
        if isinstance(event, Progress) and event.point.step >= step:
            stop.request("the test")

    broken = train(job, hear, stop, **settings)
    assert broken["status"] == "stopped"
    return broken


# anyone can read them


@pytest.mark.parametrize("job", ["dlrm", "speech"])
def test_a_job_is_a_script_that_fits_three_screens_and_trains_alone(job, tmp_path):
    script = JOBS[job].script()
    assert len(script.read_text().splitlines()) <= 180
    data = ["--data", "synthetic-small"] if job == "dlrm" else []
    command = [sys.executable, script, "--max-seconds", "0.5", "--target", "none", "--precision", "fp32", *data]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    record = read_run(folder)
    assert (record.status, record.result["ended_by"]) == ("done", "max_seconds")
    assert record.result["metrics"]


def test_what_flags_offer_is_what_the_scripts_have():
    click = click_metrics(np.array([0, 1]), np.array([0.0, 1.0]))
    for name, job, metrics in (("dlrm", dlrm, click), ("speech", speech, speech_metrics(["one"], ["two"]))):
        assert JOBS[name].optimisers == tuple(job.OPTIMISERS) and JOBS[name].metrics == tuple(metrics)


def test_a_copy_with_another_model_trains_like_the_original(tmp_path, monkeypatch):
    """What docs/own-script.md tells a reader to do."""
    text = JOBS["dlrm"].script().read_text()
    mine = """
class Clamped(Dlrm):
    def forward(self, dense, categorical):
        return super().forward(dense, categorical).clamp(-4, 4)


def build_model("""
    changed = text.replace("\ndef build_model(", mine, 1).replace("else Dlrm(config)", "else Clamped(config)")
    assert changed.count("Clamped") == 2
    (tmp_path / "mine.py").write_text(changed.replace('labkit.Run("dlrm"', 'labkit.Run("mine"'))
    monkeypatch.chdir(tmp_path)
    flags = ["--data", "synthetic-small", "--kernels", "plain", "--precision", "fp32", "--max-epochs", "1"]
    assert main(["run", "mine.py", *flags, "--batch-size", "4096"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_run(folder).config["job"] == "mine"
    assert 0.4 < read_run(folder).result["metrics"]["auc"] < 0.8


# what they record


def test_the_answer_is_what_json_promises_and_what_the_folder_holds(train):
    answer = train("dlrm", target="0.55", max_epochs=30, precision="auto")
    result = answer["result"]
    assert list(answer) == ["run", "folder", "status", "result"]
    assert set(result["metrics"]) == {"auc", "log_loss", "normalised_entropy", "accuracy"}
    assert result["target_reached"] is True
    assert 0 < result["time_to_target_s"] <= result["wall_s"]
    first = next(event for event in events(answer, "target_reached") if event["kind"] == "first")
    assert result["samples_to_target"] == first["samples"] > 0
    record = read_run(answer["folder"])
    assert record.status == answer["status"] == "done"
    assert record.result == json.loads(json.dumps(result))
    settings = record.config["train"]
    assert record.config["model"]["embedding_dim"] == 16 and settings["max_epochs"] == 30
    assert (settings["precision"], settings["step_note"]) == chosen_precision("auto", labkit.device())
    names = [event["event"] for event in read_events(answer["folder"])]
    assert names.count("tested") == 1 and "evaluated" not in names[names.index("tested") :]


def test_a_job_that_fails_after_its_target_keeps_its_time_to_target(train, monkeypatch):
    def one_class(run, **metrics):
        raise UserError("this split holds one class only")

    monkeypatch.setattr(Run, "test", one_class)
    with pytest.raises(RunFailed, match="one class") as failure:
        train("dlrm", target="0.5", max_epochs=2)
    result = read_run(failure.value.answer["folder"]).result
    assert result["time_to_target_s"] > 0
    assert result["reason"] == "this split holds one class only"


@pytest.mark.parametrize("compress", ["hash", "quotient-remainder"])
def test_compressed_tables_train_alike_with_either_kernels_and_the_run_says_their_bytes(train, compress):
    # rowwise Adagrad steps alike whatever a table is stored in; float sums differ in their last digits
    how = {"compress": compress, "compress_to": 0.2, "optimiser": "rowwise-adagrad", "lr": 0.01, "max_epochs": 1}
    plain, fast = (train("dlrm", kernels=kernels, **how) for kernels in ("plain", "fast"))
    assert losses(fast) == pytest.approx(losses(plain), rel=1e-3)
    config = read_run(fast["folder"]).config
    row_bytes = 4 * (config["model"]["embedding_dim"] + 1)  # rowwise Adagrad keeps a number a row
    everything = row_bytes * sum(config["model"]["num_rows"])
    assert config["train"]["compress"] == compress
    assert 0.19 * everything < config["tables"]["table_bytes"] <= 0.2 * everything


# what cannot be


def test_what_the_data_or_the_machine_refuses_makes_no_run(train, tmp_path, monkeypatch):
    from labkit.hardware import Budget

    monkeypatch.setattr(Budget, "cap_memory", lambda self, *arguments: [])  # 1 MiB is not enough to refuse politely
    for settings, words in (
        ({"data": "no-such-data"}, "no-such-data"),
        ({"device": "cuda:7"}, "cuda:7"),
        ({"device": "tpu"}, "tpu"),
        ({"batch_size": 100_000_000}, r"batch_size .--batch-size. is 100,?000,?000"),
        ({"compress": "quotient-remainder", "compress_to": 0.001}, r"--compress-to 0\.\d+ or more, or use"),
        ({"preset": "mlperf-v1", "data": "synthetic", "budget": "cores=1,memory=1MiB"}, "embedding tables"),
        ({"placement": "cached", "cache_rows": 99999999}, r"a cache of 99,999,999 rows, and the tables have \d"),
    ):
        with pytest.raises(UserError, match=words):
            train("dlrm", **settings)
    assert not (tmp_path / "runs").exists()


# the same numbers


def test_a_seed_decides_the_losses(train):
    answers = [train("dlrm", max_epochs=1, seed=seed) for seed in (0, 0, 1)]
    made = [losses(answer) for answer in answers]
    assert made[0] == made[1] != made[2]
    folders = [answer["folder"] for answer in answers[1:]]
    train("dlrm", max_epochs=2, resume=folders[0])  # which stays in the series of its seeds
    assert run_table(folders)["budget"].nunique() == 1


@pytest.mark.parametrize(
    ("settings", "compiled"),
    [
        pytest.param({"optimiser": "adam", "lr": 0.01}, "1", marks=pytest.mark.compiled),
        ({"optimiser": "rowwise-adagrad", "lr": 0.01}, "0"),
        ({"kernels": "plain", "precision": "bf16"}, "0"),
    ],
    ids=str,
)
def test_a_resumed_dlrm_repeats_the_same_losses(train, monkeypatch, settings, compiled):
    monkeypatch.setenv("LABKIT_COMPILED", compiled)
    unbroken = train("dlrm", max_epochs=2, **settings)
    broken = stopped_at(17, train, "dlrm", max_epochs=2, **settings)
    assert 17 <= len(losses(broken)) < len(losses(unbroken))
    again = train("dlrm", resume=broken["folder"], max_epochs=2, **settings)
    assert losses(again) == losses(unbroken)
    assert again["result"]["wall_s"] > events(broken, "evaluated")[-1]["wall_s"]


@pytest.mark.parametrize("kernels", ["plain", "fast"])
def test_a_resumed_recogniser_repeats_the_same_losses(train, tiny_speech, kernels):
    settings = {"data": tiny_speech, "batch_size": 4, "max_epochs": 6, "kernels": kernels, "precision": "fp32"}
    unbroken = train("speech", **settings)
    broken = stopped_at(7, train, "speech", **settings)
    assert 7 <= len(losses(broken)) < len(losses(unbroken))
    again = train("speech", resume=broken["folder"], **settings)
    assert losses(again) == losses(unbroken)
    assert set(again["result"]["metrics"]) == {"cer", "wer"} and again["result"]["target_reached"] is None


def test_the_learning_rate_warms_up_falls_along_a_cosine_and_is_not_stretched_by_a_resume(train, tiny_speech):
    def factors(steps, **settings):
        settings = {"warmup_steps": 0, "schedule": "constant"} | settings
        factor = speech.learning_rate(SimpleNamespace(**settings), lambda step: step / 100)
        return [factor(step) for step in steps]

    assert factors((0, 3, 99), warmup_steps=4) == [0.25, 1.0, 1.0]
    assert factors((0, 50, 100, 150), schedule="cosine") == pytest.approx([1.0, 0.5, 0.0, 0.0])
    folder = train("speech", data=tiny_speech, max_epochs=2, batch_size=4)["folder"]
    with pytest.raises(UserError, match="cosine over 2 epochs"):
        train("speech", resume=folder, data=tiny_speech, max_epochs=3, batch_size=4)


def test_a_budget_of_seconds_is_used(train, tiny_speech):
    answer = train("speech", data=tiny_speech, max_seconds=2, batch_size=4, target="none")
    assert answer["result"]["ended_by"] == "max_seconds"
    assert SpeechJob(max_seconds=2).max_epochs == ENDLESS, "more than the epochs of the preset"
    assert read_run(answer["folder"]).config["train"]["schedule"] == "cosine over 2 s"


@pytest.mark.parametrize("kernels", ["plain", "fast"])
def test_the_paper_s_recipe_and_other_shapes_train(train, tiny_speech, kernels):
    shape = {"layers": 1, "hidden": 16, "features": "mfcc", "kernels": kernels, "batch_size": 4}
    answer = train("speech", data=tiny_speech, preset="budget-m5-mini", max_epochs=1, target="none", **shape)
    config = read_run(answer["folder"]).config
    model, settings = config["model"], config["train"]
    assert (model["kind"], model["layers"], model["hidden"], model["mel_bins"]) == ("lstm", 1, 16, 40)
    assert (settings["optimiser"], settings["lr"], settings.get("clip_norm")) == ("adadelta", 1.0, None)


@pytest.mark.parametrize("preset", ["tour", "digits-large"])
def test_cosine_terms_are_not_masked_stretched_or_seen_as_images_like_bins(tiny_speech, preset):
    _, shape, _ = speech.load_data(SpeechJob(data=str(tiny_speech), features="mfcc", preset=preset))
    assert (shape.mask_bins, shape.tract, shape.maps) == (0, 0, ()) and shape.mask_frames and shape.speed


def test_patience_ends_no_run_whose_learning_rate_is_still_to_fall():
    presets = ("tour", "deepspeech2-mini")
    assert [SpeechJob(preset=preset, target="none").ends_otherwise for preset in presets] == [True, False]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("kernels", ["plain", "fast"])
def test_a_gpu_trains_the_same_jobs(train, tiny_speech, kernels):
    settings = {"device": "cuda", "kernels": kernels, "precision": "bf16"}
    clicks = train("dlrm", max_epochs=3, lr=0.01, target="none", **settings)
    assert clicks["result"]["best_validation"] > 0.6
    assert clicks["result"]["peak_gpu_memory_bytes"] > 0
    assert math.isfinite(losses(clicks)[1])
    assert train("speech", data=tiny_speech, max_epochs=2, batch_size=4, **settings)["status"] == "done"


SETTINGS = {"optimiser": "rowwise-adagrad", "lr": 0.01, "max_epochs": 2}
PLACES = {
    "cached": {"placement": "cached", "cache_rows": "30%"},
    "disk": {"placement": "disk", "memory_cap": "1MiB"},
    "remote": {"placement": "remote"},
}
_unbroken: list[dict[int, float]] = []


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_resumed_run_ends_with_the_losses_of_one_in_memory(train, place):
    if not _unbroken:
        _unbroken.append(losses(train("dlrm", placement="host", **SETTINGS)))
    told = []
    broken = stopped_at(7, train, "dlrm", told, **SETTINGS, **place)
    assert 7 <= len(losses(broken)) < len(_unbroken[0])
    again = train("dlrm", resume=broken["folder"], **SETTINGS, **place)
    assert losses(again) == _unbroken[0]
    said = [event.text for event in told if isinstance(event, Notice)]
    assert any("the last weights will be tested" in text for text in said) is (place["placement"] != "cached")
    tested = next(event for event in read_events(again["folder"]) if event["event"] == "tested")
    if place["placement"] != "cached":
        assert tested["best_step"] == max(losses(again))  # what was tested are the last weights
    metrics = set(read_metrics([again["folder"]])["name"])
    assert {"placement_waited_s", "placement_read_bytes"} <= metrics
    assert ("placement_hit_rate" in metrics) is (place["placement"] == "cached")
    assert read_run(again["folder"]).config["train"]["placement"] == place["placement"]


def test_a_checkpoint_of_cached_tables_has_the_weights_of_one_on_the_device(train):
    kept = []
    for placement in ("device", "cached"):
        answer = train("dlrm", placement=placement, **SETTINGS | {"max_epochs": 1})
        latest = load_checkpoint(Path(answer["folder"], "checkpoint", "latest.pt"))
        kept.append(latest["kept"]["model"]["tables.weight"])
    # gradients of equal rows are summed in another order, in the 5 or so steps of an epoch
    torch.testing.assert_close(kept[0], kept[1], rtol=1e-3, atol=1e-5)
