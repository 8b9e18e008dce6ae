"""An exercise: what a right answer is, and what to say to a wrong one."""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import UserError

NUMBER, INTEGER, TEXT, CHOICE, YES_NO = "a number", "an integer", "a text", "a choice", "True or False"
EXAMPLES = {NUMBER: ", such as 2.5", INTEGER: ", such as 3", TEXT: ', such as "seven"', YES_NO: ""}


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
class Mistake:
    """A wrong answer that many give, and the hint that helps."""

    answer: Any
    """The value, or a function of the exercise's given values."""
    hint: str


@dataclass(frozen=True)
class Exercise:
    """One question of a notebook."""

    name: str
    """The notebook's number and a word: "10.tables"."""
    kind: str
    """NUMBER, INTEGER, TEXT, CHOICE or YES_NO."""
    truth: Any
    """The right answer, or a function of the values that the notebook gives the check."""
    hint: str
    """What to say to a wrong answer that is none of the usual mistakes."""
    explanation: str
    """Why the right answer is right; shown with it."""
    choices: tuple[str, ...] = ()
    """What a CHOICE may be."""
    relative: float = 0.03
    """How far a NUMBER may be off, as a share of the right one: by default, by what two figures round off."""
    unit: str = ""
    mistakes: Sequence[Mistake] = ()

    def check(self, answer: Any, given: dict[str, Any]) -> str:
        """What to say to a right answer.

        Raises:
            NotAnswered, WrongKind, WrongAnswer: it is none; the text says what to do next.
            UserError: a given value is missing.
        """
        needed = inspect.signature(self.truth).parameters if callable(self.truth) else ()
        if missing := [name for name in needed if name not in given]:
            values = ", ".join(f"{name}={name}" for name in missing)
            raise UserError(
                f"Exercise {self.name}: the check needs more of this notebook: check(..., answer, {values})."
            )
        if answer is None or answer is Ellipsis:
            raise NotAnswered(
                f"Exercise {self.name} is not answered yet: write your answer in the cell above in place of the dots, "
                "run that cell, then this one."
            )
        typed = self._typed(answer)
        if self._equal(typed, self.truth, given):
            return f"Exercise {self.name}: right. {self.explanation}"
        hints = (mistake.hint for mistake in self.mistakes if self._equal(typed, mistake.answer, given))
        raise WrongAnswer(f"Exercise {self.name}: not yet. {next(hints, self.hint)}")

    def _typed(self, answer: Any) -> Any:
        """The answer in this exercise's kind."""
        value = answer
        with contextlib.suppress(AttributeError, ValueError, RuntimeError):
            value = answer.item()  # of a number of numpy or torch, or of an array or tensor of one
        if isinstance(value, str):
            value = value.strip().lower()
        fits = {
            NUMBER: is_number(value),
            INTEGER: is_number(value) and value == int(value),
            TEXT: isinstance(value, str),
            CHOICE: isinstance(value, str) and value in self.choices,
            YES_NO: isinstance(value, bool),
        }
        if fits[self.kind]:
            return value
        wanted = self.kind + (f" ({self.unit})" if self.unit else "") + EXAMPLES.get(self.kind, "")
        if self.kind == CHOICE:
            wanted = f"one of {', '.join(map(repr, self.choices))}"
        elif isinstance(value, str):
            wanted += ", without quotes"
        shown = repr(answer)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise WrongKind(f"Exercise {self.name}: write {wanted}; {shown} is none.")

    def _equal(self, answer: Any, other: Any, given: dict[str, Any]) -> bool:
        """Whether an answer is another one, or what that function makes of the given values."""
        other = other(**given) if callable(other) else other
        if self.kind in (NUMBER, INTEGER):
            relative = self.relative if self.kind == NUMBER else 0.0
            return math.isclose(answer, float(other), rel_tol=relative, abs_tol=1e-12)
        return answer == other


def is_number(value: Any) -> bool:
    """Whether a value is one finite number that a float can hold; `True` is none.

    >>> is_number(2), is_number(2.5), is_number(True), is_number(10**400)
    (True, True, False, False)
    """
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
