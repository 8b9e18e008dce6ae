"""The exercises of all notebooks, and `check`, which the notebooks call."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from labkit.course.exercise import Exercise
from labkit.errors import UserError


def check(name: str, answer: Any, **given: Any) -> None:
    """Say whether an answer is right, and if not, what to think about.

    Args:
        name: the exercise, such as "10.tables".
        answer: what the student wrote.
        given: values of this notebook that the right answer follows from.

    Raises:
        ExerciseError: the answer is missing, of the wrong kind, or wrong; the text says what to do next. nbgrader
            counts it as no points.
        UserError: there is no such exercise.
    """
    exercise = all_exercises().get(name)
    if exercise is None:
        raise UserError(f"there is no exercise {name!r}: the names are {', '.join(all_exercises())}.")
    print(exercise.check(name, answer, given))


@functools.cache
def all_exercises() -> dict[str, Exercise]:
    """Every exercise by its name, in the order of the notebooks."""
    found: dict[str, Exercise] = {}
    for module in sorted(entry.name for entry in pkgutil.iter_modules(__path__)):
        found |= importlib.import_module(f"{__name__}.{module}").EXERCISES
    return found
