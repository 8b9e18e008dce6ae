"""Targets: how they are written, when one is reached, what a run is without it, how long it will take."""

import pytest

from labkit.errors import UserError
from labkit.tracking.ending import unreached
from labkit.tracking.events import time_left_s
from labkit.tracking.goal import Target


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["auc >= 1.2", "auc >= -0.1", "auc >= nan", "auc >= inf", "accuracy >= 0"], "above 0 and up to 1"),
        (["log_loss <= -1", "log_loss <= inf"], r"give a value of at least 0\.$"),
        (["score >= nan", "score >= inf"], "give a finite number"),
        (["cer <= 1", "cer <= 5", "wer <= 1.5", "cer <= -0.1", "cer <= inf"], "of at least 0 and below 1"),
        (["cer <= 5"], r"write 0\.05 for 5 %"),
        (["auc >= 78"], r"write 0\.78 for 78 %"),
        (["", "auc", "auc 0.8", "auc = 0.8", "auc >= high", ">= 0.8", "max", "best"], 'such as "accuracy >= 0\\.9"'),
        (["auc <= 0.8"], "auc >="),
        (["max cer"], "min cer"),
        (["cer > 0.1"], "cer <="),
    ],
)
def test_what_can_be_no_target_is_refused_with_what_to_write(texts, words):
    for text in texts:
        with pytest.raises(UserError, match=words):
            Target.parse(text)


def test_a_target_is_written_as_it_is_read():
    best = ("auc >= 1", "accuracy >= 1", "cer <= 0", "log_loss <= 0")
    for text in ("auc >= 0.78", "log_loss <= 0.78", "max auc", *best):
        assert str(Target.parse(text)) == text
    assert str(Target.parse("log_loss<=0.78")) == "log_loss <= 0.78"


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
