"""What a notebook calls: check an answer or code, explain, and take up one's own code again."""

from __future__ import annotations

import functools
from typing import Any

from labkit.errors import UserError
from labkit_course import mylab
from labkit_course.exercise import Exercise, ExerciseError, Explanation, NotAnswered, WrittenExercise
from labkit_course.lab import all_exercises, answer_cell
from labkit_course.progress import keep, kept

TRIES = 3
"""After so many failures the reference is offered."""


def check(name: str, answer: Any, student: int = 0) -> None:
    """Say whether an answer or code is right, and if not, what to think about; right code is kept in `mylab`.

    Args:
        name: the exercise, such as "10.interaction".
        answer: what the student wrote: a number, a text, a function or a class.
        student: whose numbers the question had, of an exercise that draws them.

    Raises:
        ExerciseError: the answer is missing, of the wrong kind, or wrong; the text says what to do next. nbgrader
            counts it as no points.
        UserError: there is no such exercise.
    """
    exercise = find(name, Exercise | WrittenExercise)
    try:
        said = exercise.check(name, answer, *([student] if isinstance(exercise, Exercise) else []))
    except NotAnswered:
        if isinstance(exercise, Exercise):
            _offer_box(name, exercise, student)
        raise
    except ExerciseError as error:
        keep("attempt", name, right=False)
        tries = sum(not entry.get("right") for entry in kept("attempt", name))
        if isinstance(exercise, WrittenExercise) and tries >= TRIES:
            more = f' After {tries} tries you may look at one way to write it: reference("{name}").'
            raise type(error)(str(error) + more) from None
        raise
    keep("attempt", name, right=True)
    print(said)
    if isinstance(exercise, WrittenExercise):
        print(mylab.keep_code(name, exercise.module, answer, functools.partial(exercise.check, name)), end="")


def explain(name: str, answer: Any) -> None:
    """Keep two sentences of the student's, which are graded by hand, and show the rubric and a model answer.

    Raises:
        ExerciseError: there is no text yet, or hardly one; the text has the rubric.
    """
    from IPython.display import HTML, display

    shown = find(name, Explanation).check(name, answer)
    keep("explanation", name, text=answer)
    display(HTML(shown))


def model_answer(name: str) -> str:
    """One good answer of an explanation, for the authored notebooks."""
    return find(name, Explanation).model


def mine(name: str) -> Any:
    """The student's own code of an exercise, from `mylab`; labkit's reference where there is none that can be imported.

    >>> mine("10.interaction").__name__
    10.interaction: labkit's reference, for yours is not in mylab/dlrm.py yet
    'interaction'
    """
    exercise = find(name, WrittenExercise)
    attribute, path = exercise.reference.__name__, mylab.FOLDER / f"{exercise.module}.py"
    try:
        code = mylab.load(exercise.module, attribute)
    except (OSError, AttributeError):
        print(f"{name}: labkit's reference, for yours is not in {path} yet")
        return exercise.reference
    except Exception as error:  # whatever the student's module raises
        print(f"{name}: labkit's reference, for {path} raises {type(error).__name__}: {error}")
        return exercise.reference
    print(f"{name}: yours, from {path}")
    return code


def reference(name: str) -> None:
    """Print one way to write it, once it was tried often enough; that it was looked at is kept.

    Raises:
        UserError: it was not.
    """
    find(name, WrittenExercise)
    tries = [entry.get("right") for entry in kept("attempt", name)]
    failed = tries.count(False)
    if failed < TRIES and not any(tries):
        raise UserError(f"{name}: the reference is for after {TRIES} tries, and {failed} are kept: check yours first.")
    keep("reference", name)
    print(answer_cell(name))


def draw(name: str, student: int = 0) -> dict[str, Any]:
    """The numbers of an exercise's question, by name, as a student of that number has them."""
    numbers = find(name, Exercise).numbers(student)
    print(", ".join(f"{key} = {value}" for key, value in numbers.items()))
    return numbers


def find(name: str, kind: Any) -> Any:
    """The exercise of that name.

    Raises:
        UserError: there is none, or it is of another kind.
    """
    known = all_exercises(name.partition(".")[0])
    known = known if name in known else all_exercises()
    if not isinstance(found := known.get(name), kind):
        near = [each for each in known if each.startswith(name[:3])] or known
        names = ", ".join(each for each in near if isinstance(known[each], kind))
        raise UserError(f"there is no such exercise as {name!r}: the names are {names}.")
    return found


def _offer_box(name: str, exercise: Exercise, student: int) -> None:
    """A box for the answer, where a notebook can show one."""
    from labkit_course.boxes import offer

    def take(answer: Any) -> None:
        check(name, answer, student)
        print(f"To hand it in, write it in the cell above: answer = {answer!r}")

    offer(name, exercise.unit, take)
