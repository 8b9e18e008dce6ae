"""Guesses are committed, scored as a ratio, and kept."""

import json
from fractions import Fraction

import numpy as np
import pytest

from labkit.course import guess, guesses, reveal, score_course, score_notebook
from labkit.errors import UserError


@pytest.fixture(autouse=True)
def fresh_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_COURSE", str(tmp_path / "course"))
    monkeypatch.setattr(guesses, "_open", {})


def kept() -> list[dict]:
    path = guesses.guess_file()
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_guess_is_scored_by_its_ratio_in_both_directions(capsys):
    for value, words in ((5.0, "too low by a factor of 2.00"), (20.0, "too high by a factor of 2.00")):
        guess(f"00.time{value}", value, "s")
        reveal(f"00.time{value}", 10.0)
        assert words in capsys.readouterr().out
    assert [(entry["guess"], entry["truth"], entry["unit"]) for entry in kept()] == [
        (5.0, 10.0, "s"),
        (20.0, 10.0, "s"),
    ]


def test_a_guess_may_change_before_the_answer_and_not_after(capsys):
    guess("00.time", 1.0)
    guess("00.time", 4.0)
    reveal("00.time", 8.0)
    guess("00.time", 8.0)
    assert "your first guess stays" in capsys.readouterr().out
    reveal("00.time", 8.0)
    assert [entry["guess"] for entry in kept()] == [4.0]


def test_an_answer_without_a_guess_is_not_shown(capsys):
    with pytest.raises(UserError, match="run the cell with your guess first"):
        reveal("00.time", 3.0)
    assert "3" not in capsys.readouterr().out


def test_a_run_without_an_answer_is_not_scored(capsys):
    guess("00.time", 1.0)
    reveal("00.time", float("nan"))
    assert "not scored" in capsys.readouterr().out
    reveal("00.time", None)
    assert "not scored" in capsys.readouterr().out
    score_notebook()
    assert "No guess of this notebook is scored yet" in capsys.readouterr().out
    assert kept() == []


def test_dots_are_no_guess_the_answer_is_shown_and_nothing_scored(capsys):
    guess("00.time", ..., "s")
    assert "write a number of s in place of the dots" in capsys.readouterr().out
    reveal("00.time", None)
    assert "You did not guess. There was no answer this time" in capsys.readouterr().out
    reveal("00.time", 8.0)
    assert "It is 8 s. You did not guess" in capsys.readouterr().out
    guess("00.time", 8.0, "s")
    assert "this guess does not count" in capsys.readouterr().out
    score_notebook()
    assert "No guess of this notebook is scored yet" in capsys.readouterr().out
    assert kept() == []


def test_dots_do_not_undo_a_guess(capsys):
    guess("00.time", 4.0, "s")
    guess("00.time", ..., "s")
    reveal("00.time", 8.0)
    assert [entry["guess"] for entry in kept()] == [4.0]


@pytest.mark.parametrize("value", [np.int64(4), np.float32(4), Fraction(4)])
def test_numbers_of_any_library_are_guesses(value):
    guess("00.time", value)
    reveal("00.time", 4)
    assert kept()[0]["guess"] == 4.0


def test_the_first_answer_is_scored_in_notebook_and_course(capsys):
    guess("00.time", 4.0)
    reveal("00.time", 8.0)
    reveal("00.time", 4.0)
    assert "exactly right" in capsys.readouterr().out
    for score in (score_notebook, score_course):
        score()
        assert "too low by a factor of 2.00" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["10", None, float("nan"), True, 10**400])
def test_a_guess_is_a_number(value):
    with pytest.raises(UserError, match=r"write a number of s, such as 2\.5"):
        guess("00.time", value, "s")


def test_the_notebooks_score_lists_its_guesses(capsys):
    for name, value, truth in (("00.a", 1.0, 1.0), ("00.b", 10.0, 1.0), ("00.c", 3.0, 2.0)):
        guess(name, value)
        reveal(name, truth)
    capsys.readouterr()
    score_notebook()
    said = capsys.readouterr().out
    assert "factor of 10.00" in said and "2 of 3 guesses of this notebook" in said and "factor of 1.50" in said


def test_the_course_counts_the_first_guess_of_each_day_and_kernel(capsys, monkeypatch):
    guess("00.a", 2.0)
    reveal("00.a", 1.0)
    monkeypatch.setattr(guesses, "_open", {})  # another day
    guess("00.a", 1.0)
    reveal("00.a", 1.0)
    with guesses.guess_file().open("a") as file:
        file.write('{"name": "00.b", "gue')
    capsys.readouterr()
    score_course()
    said = capsys.readouterr().out
    assert "factor of 2.00" in said and "1 of 1 guesses of the course" in said


def test_another_sign_has_no_ratio(capsys):
    guess("00.a", -1.0)
    reveal("00.a", 2.0)
    assert "off by 3" in capsys.readouterr().out
    score_notebook()
    assert "off by 3" in capsys.readouterr().out
