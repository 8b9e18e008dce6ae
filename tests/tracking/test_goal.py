import pytest

from labkit.errors import UserError
from labkit.tracking.goal import Target


@pytest.mark.parametrize(
    "text",
    [f"auc >= {number}" for number in ("1.2", "1", "-0.1", "nan", "inf")]
    + [f"log_loss <= {number}" for number in ("0", "-1", "inf")]
    + ["accuracy >= 0", "score >= nan", "score >= inf"],
)
def test_a_target_out_of_reach_is_refused(text):
    with pytest.raises(UserError, match="target"):
        Target.parse(text)


@pytest.mark.parametrize("text", ["cer <= 1", "cer <= 5", "wer <= 1.5", "cer <= 0", "cer <= inf"])
def test_an_error_rate_that_writing_nothing_reaches_is_no_target(text):
    with pytest.raises(UserError, match="above 0 and below 1"):
        Target.parse(text)


def test_a_percentage_is_told_apart():
    with pytest.raises(UserError, match=r"write 0\.05 for 5 %"):
        Target.parse("cer <= 5")
    with pytest.raises(UserError, match=r"write 0\.78 for 78 %"):
        Target.parse("auc >= 78")


@pytest.mark.parametrize("text", ["", "auc", "auc 0.8", "auc = 0.8", "auc >= high", ">= 0.8", "max", "best auc"])
def test_what_is_no_target_is_answered_with_examples(text):
    with pytest.raises(UserError, match='such as "accuracy >= 0\\.9"'):
        Target.parse(text)


@pytest.mark.parametrize(("text", "words"), [("auc <= 0.8", "auc >="), ("max cer", "min cer"), ("cer > 0.1", "cer <=")])
def test_a_known_metric_has_its_direction(text, words):
    with pytest.raises(UserError, match=words):
        Target.parse(text)


@pytest.mark.parametrize(
    ("text", "reached"),
    [("auc >= 0.78", [False, True, True]), ("log_loss<=0.78", [True, True, False]), ("max auc", [False] * 3)],
)
def test_a_target_is_reached_from_its_own_side(text, reached):
    assert [Target.parse(text).reached(value) for value in (0.77, 0.78, 0.79)] == reached


@pytest.mark.parametrize("text", ["auc >= 0.78", "perplexity <= 12", "max auc", "min my_own"])
def test_a_target_is_written_as_it_is_read(text):
    assert str(Target.parse(text)) == text
    assert Target.parse(str(Target.parse(text))) == Target.parse(text)
