"""What a lab must be before it is committed: each function yields what is wrong with its notebook or its checks.

The knockout gate: a check fails for no answer, for a typed constant and for each usual mistake, and for nothing else.
"""

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from jupytext.magics import is_magic
from nbformat import NotebookNode

from labkit_course.exercise import (
    FEWEST_WORDS,
    Case,
    Exercise,
    ExerciseError,
    Explanation,
    Statement,
    WrittenExercise,
)
from labkit_course.lab import all_exercises
from labkit_course.notebook_file import code_cells

MOST_NAMES = 12
"""Names that a lab imports next to `labkit` itself; instructors have `model_answer` besides."""
LONGEST_CELL = 12
GUESS = re.compile(r'^(guess\("[\w.]+", )[^"]+?((?:, "[^"]+")?\))$', re.MULTILINE)
"""A guess, a line of its own: what stands before and after its value"""
STUDENTS = range(8)
DRAWS = 4
"""Tries for which an exercise that draws its cases is judged"""
MOST_MISTAKES = 3
CONSTANTS = (None, 0, 1, -1, True, False, "", "a", [], (), {}, 0.5)


def faults(notebook: NotebookNode, stem: str) -> list[str]:
    """What is wrong with the notebook of a lab, with its answers, a line each, naming the cell."""
    code = code_cells(notebook)
    if not code:
        return ["has no code cell"]
    return [
        *_prose_faults(notebook),
        *_code_faults(code),
        *_guess_faults("\n".join(cell.source for cell in code)),
        *_exercise_faults(code, stem[:2]),
    ]


def _prose_faults(notebook: NotebookNode) -> Iterator[str]:
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    prose = re.sub(r"^(```|~~~).*?^\1", "", prose, flags=re.MULTILINE | re.DOTALL)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)]
    if levels[:1] != [1] or levels.count(1) != 1:
        yield f"has {levels.count(1)} headings of level 1, or does not begin with it"
    if any(later > earlier + 1 for earlier, later in pairwise(levels)):
        yield "skips a heading level"
    first, last = notebook.cells[0].source, notebook.cells[-1].source
    for words in ("you will be able to", "**Time:**", "**Prerequisites:**"):
        if words not in first:
            yield f"the first cell does not say {words}"
    if not last.startswith("## Recap") or "\n- " not in last or "**Next:**" not in last:
        yield "the last cell is no recap in bullets with a next notebook"


def _code_faults(code: list[NotebookNode]) -> Iterator[str]:
    tagged = {tag: [cell for cell in code if tag in cell.metadata.get("tags", [])] for tag in ("parameters", "results")}
    for tag, cells in tagged.items():
        if not cells or (tag == "parameters" and len(cells) > 1):
            yield f"has {len(cells)} cells tagged {tag}: it needs one"
    if not any('profile = "standard"' in cell.source for cell in tagged["parameters"]):
        yield 'has no parameter profile = "standard"'
    lines = {cell.id: len(cell.source.splitlines()) for cell in code}
    written = {cell.id for cell in code if cell.metadata.get("nbgrader", {}).get("solution")}
    for name, count in lines.items():
        if count > LONGEST_CELL and name not in written:
            yield f"cell {name}: has {count} lines, and {LONGEST_CELL} is the most: make it a function of labkit"
    for cell in code:
        for line in cell.source.splitlines():
            if is_magic(line, "python") and not line.startswith(("%", "!", "?")):
                # jupytext takes the comment `# cp …` for the command `cp …`
                yield f"cell {cell.id}: {line!r} begins as a command does: write the comment with another first word"
    imports = [(each.module or "", name.name) for each in _imports(code) for name in each.names]
    ours = {(module, name) for module, name in imports if module.partition(".")[0] in ("labkit", "labkit_course")}
    if deep := sorted({module for module, _ in ours if module != "labkit_course"}):
        yield f"imports from {', '.join(deep)}: write `import labkit`, and labkit.ROOM.NAME where it is used"
    if (count := len(ours - {("labkit_course", "model_answer")})) > MOST_NAMES:
        yield f"imports {count} names next to labkit, and {MOST_NAMES} are the most"


def _imports(code: list[NotebookNode]) -> Iterator[ast.ImportFrom]:
    for cell in code:
        lines = [line for line in cell.source.splitlines() if not is_magic(line, "python")]
        yield from (each for each in ast.walk(ast.parse("\n".join(lines))) if isinstance(each, ast.ImportFrom))


def _guess_faults(source: str) -> Iterator[str]:
    lines = [line for line in source.splitlines() if line.lstrip().startswith("guess(")]
    for line in lines:
        if not GUESS.fullmatch(line):
            yield f'guesses by {line!r}: write guess("name", value, "unit") as a line of its own'
        elif f"reveal({line.split(',')[0].removeprefix('guess(')}, " not in source:
            yield f"never reveals what {line} guesses"


def _exercise_faults(code: list[NotebookNode], number: str) -> Iterator[str]:
    """Of checks below the cell that they check, of explanations and claims, and of what they are named."""
    used = []
    for before, cell in pairwise(code):
        metadata = cell.metadata.get("nbgrader", {})
        if not metadata.get("grade"):
            continue
        call = re.search(r'^(check|explain|claim)\("([\w.]+)", ', cell.source, re.MULTILINE)
        kind, name = call.groups() if call else ("", "")
        used.append((kind, name))
        if metadata.get("points", 0) <= 0:
            yield f"cell {cell.id}: has no points"
        if metadata["solution"] == (kind == "check"):
            yield f"cell {cell.id}: its title has another kind than its call, {kind or 'none'}"
        answer = before if kind == "check" else cell
        if not answer.metadata.get("nbgrader", {}).get("solution") or "### BEGIN SOLUTION" not in answer.source:
            yield f"cell {answer.id}: is no answer that nbgrader clears"
    names = {name for kind, name in used if kind != "claim"}
    own = {name for name in all_exercises() if name.startswith(f"{number}.")}
    yield from (f"asks {name}, and there is no such exercise" for name in sorted(names - set(all_exercises())))
    yield from (f"never asks {name}" for name in sorted(own - names))
    numbers = [cell.source for cell in code if "results" in cell.metadata.get("tags", [])]
    for name in own & names:
        number = getattr(all_exercises()[name], "number", "")
        if number and not any(re.search(rf"\b{number}=\(", source) for source in numbers):
            yield f"{name} is decided by {number}, which is none of its results"


def knocked_out(name: str, exercise: Exercise | WrittenExercise | Explanation | Statement) -> Iterator[str]:
    """What is wrong with the check of an exercise, a line each."""

    def refused(answer: Any, *student_or_tries: int) -> str | None:
        """What the check says to a wrong answer; None where it takes it."""
        try:
            exercise.check(name, answer, *student_or_tries)
        except ExerciseError as error:
            return str(error)
        return None

    for empty in (..., None):
        if refused(empty) is None:
            yield f"{name} takes no answer for one"
    if len(getattr(exercise, "mistakes", ())) > MOST_MISTAKES:
        yield f"{name} has more than {MOST_MISTAKES} usual mistakes"
    if isinstance(exercise, Statement):
        yield from _statement(name, exercise)
    elif isinstance(exercise, Explanation):
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


def _statement(name: str, exercise: Statement) -> Iterator[str]:
    if exercise.above >= exercise.below or (exercise.above, exercise.below) == (-math.inf, math.inf):
        yield f"{name} is always true, or never: write above=NUMBER, below=NUMBER or both in the title of its cell"


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
    draws = range(DRAWS if exercise.draw else 1)
    for right, code in {"its own reference": exercise.reference, **_numbered("variant", exercise.right_code())}.items():
        if said := next(filter(None, (refused(code, tries) for tries in draws)), None):
            yield f"{name} refuses {right}: {said}"
    for constant in CONSTANTS:
        if refused(constant) is None or refused(_always(constant)) is None:
            yield f"{name} takes the constant {constant!r}"
    for case in [] if inspect.isclass(exercise.reference) else exercise.drawn():
        if refused(_always(_first_answer(exercise.reference, case))) is None:
            yield f"{name} takes code that always gives what is right for {case.name}"
    hints = set(exercise.mistakes.values())
    if len(hints) < len(exercise.mistakes):
        yield f"{name} has the same hint for two mistakes"
    for wrong, (code, hint) in _numbered("mistake", exercise.wrong_code().items()).items():
        if any(hint not in (refused(code, tries) or "") for tries in draws):
            yield f"{name} does not give the hint for {wrong}: {hint}"


def _numbered(kind: str, each: Iterable[Any]) -> dict[str, Any]:
    return {f"{kind} {number}": one for number, one in enumerate(each, 1)}


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
