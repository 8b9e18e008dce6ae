"""The loop, driven by small real jobs without processes around them."""

import math
from dataclasses import replace

import pytest
import torch

from labkit.data.clicks import load_clicks
from labkit.data.speech import load_speech
from labkit.models.dlrm import DlrmConfig
from labkit.models.speech import SpeechConfig
from labkit.runs import Provenance, RunWriter, lock_run, read_events, read_metrics
from labkit.training.checkpoint import load_checkpoint
from labkit.training.clicks_job import ClicksJob
from labkit.training.config import OPTIMISERS, TrainConfig
from labkit.training.loop import Loop
from labkit.training.speech_job import SpeechJob
from labkit.training.step import StepKind
from labkit.training.stop import StopRequest

CPU = torch.device("cpu")
PLAIN = StepKind("fp32")


@pytest.fixture
def checkpoint_each_time(monkeypatch):
    """Save the latest checkpoint after each evaluation, however long saving takes on this machine."""
    monkeypatch.setattr("labkit.training.loop.CHECKPOINT_REST", 0)


@pytest.fixture
def folder(tmp_path):
    """A new run folder for each call."""
    return lambda: RunWriter.create(
        tmp_path, "t", config={}, budget={}, tier=None, devices=[], seed=0,
        provenance=Provenance.now("measured"), software={},
    )  # fmt: skip


def clicks_loop(run, config: TrainConfig, on_progress=lambda progress: None, stop=None, kind=PLAIN) -> Loop:
    log = load_clicks("synthetic-small")
    torch.manual_seed(config.seed)
    model = DlrmConfig(
        dense_dim=13, num_rows=log.table_rows, embedding_dim=8, bottom_mlp=(8,), top_mlp=(32, 1), dropout=0.2
    )
    job = ClicksJob(log, model, batch_size=config.batch_size, seed=config.seed, device=CPU)
    stop = StopRequest() if stop is None else stop
    return Loop(job, config, run, device=CPU, kind=kind, stop=stop, on_progress=on_progress)


def speech_loop(run, config: TrainConfig, manifest, on_progress=lambda progress: None, stop=None) -> Loop:
    speech = load_speech(str(manifest))
    torch.manual_seed(config.seed)
    model = SpeechConfig(vocabulary=len(speech.alphabet), kind="conv", channels=16, layers=1, dropout=0.2)
    job = SpeechJob(speech, model, batch_size=config.batch_size, seed=config.seed, device=CPU)
    stop = StopRequest() if stop is None else stop
    return Loop(job, config, run, device=CPU, kind=PLAIN, stop=stop, on_progress=on_progress)


def losses(run) -> list[tuple[int, float]]:
    metrics = read_metrics([run.folder])
    metrics = metrics[metrics["name"] == "loss"]
    return list(zip(metrics["step"], metrics["value"], strict=True))


def reopen(run, from_step: int) -> RunWriter:
    lock = lock_run(run.folder)
    return RunWriter.reopen(run.folder, lock, from_step=from_step, config={}, software={}, devices=[])


def events(run, name: str) -> list[dict]:
    return [event for event in read_events(run.folder) if event["event"] == name]


def stop_at(stop: StopRequest, step: int):
    return lambda progress: stop.request("the test") if progress.point.step >= step else None


@pytest.mark.parametrize(
    ("optimiser", "kind"),
    [
        *((optimiser, PLAIN) for optimiser in OPTIMISERS),
        *(pytest.param(optimiser, StepKind("fp32", True), marks=pytest.mark.compiled) for optimiser in OPTIMISERS),
        ("adam", StepKind("bf16")),
        pytest.param("adam", StepKind("bf16", True), marks=pytest.mark.compiled),
    ],
    ids=str,
)
def test_resume_repeats_the_same_losses_of_a_dlrm(folder, optimiser, kind):
    config = TrainConfig(
        optimiser=optimiser, lr=0.01, batch_size=2048, max_epochs=2, evaluate_every_samples=20_000, warmup_steps=5
    )
    unbroken = folder()
    assert clicks_loop(unbroken, config, kind=kind).fit().status == "done"

    broken, stop = folder(), StopRequest()
    outcome = clicks_loop(broken, config, stop_at(stop, 17), stop, kind).fit()
    assert outcome.status == "stopped"
    assert outcome.point.step < len(losses(unbroken))
    broken.finish("stopped", {})
    again = reopen(broken, outcome.point.step)
    loop = clicks_loop(again, config, kind=kind)
    loop.resume()
    after = loop.fit()
    assert after.point.wall_s > outcome.point.wall_s
    assert losses(again) == losses(unbroken)


def test_resume_repeats_the_same_losses_of_a_recogniser(folder, tiny_speech):
    config = TrainConfig(
        batch_size=4, lr=0.003, max_epochs=6, evaluate_every_samples=8, target_metric="cer", grad_clip_norm=1.0
    )
    unbroken = folder()
    speech_loop(unbroken, config, tiny_speech).fit()
    broken, stop = folder(), StopRequest()
    outcome = speech_loop(broken, config, tiny_speech, stop_at(stop, 7), stop).fit()
    broken.finish("stopped", {})
    again = reopen(broken, outcome.point.step)
    loop = speech_loop(again, config, tiny_speech)
    loop.resume()
    loop.fit()
    assert 7 <= outcome.point.step < len(losses(unbroken))
    assert losses(again) == losses(unbroken)


def stopped_then_resumed(run, before: TrainConfig, after: TrainConfig, at_step: int) -> Loop:
    """A loop that stopped at `at_step` under one configuration, ready to go on under another."""
    stop = StopRequest()
    outcome = clicks_loop(run, before, stop_at(stop, at_step), stop).fit()
    run.finish("stopped", {})
    loop = clicks_loop(reopen(run, outcome.point.step), after)
    loop.resume()
    return loop


EASY = TrainConfig(batch_size=2048, lr=0.01, target=0.5, evaluate_every_samples=2048, max_epochs=30)


def test_a_harder_target_is_not_reached_by_the_easier_ones_crossing(folder):
    loop = stopped_then_resumed(folder(), EASY, replace(EASY, target=0.62), 3)
    assert loop.crossings.first is None
    outcome = loop.fit()
    values = {event["step"]: event["value"] for event in events(loop.run, "evaluated")}
    assert values[outcome.first_crossing.step] >= 0.62
    assert all(value < 0.62 for step, value in values.items() if step < outcome.first_crossing.step)


def test_an_easier_target_is_found_in_the_evaluations_there_were(folder):
    run = folder()
    loop = stopped_then_resumed(run, replace(EASY, target=0.99, max_epochs=3), EASY, 30)
    steps = [event["step"] for event in events(run, "evaluated") if event["value"] >= 0.5]
    assert loop.fit().reason == "target reached"
    assert loop.crossings.first.step == steps[0]
    assert [(event["kind"], event["target"]) for event in events(run, "target_reached")] == [
        ("first", 0.5),
        ("sustained", 0.5),
    ]


def test_another_metric_has_a_best_of_its_own(folder):
    loop = stopped_then_resumed(
        folder(), replace(EASY, target=0.99), replace(EASY, target=9.0, target_metric="log_loss"), 6
    )
    outcome = loop.fit()  # log loss 9 was reached from the start, so not a step is trained
    steps = [event["step"] for event in events(loop.run, "evaluated")]
    last = events(loop.run, "evaluated")[-1]
    assert outcome.point.step == steps[-1] == 6
    assert len(steps) == len(set(steps))  # evaluated once more for its best, which counts as no second evaluation
    assert outcome.best_value == last["metrics"]["log_loss"]
    assert load_checkpoint(loop.checkpoints.best)["position"]["step"] == 6


def test_rows_before_a_checkpoint_are_on_disk_when_it_is(folder, checkpoint_each_time):
    """A run that is killed goes on from the checkpoint and never repeats them."""
    run, kept = folder(), []
    loop = clicks_loop(run, replace(EASY, target=None, max_epochs=1))
    real = loop.checkpoints.save_latest

    def save_latest(content):
        real(content)
        kept.append((content["position"]["step"], [step for step, _ in losses(run)]))

    loop.checkpoints.save_latest = save_latest
    loop.fit()
    assert kept and all(steps == list(range(1, step + 1)) for step, steps in kept)


def test_a_run_that_its_patience_ended_gets_some_more(folder):
    config = TrainConfig(batch_size=2048, evaluate_every_samples=2048, patience_evaluations=3, max_epochs=50)
    run = folder()
    loop = clicks_loop(run, config)
    loop.job.evaluate = lambda model, split: {"auc": 0.5}
    loop.fit()
    run.finish("done", {})
    again = clicks_loop(reopen(run, 4), config)
    again.job.evaluate = loop.job.evaluate
    again.resume()
    assert again.fit().point.step == 4 + 3


def test_after_a_kill_the_best_is_the_one_the_latest_names(folder, checkpoint_each_time):
    """The best is saved at every better evaluation, the latest less often, and a kill can come between the two."""
    run = folder()
    config = replace(EASY, target=None, max_epochs=2)
    loop = clicks_loop(run, config)
    values = iter(range(100))
    loop.job.evaluate = lambda model, split: {"auc": next(values) / 100}  # each better than the one before
    real, saved = loop.checkpoints.save_latest, []

    def only_at_step_2(content):
        if content["position"]["step"] == 2:
            real(content)
            saved.append({name: weight.clone() for name, weight in content["model"].items()})

    loop.checkpoints.save_latest = only_at_step_2
    loop.fit()
    assert load_checkpoint(loop.checkpoints.best)["position"]["step"] > 2
    run.finish("interrupted", {})
    again = clicks_loop(reopen(run, 2), config)
    again.resume()
    best = load_checkpoint(again.checkpoints.best)
    assert best["position"]["step"] == again.position.best_step == 2
    assert all(torch.equal(best["model"][name], weight) for name, weight in saved[0].items())
    assert sorted(path.name for path in (run.folder / "checkpoint").iterdir()) == ["best.pt", "latest.pt"]


def test_another_seed_gives_other_losses(folder):
    runs = [folder(), folder(), folder()]
    for run, seed in zip(runs, (0, 0, 1), strict=True):
        clicks_loop(run, TrainConfig(seed=seed, max_epochs=1)).fit()
    assert losses(runs[0]) == losses(runs[1])
    assert losses(runs[0]) != losses(runs[2])


def test_a_run_learns_ends_at_its_target_and_says_when(folder):
    run = folder()
    config = TrainConfig(batch_size=512, lr=0.01, target=0.6, evaluate_every_samples=5_000, max_epochs=50)
    outcome = clicks_loop(run, config).fit()
    assert (outcome.status, outcome.reason) == ("done", "target reached")
    evaluations = events(run, "evaluated")
    reached = [event["value"] >= 0.6 for event in evaluations]
    assert reached[-2:] == [True, True]
    assert outcome.first_crossing.samples == evaluations[reached.index(True)]["samples"]
    assert outcome.sustained_crossing.samples == evaluations[-2]["samples"]
    assert 0 < outcome.first_crossing.train_s <= outcome.first_crossing.wall_s


def test_a_loss_that_is_no_number_fails_with_step_rate_and_checkpoint(folder, checkpoint_each_time):
    run = folder()
    loop = clicks_loop(run, TrainConfig(batch_size=2048, evaluate_every_samples=8192, max_epochs=5))
    real, calls = loop.job.loss, 0

    def breaks_at_14(batch):
        nonlocal calls
        calls += 1
        return real(batch) * (math.nan if calls == 14 else 1.0)

    loop.job.loss = breaks_at_14
    outcome = loop.fit()
    assert outcome.status == "failed"
    assert "at step 14 with learning rate 0.001" in outcome.reason
    assert "latest.pt, of step 12" in outcome.reason
    assert losses(run)[-1][0] <= 13
    assert [event["step"] for event in events(run, "fault")] == [14]


@pytest.mark.parametrize("ending", ["evaluation", "stop"])
def test_weights_that_are_no_numbers_are_never_saved(folder, tiny_speech, ending):
    """The loss before the bad update was finite, and so is the error rate of a model that outputs NaN."""
    run, stop = folder(), StopRequest()
    config = TrainConfig(batch_size=4, max_epochs=9, evaluate_every_samples=8, target_metric="cer", target=0.01)
    loop = speech_loop(run, config, tiny_speech, stop=stop)
    real, steps_to_break = loop._step, 4 if ending == "evaluation" else 3

    def step(batch, index):
        loss = real(batch, index)
        if loop.position.step + 1 == steps_to_break:
            with torch.no_grad():
                loop.job.model.characters.bias[0] = math.nan
            if ending == "stop":
                stop.request("the test")
        return loss

    loop._step = step
    outcome = loop.fit()
    assert outcome.status == "failed"
    assert f"a weight is no number at step {steps_to_break}" in outcome.reason
    for path in (loop.checkpoints.latest, loop.checkpoints.best):
        weights = load_checkpoint(path)["model"].values()
        assert all(weight.isfinite().all() for weight in weights)


def test_a_loss_row_says_when_its_own_step_was(folder):
    run = folder()
    clicks_loop(run, TrainConfig(batch_size=1000, max_epochs=1)).fit()
    metrics = read_metrics([run.folder]).query("name == 'loss'")
    assert (metrics["samples"] == metrics["step"] * 1000).iloc[:-1].all()
    assert metrics["wall_s"].is_monotonic_increasing and metrics["wall_s"].is_unique


def test_patience_ends_a_run_that_no_longer_improves(folder):
    run = folder()
    loop = clicks_loop(
        run, TrainConfig(batch_size=2048, evaluate_every_samples=2048, patience_evaluations=3, max_epochs=50)
    )
    loop.job.evaluate = lambda model, split: {"auc": 0.5}
    outcome = loop.fit()
    assert (outcome.status, outcome.point.step) == ("done", 4)


def test_max_seconds_ends_a_run_with_an_evaluation(folder):
    run = folder()
    outcome = clicks_loop(run, TrainConfig(max_seconds=1e-6, evaluate_every_samples=10**9)).fit()
    assert outcome.status == "done"
    assert outcome.point.step == 1
    assert outcome.best_value is not None


def test_evaluation_counts_as_wall_time_and_not_as_training_time(folder):
    run = folder()
    loop = clicks_loop(run, TrainConfig(batch_size=2048, max_epochs=1, evaluate_every_samples=10_000))
    clock = [0.0]
    import labkit.training.loop as module

    real_evaluate, real_time = loop.job.evaluate, module.time

    def slow_evaluate(model, split):
        clock[0] += 100.0
        return real_evaluate(model, split)

    loop.job.evaluate = slow_evaluate
    fake = type("Clock", (), {"perf_counter": staticmethod(lambda: clock[0]), "time": real_time.time})
    module.time = fake
    try:
        outcome = loop.fit()
    finally:
        module.time = real_time
    evaluations = sum(event["event"] == "evaluated" for event in read_events(run.folder))
    assert outcome.point.wall_s == 100.0 * evaluations
    assert outcome.point.train_s == 0.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_trains_the_same_job(folder):
    log = load_clicks("synthetic-small")
    device = torch.device("cuda:0")
    model = DlrmConfig(dense_dim=13, num_rows=log.table_rows, embedding_dim=8, bottom_mlp=(8,), top_mlp=(32, 1))
    job = ClicksJob(log, model, batch_size=2048, seed=0, device=device)
    loop = Loop(
        job, TrainConfig(max_epochs=3, lr=0.01), folder(), device=device,
        kind=StepKind("bf16"), stop=StopRequest(), on_progress=lambda progress: None,
    )  # fmt: skip
    assert loop.fit().best_value > 0.6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_trains_the_recogniser(folder, tiny_speech):
    speech = load_speech(str(tiny_speech))
    device = torch.device("cuda:0")
    model = SpeechConfig(
        vocabulary=len(speech.alphabet), kind="conv", channels=16, layers=1, mask_bins=4, mask_frames=4
    )
    job = SpeechJob(speech, model, batch_size=4, seed=0, device=device)
    loop = Loop(
        job, TrainConfig(max_epochs=2, target_metric="cer"), folder(), device=device,
        kind=StepKind("bf16"), stop=StopRequest(), on_progress=lambda progress: None,
    )  # fmt: skip
    assert loop.fit().status == "done"
