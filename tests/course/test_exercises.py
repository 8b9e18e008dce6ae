"""Each exercise takes its right answer, has a hint for each usual mistake, and is not confused by nonsense."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.course import check
from labkit.course.exercise import Exercise, ExerciseError, NotAnswered, WrongAnswer, WrongKind, all_exercises
from labkit.errors import UserError
from labkit.hardware.calibration import Calibration

CARD = Calibration("a CPU", 2, 100.0, 50.0, 10.0, 2.0, "2026-01-01")
EVENTS = [{"event": name} for name in ("started", "evaluated", "evaluated", "tested", "ended")]
SLOW_BUT_MANY = {"time_to_target_s": 9.0, "samples_per_s": 900.0}
QUICK_BUT_FEW = {"time_to_target_s": 3.0, "samples_per_s": 300.0}
BUSY = pd.DataFrame({"load": ["chase", "copy"], "gb_per_s": [0.2, 10.0]})
CENSORED = {"time_to_target_s": None, "samples_per_s": 1.0}

RIGHT = {
    "00.provenance": "emulated", "00.cost": 0.3, "00.test_looks": 1, "01.intensity": 1 / 6, "01.limit": "memory",
    "01.launch": 2e-6 * 1e11, "02.percent": 12.1, "02.faster": "too fast", "02.mapped": True, "10.pairs": 351,
    "10.table_gb": 2.56, "10.sooner": "small", "20.ctc": "three", "20.outputs": 12, "20.wer": 0.6667,
    "30.chase": 50.0, "30.overstated": 3.42, "30.scheduler": "sm_active", "31.interval": True, "31.pairs": "drift",
    "31.nsys": 1.86, "32.amdahl": 2.5, "32.lookup": True, "32.hits": 1, "32.method": "framework",
    "40.isolation": "mig", "40.overestimate": 76.05, "40.gain": 1.5, "40.fairness": 0.974, "41.blast": 3,
    "41.restart": 50, "41.choose": "mig", "42.gain": 25.0, "42.fit": "small", "42.recovery": 630, "50.can_fall": True,
    "50.waiting": 3 / 8, "50.median": 20, "50.restarts": 13, "50.cost": 0.002,
}  # fmt: skip
"""The answer of each exercise"""
GIVEN = {
    "00.test_looks": {"events": EVENTS},
    "01.limit": {"card": CARD},
    "01.launch": {"card": CARD},
    "10.sooner": {"small": QUICK_BUT_FEW, "large": SLOW_BUT_MANY},
    "30.chase": {"busy": BUSY},
    "32.hits": {"logit": torch.tensor([1.0, -1.0, 2.0]), "label": torch.tensor([1.0, 1.0, 0.0])},
}
"""What the notebooks hand to the checks"""
NONSENSE = [10**400, object(), [1, 2], {"a": 1}, b"x", float("nan"), "no such thing at all", lambda: 1]


def test_every_exercise_is_tried():
    assert list(RIGHT) == list(all_exercises())


@pytest.mark.parametrize("name", RIGHT)
def test_each_exercise_knows_right_and_wrong_and_odd_answers(name, capsys):
    right, given, exercise = RIGHT[name], GIVEN.get(name, {}), all_exercises()[name]
    rounded = float(f"{right:.2g}") if isinstance(right, float) and exercise.relative == 0.03 else right
    for answer in (right, rounded):  # two figures are enough
        check(name, answer, **given)
    assert exercise.explanation in capsys.readouterr().out
    mistakes = {told(**given) if callable(told) else told: hint for told, hint in exercise.mistakes.items()}
    assert len(set(mistakes.values())) == len(mistakes) == len(exercise.mistakes)
    is_text = isinstance(right, str) and not exercise.choices
    others = exercise.choices or (["no such"] if is_text else [False] if right is True else [-77])
    mistakes = {value: exercise.hint for value in others if value != right} | mistakes
    for value, hint in mistakes.items():
        with pytest.raises(WrongAnswer, match=re.escape(hint)):
            check(name, value, **given)
    for value in NONSENSE:
        with pytest.raises(WrongAnswer if is_text and isinstance(value, str) else WrongKind, match=name):
            check(name, value, **given)
    for value in (..., None):
        with pytest.raises(NotAnswered, match=f"{name} is not answered yet"):
            check(name, value, **given)


def test_a_check_says_what_it_needs():
    with pytest.raises(UserError, match=r"check\(\.\.\., answer, small=small, large=large\)"):
        check("10.sooner", "small")
    with pytest.raises(UserError, match=r"10\.pairs"):
        check("10.pears", 3)
    check("10.sooner", "neither", small=CENSORED, large=CENSORED)


EITHER = {"choices": ("a", "b"), "mistakes": {"b": "Not b."}}


@pytest.mark.parametrize(
    ("truth", "more", "answer", "said"),
    [
        *((2.0, {}, answer, None) for answer in (2, np.float32(2), np.array([2.0]), torch.tensor([2.0]))),
        (2.0, {}, np.array([2.0, 2.0]), "a number"),
        (0.3, {"unit": "US dollars"}, "0.30", r"a number \(US dollars\), such as 2.5, without quotes"),
        (100.0, {"relative": 0.01}, 101.0, None),
        (100.0, {"relative": 0.01}, 102.0, "not yet. Think."),
        (351, {}, np.int64(351), None),
        (351, {}, 350, "not yet"),  # a whole number has no tolerance
        (3, {}, 3.5, "an integer"),
        (1, {}, True, "an integer"),
        (True, {}, np.True_, None),
        (True, {}, 1, "True or False"),
        ("a", EITHER, " A ", None),
        ("a", EITHER, "b", "Not b"),
        ("a", EITHER, "c", "one of 'a', 'b'"),
    ],
)
def test_an_answer_of_each_kind(truth, more, answer, said):
    exercise = Exercise(truth, hint="Think.", explanation="So.", **more)
    if said is None:
        assert exercise.check("99.made", answer, {}) == "Exercise 99.made: right. So."
        return
    with pytest.raises(ExerciseError, match=said) as wrong:
        exercise.check("99.made", answer, {})
    assert wrong.value._render_traceback_() == [str(wrong.value)], "IPython shows words without a traceback"
