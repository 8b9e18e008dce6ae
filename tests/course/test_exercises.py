"""Each exercise takes its right answer, has a hint for each usual mistake, and is not confused by nonsense."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.course import check
from labkit.course.exercise import Exercise, ExerciseError, NotAnswered, WrongAnswer, WrongKind
from labkit.course.exercises import all_exercises
from labkit.errors import UserError
from labkit.hardware.calibration import Calibration

CARD = Calibration("a CPU", 2, 100.0, 50.0, 10.0, 2.0, "2026-01-01")
EVENTS = [{"event": name} for name in ("started", "evaluated", "evaluated", "tested", "ended")]
SLOW_BUT_MANY = {"time_to_target_s": 9.0, "samples_per_s": 900.0}
QUICK_BUT_FEW = {"time_to_target_s": 3.0, "samples_per_s": 300.0}
BUSY = pd.DataFrame({"load": ["chase", "copy"], "gb_per_s": [0.2, 10.0]})
CENSORED = {"time_to_target_s": None, "samples_per_s": 1.0}

# What the notebooks hand to the checks, the right answer, and wrong ones beyond the usual mistakes.
CASES: dict[str, tuple[dict[str, Any], Any, list[Any]]] = {
    "00.provenance": ({}, "emulated", []),
    "00.cost": ({}, 0.3, [0.4, 0.0, -0.3]),
    "00.test_looks": ({"events": EVENTS}, 1, [5, -1]),
    "01.intensity": ({}, 1 / 6, [0.5, 12.0]),
    "01.limit": ({"card": CARD}, "memory", []),
    "01.launch": ({"card": CARD}, 2e-6 * 1e11, [1.0, 3e5]),
    "02.percent": ({}, 12.1, [50.0]),
    "02.faster": ({}, "too fast", []),
    "02.mapped": ({}, True, []),
    "10.pairs": ({}, 351, [26, 27]),
    "10.table_gb": ({}, 2.56, [1.0, 25.6]),
    "10.sooner": ({"small": QUICK_BUT_FEW, "large": SLOW_BUT_MANY}, "small", ["neither"]),
    "20.ctc": ({}, "three", ["tree", ""]),
    "20.outputs": ({}, 12, [13, 2]),
    "20.wer": ({}, 0.6667, [0.0, 0.9]),
    "30.chase": ({"busy": BUSY}, 50.0, [1.0, 500.0]),
    "30.overstated": ({}, 3.42, [1.0, 100.0]),
    "30.scheduler": ({}, "sm_active", []),
    "31.interval": ({}, True, []),
    "31.pairs": ({}, "drift", []),
    "31.nsys": ({}, 1.86, [0.0, 50.0]),
    "32.amdahl": ({}, 2.5, [3.0, 60.0]),
    "32.lookup": ({}, True, []),
    "32.hits": ({"logit": torch.tensor([1.0, -1.0, 2.0]), "label": torch.tensor([1.0, 1.0, 0.0])}, 1, [0, 2, 3]),
    "32.method": ({}, "framework", ["kernel", "system"]),
    "40.isolation": ({}, "mig", ["mps", "naive"]),
    "40.overestimate": ({}, 76.05, [1.0, 200.0]),
    "40.gain": ({}, 1.5, [3.0, 1.0]),
    "40.fairness": ({}, 0.974, [1.0, 0.33]),
    "41.blast": ({}, 3, [0, 5]),
    "41.restart": ({}, 50, [100.0, 0.02]),
    "41.choose": ({}, "mig", []),
    "42.gain": ({}, 25.0, [0.0, 100.0]),
    "42.fit": ({}, "small", ["large"]),
    "42.recovery": ({}, 630, [1200.0, 570.0]),
    "50.can_fall": ({}, True, []),
    "50.waiting": ({}, 3 / 8, [0.25, 1.0]),
    "50.median": ({}, 20, [30, 0]),
    "50.restarts": ({}, 13, [9.0, 39.0]),
    "50.cost": ({}, 0.002, [2.0]),
}
NONSENSE = [10**400, object(), [1, 2], {"a": 1}, b"x", float("nan"), "no such thing at all", lambda: 1]


def test_every_exercise_is_tried():
    assert list(CASES) == list(all_exercises())


@pytest.mark.parametrize("name", CASES)
def test_each_exercise_knows_right_and_wrong_and_odd_answers(name, capsys):
    (given, right, wrong), exercise = CASES[name], all_exercises()[name]
    for answer in (
        (right, float(f"{right:.2g}")) if isinstance(right, float) and exercise.relative == 0.03 else (right,)
    ):
        check(name, answer, **given)  # two figures are enough
    assert exercise.explanation in capsys.readouterr().out
    mistakes = [(told(**given) if callable(told) else told, hint) for told, hint in exercise.mistakes.items()]
    assert len({hint for _, hint in mistakes}) == len(mistakes)
    mistakes += [(value, exercise.hint) for value in ([False] if right is True else wrong)]
    for value, hint in mistakes:
        with pytest.raises(WrongAnswer, match=re.escape(hint)):
            check(name, value, **given)
    for value in NONSENSE:
        is_text = isinstance(right, str) and not exercise.choices and isinstance(value, str)
        with pytest.raises(WrongAnswer if is_text else WrongKind, match=name):
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
