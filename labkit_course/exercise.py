"""The kinds of exercise: a number, an explanation graded by hand, a verdict, and code; what each says to an answer."""

import ast
import contextlib
import functools
import inspect
import itertools
import math
import numbers
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from random import Random
from types import MappingProxyType
from typing import Any

from labkit_course.outcome import Outcome, Raised, calls_of, differs, functions_of, is_labkits, outcome, short

FEWEST_WORDS = 20
"""Words of two sentences that say a number and why."""


VERDICTS = ("holds here", "does not hold here", "cannot be tested here")
TOO_CLOSE = 0.05
"""Share of a bound within which a measured number decides nothing, so that every verdict is right."""
TRIES = 3
"""Failures after which the right value and the reference are shown."""


class ExerciseError(Exception):
    """What a check says when it does not pass; a notebook shows the message without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback, which helps no student."""
        return [str(self)]


class NotAnswered(ExerciseError):
    """The answer is still the placeholder."""


class WrongKind(ExerciseError):
    """The answer is not of the kind that was asked for."""


class WrongAnswer(ExerciseError):
    """The answer is of the right kind, and not right."""


@dataclass(frozen=True)
class Exercise:
    """A question whose answer is a number."""

    truth: Callable[..., float]
    """The right answer, from the numbers drawn for a student; an int where a whole number is asked."""
    draw: Callable[[Random], dict[str, Any]]
    """The numbers of the question, by name, so that no two students have the same."""
    hint: str
    """What to say to a wrong answer that is none of the usual mistakes."""
    explanation: str
    """Why the right answer is right; shown with it."""
    relative: float = 0.03
    """Tolerance as a share of the right answer; the default is what rounding to two figures takes."""
    unit: str = ""
    mistakes: Mapping[Callable[..., float], str] = field(default_factory=dict)
    """Usual wrong answers, from the drawn numbers, and the hint for each; at most three."""

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
            bare = ", without quotes" if isinstance(value, str) else ""
            raise WrongKind(
                f"Exercise {name}: write {wanted[0]}{unit}, such as {wanted[1]}{bare}, not {short(answer)}."
            )

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


class Explanation:
    """What is asked for, and one good answer."""

    def __init__(self, *rubric: str, model: str, half: str = ""):
        """
        Args:
            rubric: what the text has to say; shown when a text is kept.
            model: two or three sentences that say it.
            half: a text that earns half of the points, for those who grade.
        """
        self.rubric, self.model, self.half = rubric, model, half

    def check(self, name: str, answer: Any) -> str:
        """The model answer and the rubric as HTML, for a text that is long enough to be compared with them.

        Raises:
            NotAnswered, WrongKind: there is no text, or hardly one.
        """
        todo = f"Exercise {name} is not answered yet"
        if answer is None or answer is Ellipsis:
            raise NotAnswered(f"{todo}: write two sentences, in quotes, with numbers of this notebook and why.")
        words = len(answer.split()) if isinstance(answer, str) else 0
        if words < FEWEST_WORDS:
            raise WrongKind(
                f"{todo}: these are {words} words, and two sentences have {FEWEST_WORDS}. Say numbers of this notebook "
                "and why they are so."
            )
        number = "" if any(map(str.isdigit, answer)) else " <b>There is no number in them: add those that you saw.</b>"
        return (
            f"<p>{words} words kept, to be graded by hand.{number} The text has to say:</p>{self._points()}"
            f"<details><summary>A model answer, to compare yours with</summary><p>{escape(self.model)}</p></details>"
        )

    def for_graders(self) -> str:
        """What a text has to say, one that says it, and one that says half of it, as HTML."""
        half = f"<p>Half of the points: {escape(self.half)}</p>" if self.half else ""
        return f"<p>The text has to say:</p>{self._points()}<p>All points: {escape(self.model)}</p>{half}"

    def _points(self) -> str:
        return "<ol>" + "".join(f"<li>{escape(point)}</li>" for point in self.rubric) + "</ol>"


@dataclass(frozen=True)
class Statement:
    """A confident sentence, such as an assistant writes, which a number of the student's own results decides."""

    number: str
    """Its name among the lab's `results`"""
    above: float = -math.inf
    """The sentence is true if the number is larger than this, and"""
    below: float = math.inf
    """smaller than this."""

    def right(self, recorded: Mapping[str, float | None]) -> tuple[str, ...]:
        """The verdicts that a student's numbers allow: all of them where a number lies next to a bound."""
        value = recorded.get(self.number)
        if value is None or math.isnan(value):
            return VERDICTS[2:]
        if any(math.isclose(value, bound, rel_tol=TOO_CLOSE) for bound in (self.above, self.below)):
            return VERDICTS
        return VERDICTS[:1] if self.above < value < self.below else VERDICTS[1:2]

    def check(self, name: str, answer: Any) -> str:
        """What to say to a verdict, which is judged when it is handed in: here it could be tried until it is right.

        Raises:
            NotAnswered, WrongKind: it is none.
        """
        verdicts = ", ".join(f'"{each}"' for each in VERDICTS)
        if answer is None or answer is Ellipsis:
            raise NotAnswered(f"Exercise {name} is not answered yet: write one of {verdicts} in place of the dots.")
        if not isinstance(answer, str) or answer not in VERDICTS:
            raise WrongKind(f"Exercise {name}: write one of {verdicts}, not {short(answer)}.")
        return f"Exercise {name}: {answer!r} is kept. It is graded by the results that you hand in with it."

    def grade(self, name: str, answer: Any, recorded: Mapping[str, float | None]) -> None:
        """Judge a verdict by the numbers of the notebook that was handed in.

        Raises:
            ExerciseError: it is none, it is wrong, or the notebook has no such number; the text says which.
        """
        self.check(name, answer)
        if self.number not in recorded:
            raise NotAnswered(f"Exercise {name}: the notebook has no result {self.number}: run all of it, and save it.")
        if answer not in (right := self.right(recorded)):
            bounds = {f"above {self.above:g}": self.above, f"below {self.below:g}": self.below}
            wanted = " and ".join(text for text, bound in bounds.items() if math.isfinite(bound))
            value = "none" if right == VERDICTS[2:] else f"{recorded[self.number]:.4g}"
            raise WrongAnswer(
                f"Exercise {name}: {self.number} is {value}, and the sentence needs it {wanted}, so it {right[0]}."
            )


class Case:
    """One thing that is asked of the student's code and of the reference; the two answers have to be equal."""

    def __init__(self, name: str, ask: Callable[..., Any], *given: Any, relative: float = 1e-4, **named: Any):
        """
        Args:
            name: what is asked, such as "27 vectors a row".
            ask: calls the code, its first argument, and returns a number, text, tensor, array or frame, or a list,
                tuple or dict of these.
            given, named: what `ask` takes after the code.
            relative: tolerance as a share of the largest right number: float32 sums come in another order.
        """
        self.name, self.relative = name, relative
        self.ask = lambda code: ask(code, *given, **named)


class WrittenExercise:
    """Code that a student writes."""

    def __init__(
        self,
        reference: Callable,
        *cases: Case,
        draw: Callable[[Random], Sequence[Case]] | None = None,
        hint: str,
        explanation: str,
        mistakes: Mapping[Callable | tuple[str, str], str] = MappingProxyType({}),
        variants: Sequence[Callable | tuple[str, str]] = (),
        instead_of: Sequence[str] = (),
    ):
        """
        Args:
            reference: the answer cell's own code; a later lab takes it where the student has none.
            cases: what is asked.
            draw: draws the cases, for each try again.
            hint: what to say to a wrong answer that is none of the usual mistakes.
            explanation: shown with a right answer.
            mistakes: usual wrong code, and the hint for each; at most three. A pair is a part of the reference's
                source, and what replaces it.
            variants: other right ways to write it, as code or as pairs; the check takes each, and the notebook runs
                with them.
            instead_of: functions of libraries that it replaces, such as "sklearn.metrics.roc_auc_score": an answer
                calls none.
        """
        self.reference, self.cases, self.draw = reference, cases, draw
        self.hint, self.explanation = hint, explanation
        self.mistakes, self.variants, self.instead_of = mistakes, variants, instead_of

    @property
    def module(self) -> str:
        """Module of the student's `mylab` that keeps right code: the `MODULE` of its lab, such as "dlrm"."""
        return sys.modules[self.reference.__module__].MODULE

    def check(self, name: str, answer: Any, tries: int = 0) -> str:
        """What to say to right code.

        Args:
            name: of the exercise.
            answer: the code.
            tries: failures so far: each draws other cases, and after some the text shows what is right.

        Raises:
            NotAnswered, WrongKind, WrongAnswer: it is none; the text says what to do next.
        """
        wanted = "class" if inspect.isclass(self.reference) else "function"
        if answer is None or answer is Ellipsis:
            raise NotAnswered(f"Exercise {name} is not answered yet: write the {wanted}, run its cell, then this.")
        if not callable(answer) or inspect.isclass(answer) != inspect.isclass(self.reference):
            raise WrongKind(f"Exercise {name}: give the {wanted} itself, without calling it, not {short(answer)}.")
        self._takes_the_same(name, answer)
        for seed in dict.fromkeys((tries, 0)) if self.draw else [0]:  # 0 is what everybody is graded by
            self._compare(name, answer, self.drawn(seed), tries >= TRIES)
        return f"Exercise {name}: right. {self.explanation}"

    def _takes_the_same(self, name: str, answer: Callable) -> None:
        """Refuse a function that lost a parameter with a default, which the cells after its check leave out or name."""
        wanted = inspect.signature(self.reference)
        needed = [each for each in wanted.parameters.values() if each.default is each.empty]
        chosen = dict.fromkeys(wanted.parameters.keys() - {each.name for each in needed})
        if inspect.isclass(answer) or not chosen:
            return
        with contextlib.suppress(ValueError):  # one written in C says nothing of its parameters
            own = inspect.signature(answer)
            try:
                own.bind(*needed)
                own.bind(*needed, **chosen)
            except TypeError:
                raise WrongAnswer(
                    f"Exercise {name}: not yet. Cells below call it without {', '.join(sorted(chosen))}, or name it: "
                    "keep the line that begins with `def` as it was."
                ) from None

    def drawn(self, tries: int = 0) -> Sequence[Case]:
        """The cases of a try."""
        return _drawn(self.draw, tries) if self.draw else self.cases

    def _compare(self, name: str, answer: Callable, cases: Sequence[Case], shown: bool) -> None:
        found, replaced = [], self._replaced(answer)
        for case in cases:
            _known(self.reference, case)  # first, for the answer may change what both are given
            try:
                found.append(outcome(answer, case.ask, replaced))
            except NotImplementedError:
                raise NotAnswered(
                    f"Exercise {name} is not answered yet: its code still raises NotImplementedError. Write it in the "
                    "cell above, run that cell, then this one."
                ) from None
            right = _known(self.reference, case)  # not before: an answer can look into the frames that call it
            if found[-1].called:
                calls = ", ".join(sorted(found[-1].called))
                raise WrongAnswer(f"Exercise {name}: not yet. It calls {calls}, which you are to write yourself here.")
            difference = differs(found[-1].answer, right.answer, case.relative, shown)
            if found[-1].changed and not right.changed:
                difference = difference or "it changes what it is given, which others still need: work on a copy"
                found[-1].restore()
            if difference:
                hint = self._hint(cases, [each.answer for each in found])
                raise WrongAnswer(f"Exercise {name}: not yet. Tried with {case.name}: {difference}. {hint}")

    def _replaced(self, answer: Callable) -> dict[Any, str]:
        """What an answer may not call, by what is noticed of a call."""
        own = (
            {}
            if is_labkits(answer)
            else {each: "labkit's answer" for each in functions_of(self.reference) if is_labkits(each)}
        )
        library = {pkgutil.resolve_name(name): name for name in self.instead_of}
        return {call: name for code, name in (own | library).items() for call in calls_of(code)}

    def wrong_code(self) -> dict[Callable, str]:
        """The usual mistakes as code, and their hints."""
        return {self._code(wrong): hint for wrong, hint in self.mistakes.items()}

    def right_code(self) -> list[Callable]:
        """The variants as code."""
        return [self._code(variant) for variant in self.variants]

    def swapped(self, cell: str) -> str:
        """The source of its answer cell with the first variant in place of the answer; as it is if there is none."""
        reference: Any = self.reference
        own = inspect.getsource(reference).rstrip()
        for written in self.variants[:1]:
            if cell.count(own) != 1:
                raise ValueError(f"{reference.__qualname__}: its source is not in this cell: {cell}")
            if isinstance(written, tuple):
                cell = cell.replace(own, own.replace(*written))
            else:
                source, name = inspect.getsource(written).rstrip(), getattr(written, "__name__", "")
                cell = cell.replace(own, re.sub(rf"\b{name}\b", reference.__name__, source))
            return _with_imports(cell, vars(sys.modules[reference.__module__]))
        return cell

    def _code(self, written: Callable | tuple[str, str]) -> Callable:
        return changed(self.reference, *written) if isinstance(written, tuple) else written

    def _hint(self, cases: Sequence[Case], found: Sequence[Any]) -> str:
        """The hint of the usual mistake that gives the same in every case so far; else the general one."""
        for wrong, hint in self.wrong_code().items():
            pairs = [(one, _known(wrong, case).answer, case) for case, one in zip(cases, found, strict=False)]
            raised = [(one, other) for one, other, _ in pairs if isinstance(one, Raised)]
            if all(isinstance(other, Raised) and one == other for one, other in raised) and not any(
                differs(one, other, case.relative) for one, other, case in pairs
            ):
                return hint
        return self.hint


def _with_imports(cell: str, known: Mapping[str, Any]) -> str:
    """A cell below imports of what it uses and does not import, where the checks of its lab do, as a student would."""
    nodes = list(ast.walk(ast.parse(cell)))
    imported = [each.names for each in nodes if isinstance(each, ast.Import | ast.ImportFrom)]
    names = {each.id for each in nodes if isinstance(each, ast.Name)} & set(known)
    lines = []
    for name in sorted(names - {each.asname or each.name for each in itertools.chain(*imported)}):
        value, module = known[name], getattr(known[name], "__module__", "") or ""
        if inspect.ismodule(value):
            lines.append(f"import {value.__name__} as {name}\n")
        elif inspect.isclass(value) and not module.startswith("labkit_course.labs"):  # a lab's own: in a cell above
            lines.append(f"from {module} import {name}\n")
    return "".join(lines) + cell


@functools.cache
def changed(code: Any, old: str, new: str) -> Any:
    """A function or class with one part of its source replaced."""
    source = inspect.getsource(code)
    if source.count(old) != 1:
        raise ValueError(f"{code.__qualname__}: {source.count(old)} times {old!r} in its source, and once is wanted")
    names = dict(vars(sys.modules[code.__module__]))
    exec(compile(source.replace(old, new), inspect.getsourcefile(code) or "", "exec"), names)
    return names[code.__name__]


@functools.cache
def _drawn(draw: Callable[[Random], Sequence[Case]], tries: int) -> Sequence[Case]:
    return draw(Random(f"labkit {tries}"))


@functools.cache
def _known(code: Any, case: Case) -> Outcome:
    """What the reference or a usual mistake gives, which never changes."""
    return outcome(code, case.ask)
