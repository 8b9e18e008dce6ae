"""What a notebook calls: check an answer or code, explain, and take up one's own code again."""

import functools
import linecache
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit.errors import UserError
from labkit.runs import replace_text
from labkit_course.exercise import (
    TRIES,
    Exercise,
    ExerciseError,
    Explanation,
    NotAnswered,
    Statement,
    WrittenExercise,
    WrongAnswer,
)
from labkit_course.lab import all_exercises, answer_cell
from labkit_course.outcome import functions_of, is_labkits
from labkit_course.progress import done, keep, kept, offer_box, recorded

MYLAB = Path("mylab")
"""The student's own modules, in the notebook's folder: `from mylab.dlrm import MyDlrm` works there."""
HEAD = '"""What I wrote; the checks of the course keep it here. Change it as you like, and check it again."""\n'


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
    exercise = find(name, Exercise | WrittenExercise | Statement)
    if isinstance(exercise, Statement):
        print(exercise.check(name, answer))
        keep("verdict", name, verdict=answer)
        return print(_how_far(name))
    tries = [entry.get("right") for entry in kept("attempt", name)].count(False)
    try:
        said = (
            exercise.check(name, answer, student)
            if isinstance(exercise, Exercise)
            else judge(name, exercise, answer, tries)
        )
    except NotAnswered:
        if isinstance(exercise, Exercise):

            def take(answer: Any) -> None:
                check(name, answer, student)
                print(f"To hand it in, write it in the cell above: answer = {answer!r}")

            offer_box(name, exercise.unit, take)
        raise
    except ExerciseError as error:
        keep("attempt", name, right=False)
        if isinstance(exercise, WrittenExercise) and tries + 1 >= TRIES:
            more = f' After {tries + 1} tries you may look at one way to write it: reference("{name}").'
            raise type(error)(str(error) + more) from None
        raise
    keep("attempt", name, right=True)
    print(said)
    if isinstance(exercise, WrittenExercise):
        print(_keep_code(name, exercise.module, answer, functools.partial(exercise.check, name)), end="")
    print(_how_far(name))


def judge(name: str, exercise: WrittenExercise, answer: Any, tries: int = 0) -> str:
    """What to say to right code, which is a student's own.

    Raises:
        ExerciseError: it is wrong, or labkit's.
    """
    if callable(answer) and is_labkits(answer):
        raise WrongAnswer(f"Exercise {name}: not yet. This is labkit's own code: write yours.")
    return exercise.check(name, answer, tries)


def explain(name: str, answer: Any) -> None:
    """Keep two sentences of the student's, which are graded by hand, and show the rubric and a model answer.

    Raises:
        ExerciseError: there is no text yet, or hardly one.
    """
    from IPython.display import HTML, display

    shown = find(name, Explanation).check(name, answer)
    keep("explanation", name, text=answer)
    display(HTML(shown))
    print(_how_far(name))


def _how_far(name: str) -> str:
    """How far a student is in the lab of an exercise, as a line.

    Explanations count, claims do not: not every machine can judge them.
    """
    number = name.partition(".")[0]
    names, finished = list(all_exercises(number)), done()
    count = len(finished.intersection(names))
    following = next((f"next: {each}" for each in names if each not in finished), "all done")
    return f"{'▰' * count}{'▱' * (len(names) - count)} {count} of {len(names)} of lab {number}; {following}."


def model_answer(name: str) -> str:
    """One good answer of an explanation, or the verdict of this kernel's results, for the authored notebooks."""
    exercise = find(name, Explanation | Statement)
    return exercise.model if isinstance(exercise, Explanation) else exercise.right(recorded())[0]


def mine(name: str) -> Any:
    """The student's own code of an exercise, from `mylab`; labkit's reference where there is none that can be imported.

    The reference is for later labs: that it was handed out is kept, and it is no answer to its own exercise.
    """
    exercise = find(name, WrittenExercise)
    attribute, path = exercise.reference.__name__, MYLAB / f"{exercise.module}.py"
    try:
        code = getattr(_module(exercise.module, path.read_text(encoding="utf-8"), path), attribute)
    except Exception as error:  # whatever the student's module raises
        none = isinstance(error, (OSError, AttributeError))
        why = f"yours is not in {path} yet" if none else f"{path} raises {type(error).__name__}: {error}"
        print(f"{name}: labkit's reference, for {why}. It is kept that you have it.")
        keep("reference", name, how="mine")
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


def _cell_of(code: Callable) -> str | None:
    """The cell that defines a function or class; None where a file does."""
    made = functions_of(code)
    name = made[0].__code__.co_filename if made else ""
    lines = [] if Path(name).is_file() else linecache.getlines(name)
    return "".join(line for line in lines if not re.match(r"\s*### (BEGIN|END) SOLUTION|[%!]", line)).strip() or None


def _keep_code(name: str, module: str, code: Callable, works: Callable[[Any], Any]) -> str:
    """Keep the cell of right code in its module; return a line that says where it is, or why not; none if no cell.

    Args:
        name: of the exercise, under which a later version replaces this one.
        works: is given the code as the module has it, and raises where it does not work there.
    """
    if (cell := _cell_of(code)) is None:
        return ""
    path = MYLAB / f"{module}.py"
    head, sections = _parts(path)
    sections[name] = cell
    text = head + "".join(f"\n# --- {each}\n{sections[each]}\n" for each in sorted(sections))
    try:
        works(getattr(_module(module, text, path), code.__name__))  # ty: ignore[missing-attribute]  # a function
    except Exception as error:  # whatever the student's code raises
        why = f"{type(error).__name__}: {error}"
        return f"It is not kept for later labs, for its cell does not stand alone ({why}): import there what it uses.\n"
    MYLAB.mkdir(exist_ok=True)
    replace_text(path, text)
    return f'It is kept in {path}; `mine("{name}")` finds it there.\n'


def _parts(path: Path) -> tuple[str, dict[str, str]]:
    """What stands at the head of a module, and what is kept below it, by exercise."""
    text = path.read_text(encoding="utf-8") if path.is_file() else HEAD
    head, *parts = re.split(r"^# --- (\d\d\.\w+)\n", text, flags=re.MULTILINE)
    return head.rstrip() + "\n", {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _module(name: str, text: str, path: Path) -> ModuleType:
    made = ModuleType(f"mylab.{name}")
    made.__file__ = str(path)
    exec(compile(text, str(path), "exec"), vars(made))
    return made
