"""An exercise whose answer is code: a function or class of the student's does what the reference does."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit_course.exercise import NotAnswered, WrongAnswer, WrongKind
from labkit_course.outcome import Outcome, Raised, differs, outcome


@dataclass(frozen=True, eq=False)
class Case:
    """One thing that is asked of the student's code and of the reference; the two answers have to be equal."""

    name: str
    """In words: "27 vectors a row"."""
    ask: Callable[[Any], Any]
    """From the code to an answer: a number, text, tensor, array or frame, or a list, tuple or dict of these."""
    relative: float = 1e-4
    """How far numbers may be off, as a share of the largest right one: float32 sums in another order."""


@dataclass(frozen=True)
class WrittenExercise:
    """Code that a student writes."""

    reference: Callable
    """The kit's own: what a later lab takes where the student has none."""
    cases: Sequence[Case]
    hint: str
    """What to say to a wrong answer that is none of the usual mistakes."""
    explanation: str
    """Shown with a right answer."""
    module: str
    """Of the student's `mylab`, where right code is kept: "dlrm"."""
    mistakes: Mapping[Callable | tuple[str, str], str] = field(default_factory=dict)
    """Wrong code that many write, and the hint that helps: a pair is a part of the reference's source, and what stands
    there instead."""

    def check(self, name: str, answer: Any) -> str:
        """What to say to right code.

        Raises:
            NotAnswered, WrongKind, WrongAnswer: it is none; the text says what to do next.
        """
        wanted = "class" if inspect.isclass(self.reference) else "function"
        if answer is None or answer is Ellipsis:
            raise NotAnswered(f"Exercise {name} is not answered yet: write the {wanted}, run its cell, then this.")
        if not callable(answer) or inspect.isclass(answer) != inspect.isclass(self.reference):
            shown = repr(answer)[:60]
            raise WrongKind(f"Exercise {name}: give the {wanted} itself, without calling it; {shown} is none.")
        found = []
        for case in self.cases:
            right = _known(self.reference, case)  # first, for the answer may change what both are given
            try:
                found.append(outcome(answer, case.ask))
            except NotImplementedError:
                raise NotAnswered(
                    f"Exercise {name} is not answered yet: its code still raises NotImplementedError. Write it in the "
                    "cell above, run that cell, then this one."
                ) from None
            difference = differs(found[-1].answer, right.answer, case.relative)
            if found[-1].changed and not right.changed:
                difference = difference or "it changes what it is given, which others still need: work on a copy"
                found[-1].restore()
            if difference:
                hint = self._hint([each.answer for each in found])
                raise WrongAnswer(f"Exercise {name}: not yet. Tried with {case.name}: {difference}. {hint}")
        return f"Exercise {name}: right. {self.explanation}"

    def wrong_code(self) -> dict[Callable, str]:
        """The usual mistakes as code, and their hints."""
        return {
            changed(self.reference, *wrong) if isinstance(wrong, tuple) else wrong: hint
            for wrong, hint in self.mistakes.items()
        }

    def _hint(self, found: Sequence[Any]) -> str:
        """That of the usual mistake which gives the same in every case so far."""
        for wrong, hint in self.wrong_code().items():
            pairs = [(one, _known(wrong, case).answer, case) for case, one in zip(self.cases, found, strict=False)]
            raised = [(one, other) for one, other, _ in pairs if isinstance(one, Raised)]
            if all(isinstance(other, Raised) and one == other for one, other in raised) and not any(
                differs(one, other, case.relative) for one, other, case in pairs
            ):
                return hint
        return self.hint


@functools.cache
def changed(code: Any, old: str, new: str) -> Any:
    """A function or class with one part of its source replaced."""
    source = inspect.getsource(code)
    if source.count(old) != 1:
        raise ValueError(f"{code.__qualname__}: {source.count(old)} times {old!r} in its source, and once is wanted")
    names = dict(vars(sys.modules[code.__module__]))
    exec(compile(source.replace(old, new), inspect.getsourcefile(code), "exec"), names)
    return names[code.__name__]


@functools.cache
def _known(code: Any, case: Case) -> Outcome:
    """What the reference or a usual mistake gives, which never changes."""
    return outcome(code, case.ask)
