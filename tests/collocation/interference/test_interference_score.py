import pytest

from labkit.collocation.interference.prediction import Prediction
from labkit.collocation.interference.score import MODEL, mean_errors, score
from labkit.errors import UserError


def predictions():
    pair = [Prediction("a", "cpu-shared", 2, 1.5, ""), Prediction("b", "cpu-shared", 2, 2.2, "")]
    return [*pair, Prediction("a", "cpu-pinned", 2, 1.0, "")]


def test_errors_stand_beside_two_guesses():
    scored = score(predictions(), [2.0, 2.0, 1.25])
    assert scored["error"].tolist() == pytest.approx([-0.25, 0.1, -0.2])
    errors = mean_errors(scored).set_index(["mode", "way"])["mape"]
    assert errors["cpu-shared", MODEL] == pytest.approx(17.5)
    assert errors["cpu-shared", "as many times as there are jobs"] == pytest.approx(0.0)
    assert errors["cpu-shared", "no slowdown"] == pytest.approx(50.0)
    assert errors["all", "as many times as there are jobs"] == pytest.approx((0 + 0 + 60) / 3)


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(UserError, match="3 predictions and 1"):
        score(predictions(), [1.0])
    with pytest.raises(UserError, match="not above zero"):
        score(predictions(), [1.0, 0.0, 1.0])
