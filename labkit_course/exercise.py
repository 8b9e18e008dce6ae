"""An exercise whose answer is a number: what is right, and what to say to a wrong one."""

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

    truth: Callable[..., float]
    """From the numbers drawn for a student to the right answer; an int where a whole number is asked."""
    draw: Callable[[Random], dict[str, Any]]
    """The numbers of the question, by name, so that no two students have the same."""
    hint: str
    """What to say to a wrong answer that is none of the usual mistakes."""
    explanation: str
    """Why the right answer is right; shown with it."""
    relative: float = 0.03
    """How far a number may be off, as a share of the right one: by default, by what two figures round off."""
    unit: str = ""
    mistakes: Mapping[Callable[..., float], str] = field(default_factory=dict)
    """Wrong answers that many give, by the drawn numbers, and the hint that helps."""

    def numbers(self, student: int) -> dict[str, Any]:
        """The numbers of the question, as a student of that number has them."""
        return self.draw(Random(f"labkit {student}"))

    def check(self, name: str, answer: Any, student: int = 0) -> str:
        """What to say to a right answer; raises as `labkit_course.checks` does."""
        if answer is None or answer is Ellipsis:
            raise NotAnswered(
                f"Exercise {name} is not answered yet: write your answer in the cell above in place of the dots, "
                "run that cell, then this one."
            )
        numbers = self.numbers(student)
        truth, value = self.truth(**numbers), answer
        with contextlib.suppress(AttributeError, ValueError, RuntimeError):
            value = answer.item()  # of numpy or torch
        whole = isinstance(truth, int)
        if not is_number(value) or (whole and value != int(value)):
            wanted, unit = ("an integer", 3) if whole else ("a number", 2.5), f" ({self.unit})" if self.unit else ""
            shown = repr(answer)
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            bare = ", without quotes" if isinstance(value, str) else ""
            raise WrongKind(f"Exercise {name}: write {wanted[0]}{unit}, such as {wanted[1]}{bare}; {shown} is none.")

        def is_right(right: float) -> bool:
            return math.isclose(value, right, rel_tol=0.0 if whole else self.relative, abs_tol=1e-12)

        if is_right(truth):
            return f"Exercise {name}: right. {self.explanation}"
        hints = (hint for wrong, hint in self.mistakes.items() if is_right(wrong(**numbers)))
        raise WrongAnswer(f"Exercise {name}: not yet. {next(hints, self.hint)}")


def is_number(value: Any) -> bool:
    """Whether a value is one finite number that a float can hold; `True` is none.

    >>> is_number(2), is_number(2.5), is_number(True), is_number(10**400)
    (True, True, False, False)
    """
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
