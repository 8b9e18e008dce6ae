import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from labkit.errors import UserError
from labkit.training.metrics import CLICK_METRICS, SPEECH_METRICS, Target, click_metrics, speech_metrics


@pytest.mark.parametrize("decimals", [8, 1], ids=["distinct", "many ties"])
def test_click_metrics_agree_with_scikit_learn(decimals):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 5000)
    logit = np.round(rng.normal(size=5000) + label, decimals)
    scores = click_metrics(label, logit)
    probability = 1 / (1 + np.exp(-logit))
    assert scores["auc"] == pytest.approx(roc_auc_score(label, logit), abs=1e-12)
    assert scores["log_loss"] == pytest.approx(log_loss(label, probability), abs=1e-12)
    assert scores["accuracy"] == ((probability > 0.5) == label).mean()
    base = log_loss(label, np.full(5000, label.mean()))
    assert scores["normalised_entropy"] == pytest.approx(scores["log_loss"] / base, abs=1e-12)


def test_log_loss_of_an_extreme_logit_is_finite():
    assert click_metrics(np.array([1, 0]), np.array([-800.0, 800.0]))["log_loss"] == pytest.approx(800)


def test_one_class_alone_has_no_auc():
    with pytest.raises(UserError, match="3 positive and 0 negative"):
        click_metrics(np.ones(3), np.zeros(3))


def test_error_rates_count_over_all_utterances_together():
    # one wrong character of 17 and one wrong word of 4: each utterance counts by its length
    scores = speech_metrics(["one", "two three four"], ["onx", "two three four"])
    assert scores == {"cer": pytest.approx(1 / 17), "wer": pytest.approx(1 / 4)}


@pytest.mark.parametrize(
    "text", ["1.2", "1", "auc=1.0", "-0.1", "nan", "inf", "log_loss=0", "log_loss=-1", "log_loss=inf", "accuracy=0"]
)
def test_a_target_out_of_reach_is_refused(text):
    with pytest.raises(UserError, match="target"):
        Target.parse(text, default_metric="auc", allowed=CLICK_METRICS)


@pytest.mark.parametrize("text", ["1", "5", "wer=1.5", "0", "inf"])
def test_an_error_rate_that_writing_nothing_reaches_is_no_target(text):
    with pytest.raises(UserError, match="above 0 and below 1"):
        Target.parse(text, default_metric="cer", allowed=SPEECH_METRICS)


def test_a_percentage_is_told_apart():
    with pytest.raises(UserError, match=r"write 0\.05 for 5 %"):
        Target.parse("5", default_metric="cer", allowed=SPEECH_METRICS)
    with pytest.raises(UserError, match=r"write 0\.78 for 78 %"):
        Target.parse("78", default_metric="auc", allowed=CLICK_METRICS)


def test_a_target_names_metrics_the_job_has():
    with pytest.raises(UserError, match="choose one of cer, wer"):
        Target.parse("auc=0.8", default_metric="cer", allowed=SPEECH_METRICS)
    with pytest.raises(UserError, match="'high' is not a number"):
        Target.parse("high", default_metric="cer", allowed=SPEECH_METRICS)


def test_a_target_is_reached_from_its_own_side():
    auc = Target.parse("0.78", default_metric="auc", allowed=CLICK_METRICS)
    cer = Target.parse("0.05", default_metric="cer", allowed=SPEECH_METRICS)
    assert [auc.reached(v) for v in (0.77, 0.78, 0.79)] == [False, True, True]
    assert [cer.reached(v) for v in (0.06, 0.05, 0.04)] == [False, True, True]
