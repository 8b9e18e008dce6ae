"""Each exercise takes its right answer, has a hint for each usual mistake, and is not confused by nonsense."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.course import check
from labkit.course.exercise import (
    CHOICE,
    INTEGER,
    NUMBER,
    TEXT,
    YES_NO,
    Exercise,
    Mistake,
    NotAnswered,
    WrongAnswer,
    WrongKind,
)
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
def test_the_right_answer_passes_and_says_why(name, capsys):
    given, right, _ = CASES[name]
    check(name, right, **given)
    assert all_exercises()[name].explanation in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "rounded"), {"01.intensity": 0.17, "50.waiting": 0.38, "10.table_gb": 2.6, "20.wer": 0.67}.items()
)
def test_two_figures_are_enough(name, rounded):
    check(name, rounded)


def test_answers_of_numpy_count():
    check("50.can_fall", np.True_)
    check("10.pairs", np.int64(351))
    check("00.cost", np.array([0.3]))


def test_a_whole_number_has_no_tolerance():
    with pytest.raises(WrongAnswer):
        check("10.pairs", 350)


def test_a_check_without_its_values_says_which():
    with pytest.raises(UserError, match=r"check\(\.\.\., answer, small=small, large=large\)"):
        check("10.sooner", "small")


@pytest.mark.parametrize("answer", ["0.30", "3/10"])
def test_a_number_in_quotes_is_told_so(answer):
    with pytest.raises(WrongKind, match="without quotes"):
        check("00.cost", answer)


@pytest.mark.parametrize("name", CASES)
def test_wrong_answers_get_a_hint_and_the_usual_ones_their_own(name):
    given, _, wrong = CASES[name]
    exercise = all_exercises()[name]
    hints = set()
    for mistake in exercise.mistakes:
        value = mistake.answer(**given) if callable(mistake.answer) else mistake.answer
        with pytest.raises(WrongAnswer, match=re.escape(mistake.hint)):
            check(name, value, **given)
        hints.add(mistake.hint)
    assert len(hints) == len(exercise.mistakes)
    for value in wrong:
        with pytest.raises(WrongAnswer, match=re.escape(exercise.hint)):
            check(name, value, **given)
    if exercise.kind == YES_NO:
        with pytest.raises(WrongAnswer):
            check(name, False, **given)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
def test_nonsense_is_told_what_is_wanted(name, answer):
    given, *_ = CASES[name]
    wrong_but_a_text = all_exercises()[name].kind == TEXT and isinstance(answer, str)
    with pytest.raises(WrongAnswer if wrong_but_a_text else WrongKind, match=name):
        check(name, answer, **given)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("answer", [..., None])
def test_an_exercise_without_an_answer_says_so_by_name(name, answer):
    with pytest.raises(NotAnswered, match=f"{name} is not answered yet"):
        check(name, answer, **CASES[name][0])


def test_both_censored_is_neither(capsys):
    check("10.sooner", "neither", small=CENSORED, large=CENSORED)


def test_an_unknown_exercise_lists_those_there_are():
    with pytest.raises(UserError, match=r"10\.pairs"):
        check("10.pears", 3)


def made(kind, truth, **more) -> Exercise:
    return Exercise("99.made", kind, truth, hint="Think.", explanation="So.", **more)


def test_a_number_may_be_an_array_of_one_or_of_numpy():
    exercise = made(NUMBER, 2.0)
    for answer in (2, 2.0, np.float32(2), np.array(2.0), np.array([2.0])):
        exercise.check(answer, {})
    with pytest.raises(WrongKind):
        exercise.check(np.array([2.0, 2.0]), {})


def test_tolerance_is_of_the_right_answer():
    exercise = made(NUMBER, 100.0, relative=0.01)
    exercise.check(101.0, {})
    with pytest.raises(WrongAnswer):
        exercise.check(102.0, {})


def test_a_fraction_is_no_integer_and_a_yes_is_no_number():
    with pytest.raises(WrongKind, match="an integer"):
        made(INTEGER, 3).check(3.5, {})
    with pytest.raises(WrongKind):
        made(INTEGER, 1).check(True, {})
    with pytest.raises(WrongKind, match="True or False"):
        made(YES_NO, True).check(1, {})


def test_a_choice_ignores_case_and_lists_what_there_is():
    exercise = made(CHOICE, "a", choices=("a", "b"), mistakes=(Mistake("b", "Not b."),))
    exercise.check(" A ", {})
    with pytest.raises(WrongAnswer, match="Not b"):
        exercise.check("b", {})
    with pytest.raises(WrongKind, match="one of 'a', 'b'"):
        exercise.check("c", {})


def test_a_wrong_answer_shows_as_words_without_a_traceback():
    """IPython asks an exception for its own rendering."""
    with pytest.raises(WrongAnswer) as wrong:
        check("20.outputs", 11)
    assert wrong.value._render_traceback_() == [str(wrong.value)]
