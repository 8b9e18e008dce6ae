"""An exercise whose answer is a number or a word: what is right, and what to say to a wrong one."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any


class ExerciseError(Exception):
    """What a check says when it does not pass; in a notebook it shows as its words alone."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback, of which a student has no use."""
        return [str(self)]


class NotAnswered(ExerciseError):
    """The answer is still the placeholder."""


class WrongKind(ExerciseError):
    """The answer is not of the kind that was asked for."""


class WrongAnswer(ExerciseError):
    """The answer is of the right kind, and not right."""


@dataclass(frozen=True)
class Exercise:
    """One question of a notebook."""

    truth: Any
    """The right answer, or a function of the numbers drawn for a student. Its type says what an answer has to be: a
    number (float), an integer, or a text."""
    hint: str
    """What to say to a wrong answer that is none of the usual mistakes."""
    explanation: str
    """Why the right answer is right; shown with it."""
    draw: Callable[[Random], dict[str, Any]] = field(default=lambda random: {})
    """The numbers of the question, by name, so that no two students have the same."""
    choices: tuple[str, ...] = ()
    """What a text may be."""
    relative: float = 0.03
    """How far a number may be off, as a share of the right one: by default, by what two figures round off."""
    unit: str = ""
    mistakes: Mapping[Any, str] = field(default_factory=dict)
    """Wrong answers that many give, or functions of the drawn numbers, and the hint that helps."""

    def numbers(self, student: int) -> dict[str, Any]:
        """The numbers of the question, as a student of that number has them."""
        return self.draw(Random(f"labkit {student}"))

    def check(self, name: str, answer: Any, student: int = 0) -> str:
        """What to say to a right answer; raises as `labkit.course.check` does."""
        if answer is None or answer is Ellipsis:
            raise NotAnswered(
                f"Exercise {name} is not answered yet: write your answer in the cell above in place of the dots, "
                "run that cell, then this one."
            )
        numbers = self.numbers(student)

        def value_of(told: Any) -> Any:
            return told(**numbers) if callable(told) else told

        truth = value_of(self.truth)
        value = _plain(answer)
        fits, wanted = self._fits(value, truth)
        if not fits:
            shown = repr(answer)
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            raise WrongKind(f"Exercise {name}: write {wanted}; {shown} is none.")
        relative = self.relative if isinstance(truth, float) else 0.0
        if _equal(value, truth, relative):
            return f"Exercise {name}: right. {self.explanation}"
        hints = (hint for wrong, hint in self.mistakes.items() if _equal(value, value_of(wrong), relative))
        raise WrongAnswer(f"Exercise {name}: not yet. {next(hints, self.hint)}")

    def _fits(self, value: Any, truth: Any) -> tuple[bool, str]:
        """Whether a value is of the truth's kind, and what to write instead."""
        is_text = isinstance(value, str)
        if isinstance(truth, str):
            if self.choices:
                return is_text and value in self.choices, f"one of {', '.join(map(repr, self.choices))}"
            return is_text, 'a text, such as "seven"'
        unit, bare = f" ({self.unit})" if self.unit else "", ", without quotes" if is_text else ""
        if isinstance(truth, int):
            return is_number(value) and value == int(value), f"an integer{unit}, such as 3{bare}"
        return is_number(value), f"a number{unit}, such as 2.5{bare}"


def _plain(answer: Any) -> Any:
    """A number of numpy or torch, or an array of one, as Python's; a text in small letters."""
    with contextlib.suppress(AttributeError, ValueError, RuntimeError):
        answer = answer.item()
    return answer.strip().lower() if isinstance(answer, str) else answer


def _equal(one: Any, other: Any, relative: float) -> bool:
    if is_number(one):
        return math.isclose(one, other, rel_tol=relative, abs_tol=1e-12)
    return one == other


def is_number(value: Any) -> bool:
    """Whether a value is one finite number that a float can hold; `True` is none.

    >>> is_number(2), is_number(2.5), is_number(True), is_number(10**400)
    (True, True, False, False)
    """
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
