"""labkit.Run: targets, and what a run of one script records, refuses and draws."""

import time

import pytest
import torch
from folders import events

from labkit.errors import UserError
from labkit.runs import RunWriter, read_metrics, read_run, unreached
from labkit.tracking.events import time_left_s
from labkit.tracking.goal import Target


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when it is told to: `clock.now += 1`."""

    class Clock:
        now = 100.0
        monotonic = time.monotonic

        def perf_counter(self):
            return self.now

    clock = Clock()
    for module in ("run", "position", "checkpoints"):
        monkeypatch.setattr(f"labkit.tracking.{module}.time", clock)
    return clock


# clocks


def test_training_evaluation_and_loading_are_told_apart(run, clock):
    def loader():
        for _ in range(3):
            clock.now += 1  # of which the first is before the clock starts
            yield None

    with run(target="auc >= 0.7", confirm=1) as open_run:
        clock.now += 1000  # data, model, compilation
        for _ in open_run.batches(loader()):
            clock.now += 10
            open_run.step(samples=2)
        clock.now += 100
        open_run.evaluate(auc=0.8)
    result = open_run.result
    assert (result["train_s"], result["wall_s"]) == (33, 133)
    assert (result["time_to_target_s"], result["samples_per_s"]) == (133, 6 / 33)


def test_without_batches_the_clock_starts_with_the_block_and_labkits_own_work_is_no_training(run, clock):
    def listen(event):
        clock.now += 5

    with run() as open_run:
        open_run.listen(listen)
        for step in range(2):
            clock.now += 10
            open_run.step(torch.tensor(float(step)), samples=4)
    assert (open_run.result["train_s"], open_run.result["wall_s"]) == (20, 30)
    rows = read_metrics([open_run.folder]).query("name == 'loss'")  # each row says when its own step was
    assert rows[["step", "samples", "wall_s", "value"]].to_numpy().tolist() == [[1, 4, 10, 0], [2, 8, 25, 1]]


# target


def test_a_target_is_reached_once_confirmed_and_counts_from_its_first_crossing(run, clock):
    said = []
    with run(target="accuracy >= 0.9", confirm=2) as open_run:
        for accuracy in (0.5, 0.91, 0.8, 0.95, 0.93):
            clock.now += 10
            open_run.step(samples=100)
            said.append(open_run.evaluate(accuracy=accuracy))
    assert said == [False, False, False, False, True]
    result = open_run.result
    assert (result["target_reached"], result["ended_by"], result["reason"]) == (True, "target", "target reached")
    assert (result["time_to_target_s"], result["samples_to_target"]) == (20, 200)
    assert result["sustained_time_to_target_s"] == 40
    assert result["best_validation"] == 0.95
    crossed = [(event["kind"], event["step"]) for event in events(open_run.folder, "target_reached")]
    assert crossed == [("first", 2), ("sustained", 4)]


def test_the_operator_gives_an_unknown_metric_its_direction(run):
    for target, best, higher in (("perplexity <= 12", 10, False), ("score > 11", 20, True)):
        with run(target=target, confirm=1) as open_run:
            for value in (20, 10):
                open_run.step(samples=1)
                open_run.evaluate(**{target.split()[0]: torch.tensor(value)})
        assert (open_run.result["best_validation"], open_run.result["target_reached"]) == (best, True)
        assert read_run(open_run.folder).config["train"]["higher_is_better"] is higher


def test_a_metric_may_be_watched_without_a_value_to_reach(run):
    with run(target="min score", patience=2) as open_run:
        said = [open_run.step(samples=1) or open_run.evaluate(score=score) for score in (3.0, 2.0, 2.0, 2.1)]
    assert said == [False, False, False, True]
    assert open_run.result["target_reached"] is None
    assert (open_run.result["best_validation"], open_run.result["ended_by"]) == (2.0, "patience")
    assert open_run.result["reason"] == "no better score in 2 evaluations"


def test_an_evaluations_loss_is_not_mixed_with_that_of_the_steps_and_other_numbers_stand_beside_it(run):
    with run(target="loss <= 0.25", confirm=1) as open_run:
        weight = torch.tensor(0.75, requires_grad=True)
        open_run.step(weight, samples=1)
        open_run.log(gradient_norm=torch.tensor(3.0))
        assert open_run.evaluate(loss=weight - 0.5, auc=0.5)
    rows = read_metrics([open_run.folder])
    recorded = dict(zip(rows["name"], rows["value"], strict=True))
    assert recorded == {"loss": 0.75, "gradient_norm": 3.0, "validation_loss": 0.25, "auc": 0.5}
    assert read_run(open_run.folder).config["train"]["target_metric"] == "validation_loss"
    assert events(open_run.folder, "evaluated")[0]["metrics"] == {"validation_loss": 0.25, "auc": 0.5}


# limits


def test_max_seconds_asks_for_one_last_evaluation(run, clock):
    evaluated = []
    with run(target="auc >= 0.9", max_seconds=25, evaluate_every=10**9) as open_run:
        for _ in open_run.epochs(50):
            for _ in open_run.batches(range(1000)):
                clock.now += 10
                open_run.step(samples=1)
                if open_run.due:
                    evaluated.append(open_run.position.step)
                    assert open_run.evaluate(auc=0.5)
    assert evaluated == [3]
    assert (open_run.result["steps"], open_run.result["reason"]) == (3, "max_seconds 25 used up")
    with run(target="auc >= 0.9", max_seconds=2, evaluate_every=10**9) as open_run:
        for _ in open_run.batches(range(1000)):
            clock.now += 10
            open_run.step(samples=1)
    assert open_run.result["reason"] == "max_seconds 2 used up, at 10.0 s: a step or an evaluation took longer"


def test_a_loader_that_does_not_know_its_length_has_an_evaluation_due_after_it_until_the_run_is_over(run):
    with run(target="auc >= 1e-9", confirm=2) as open_run:
        for _ in range(3):
            for _ in open_run.batches(iter(range(3))):
                open_run.step(samples=1)
                assert not open_run.due
            if not open_run.over:
                assert open_run.due
                open_run.evaluate(auc=0.5)
    assert open_run.result["steps"] == 6


@pytest.mark.parametrize(
    ("every", "expected"), [(None, [5, 10]), (4, [2, 4, 6, 8, 10]), (10**9, [10])], ids=["epochs", "samples", "never"]
)
def test_an_evaluation_is_due(run, every, expected):
    """At each epoch's end, after so many samples, and in any case at the very end."""
    evaluated = []
    with run(evaluate_every=every) as open_run:
        for _ in open_run.epochs(2):
            for _ in open_run.batches(range(5)):
                open_run.step(samples=2)
                if open_run.due:
                    evaluated.append(open_run.position.step)
                    open_run.evaluate(auc=0.5)
                    assert not open_run.due
    assert evaluated == expected
    assert open_run.result["ended_by"] == "max_epochs"


# what is kept


def test_the_best_weights_come_back_for_the_test(run):
    model = torch.nn.Linear(1, 1, bias=False)
    with run(target="max auc") as open_run:
        open_run.keep(model=model)
        for weight, auc in ((1.0, 0.6), (1.5, 0.8), (2.0, 0.8), (3.0, 0.7)):
            torch.nn.init.constant_(model.weight, weight)
            open_run.step(samples=1)
            open_run.evaluate(auc=auc)
        assert open_run.load_best()
        assert model.weight.item() == 2.0  # of equals the later
        open_run.test(auc=0.75)
        assert not open_run.load_best()  # these very weights were tested
        told = []
        open_run._harness.on_event = told.append
        open_run.test(auc=0.75)
        assert "scored 2 times" in str(told)
    assert open_run.result["metrics"] == {"auc": 0.75}
    assert [(told["best_step"], told["look"]) for told in events(open_run.folder, "tested")] == [(3, 1), (3, 2)]
    kept = torch.load(open_run.folder / "checkpoint" / "latest.pt", weights_only=True)["kept"]["model"]
    assert kept["weight"].item() == 3.0  # where the run would go on


def test_what_cannot_be_written_at_the_end_leaves_no_run_open(run, monkeypatch):
    def refuse(*arguments, **values):
        raise UserError("the disk is full")

    with pytest.raises(UserError, match="the disk is full"), run() as open_run:
        open_run.keep(model=torch.nn.Linear(1, 1))
        open_run.step(samples=1)
        monkeypatch.setattr(RunWriter, "event", refuse)
    monkeypatch.undo()
    record = read_run(open_run.folder)
    assert (record.status, record.result["ended_by"]) == ("stopped", "refused")
    with run():
        pass


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["auc >= 1.2", "auc >= -0.1", "auc >= nan", "auc >= inf", "accuracy >= 0"], "above 0 and up to 1"),
        (["log_loss <= -1", "log_loss <= inf"], r"give a value of at least 0\.$"),
        (["score >= nan", "score >= inf"], "give a finite number"),
        (["cer <= 1", "cer <= 5", "wer <= 1.5", "cer <= -0.1", "cer <= inf"], "of at least 0 and below 1"),
        (["cer <= 5"], r"write 0\.05 for 5 %"),
        (["auc >= 78"], r"write 0\.78 for 78 %"),
        (["", "auc", "auc 0.8", "auc = 0.8", "auc=>0.8", "auc >= high", ">= 0.8", "max", "best"], "accuracy >= 0"),
        (["auc > 1 or loss < 1"], 'such as "accuracy >= 0\\.9"'),
        (["auc <= 0.8"], "auc >="),
        (["max cer"], "min cer"),
        (["cer > 0.1"], "cer <="),
    ],
)
def test_what_can_be_no_target_is_refused_with_what_to_write(texts, words):
    for text in texts:
        with pytest.raises(UserError, match=words):
            Target.parse(text)


def test_a_target_of_another_type_is_refused_where_it_comes_in(run):
    for target in (0.9, ("accuracy", 0.9), {"accuracy": 0.9}, ["accuracy >= 0.9"]):
        with pytest.raises(UserError, match="is not valid: write a metric, >= or <=, and a number"):
            run(target=target)


def test_a_target_is_written_as_it_is_read():
    best = ("auc >= 1", "accuracy >= 1", "cer <= 0", "log_loss <= 0")
    for text in ("auc >= 0.78", "log_loss <= 0.78", "max auc", *best):
        assert str(Target.parse(text)) == text
    for text, written in (("log_loss<=0.78", "log_loss <= 0.78"), ("auc ≥ 0.9", "auc >= 0.9"), ("max>= 3", "max >= 3")):
        assert str(Target.parse(text)) == written


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        ("failed", ("diverged", "error", "exit", "refused"), "failed"),
        ("done", ("max_epochs", "patience", "script", "exit"), "failed"),
        ("done", ("target", "max_seconds", "profiled"), "censored"),
        *((status, (None,), "censored") for status in ("running", "interrupted", "stopped", "paused")),
    ],
)
def test_what_would_never_have_arrived_has_failed_and_what_was_cut_off_is_censored(status, words, kind):
    assert {unreached(status, {"ended_by": word}, None) for word in words} == {kind}


def test_of_a_record_without_that_word_its_result_says_what_ended_it():
    assert unreached("done", {"target_reached": True}, None) == "censored"
    assert unreached("done", {"wall_s": 61.0}, 60.0) == "censored"
    assert unreached("done", {"wall_s": 12.0}, 60.0) == "failed"


@pytest.mark.parametrize(
    ("max_seconds", "at", "expected"),
    [
        (None, (20.0, 400), 30.0),  # the samples left take as long each as those before
        (25.0, (20.0, 400), 5.0),
        (None, (0.0, 0), None),
    ],
)
def test_the_nearest_limit_says_how_long(max_seconds, at, expected):
    train = {"max_epochs": 10, "max_seconds": max_seconds}
    assert time_left_s({"train": train, "data": {"train_samples": 100}}, *at) == expected
