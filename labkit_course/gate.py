"""The knockout gate: each check fails for no answer, for a typed constant and for each usual mistake, and only then."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from labkit_course.exercise import FEWEST_WORDS, Case, Exercise, ExerciseError, Explanation, WrittenExercise

STUDENTS = range(8)
MOST_MISTAKES = 3
CONSTANTS = (None, 0, 1, -1, True, False, "", "a", [], (), {}, 0.5)


def knocked_out(name: str, exercise: Exercise | WrittenExercise | Explanation) -> Iterator[str]:
    """What is wrong with the check of an exercise, a line each."""

    def refused(answer: Any, *student: int) -> str | None:
        """What the check says to a wrong answer; None where it takes it."""
        try:
            exercise.check(name, answer, *student)
        except ExerciseError as error:
            return str(error)
        return None

    for empty in (..., None):
        if refused(empty) is None:
            yield f"{name} takes no answer for one"
    if len(getattr(exercise, "mistakes", ())) > MOST_MISTAKES:
        yield f"{name} has more than {MOST_MISTAKES} usual mistakes"
    if isinstance(exercise, Explanation):
        yield from _explanation(name, exercise, refused)
    elif isinstance(exercise, WrittenExercise):
        yield from _written(name, exercise, refused)
    else:
        yield from _number(name, exercise, refused)


def _explanation(name: str, exercise: Explanation, refused: Callable[..., str | None]) -> Iterator[str]:
    if refused(exercise.model) is not None or len(exercise.rubric) < 2:
        yield f"{name} needs a rubric of two points or more, and a model answer of {FEWEST_WORDS} words"
    if refused("because it is so") is None:
        yield f"{name} takes a text of four words"


def _number(name: str, exercise: Exercise, refused: Callable[..., str | None]) -> Iterator[str]:
    truths = [exercise.truth(**exercise.numbers(student)) for student in STUDENTS]
    for student, truth in zip(STUDENTS, truths, strict=True):
        if said := refused(truth, student):
            yield f"{name} refuses the right answer {truth!r} of student {student}: {said}"
    if constants := [each for each in truths if all(refused(each, student) is None for student in STUDENTS)]:
        yield f"{name} takes the constant {constants[0]!r} from every student: draw its numbers"
    for wrong, hint in exercise.mistakes.items():
        value = wrong(**exercise.numbers(0))
        if hint not in (refused(value) or ""):
            yield f"{name} has no such hint for the mistake {value!r}: {hint}"


def _written(name: str, exercise: WrittenExercise, refused: Callable[..., str | None]) -> Iterator[str]:
    if said := refused(exercise.reference):
        yield f"{name} refuses its own reference: {said}"
    for constant in CONSTANTS:
        if refused(constant) is None or refused(_always(constant)) is None:
            yield f"{name} takes the constant {constant!r}"
    for case in [] if inspect.isclass(exercise.reference) else exercise.cases:
        if refused(_always(_first_answer(exercise.reference, case))) is None:
            yield f"{name} takes code that always gives what is right for {case.name}"
    hints = set(exercise.mistakes.values())
    if len(hints) < len(exercise.mistakes):
        yield f"{name} has the same hint for two mistakes"
    for number, (wrong, hint) in enumerate(exercise.wrong_code().items(), 1):
        if hint not in (refused(wrong) or ""):
            yield f"{name} does not give the hint for mistake {number}: {hint}"


def _always(constant: Any) -> Callable[..., Any]:
    return lambda *_, **__: constant


def _first_answer(reference: Callable[..., Any], case: Case) -> Any:
    """What the reference gives when the case first calls it."""
    given = []

    def remember(*arguments: Any, **named: Any) -> Any:
        given.append(reference(*arguments, **named))
        return given[-1]

    case.ask(remember)
    return given[0]
