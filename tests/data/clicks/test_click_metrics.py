import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from labkit.data.clicks.prepared import click_metrics
from labkit.errors import UserError


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


def test_an_extreme_logit_has_a_finite_loss_and_one_class_alone_has_no_auc():
    assert click_metrics(np.array([1, 0]), np.array([-800.0, 800.0]))["log_loss"] == pytest.approx(800)
    with pytest.raises(UserError, match="3 positive and 0 negative"):
        click_metrics(np.ones(3), np.zeros(3))
