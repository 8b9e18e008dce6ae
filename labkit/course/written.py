"""An exercise whose answer is code: a function or class of the student's does what the reference does."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from labkit.course.exercise import NotAnswered, WrongAnswer, WrongKind
from labkit.hardware.one_thread import one_thread

LONGEST_S = 30
"""A case that takes longer has failed; those of references take a second or two."""


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
                found.append(_outcome(answer, case))
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


class Raised(str):
    """What code raised instead of answering."""

    @property
    def kind(self) -> str:
        """As "it raises ValueError"."""
        return self.partition(":")[0]


class _Outcome(NamedTuple):
    answer: Any
    changed: list[tuple[Any, Any]]
    """Tensors, arrays, frames and lists that the code was given and has changed; what they were before."""

    def restore(self) -> None:
        for value, before in self.changed:
            with contextlib.suppress(Exception):  # such as another size, which nothing makes the old one again
                (value.data if hasattr(value, "detach") else value)[:] = before


@functools.cache
def _known(code: Any, case: Case) -> _Outcome:
    """What the reference or a usual mistake gives, which never changes."""
    return _outcome(code, case)


def _outcome(code: Any, case: Case) -> _Outcome:
    """What code gives, or that it raises, or takes for ever."""
    given: list[tuple[Any, Any]] = []

    @functools.wraps(code)
    def watched(*arguments: Any, **named: Any) -> Any:
        given.extend((each, _copy(each)) for each in _containers([*arguments, *named.values()]))
        return code(*arguments, **named)

    try:
        with one_thread() if "torch" in sys.modules else contextlib.nullcontext(), _limited():
            answer = case.ask(watched if inspect.isfunction(code) else code)
    except NotImplementedError:  # what stands where nothing is written yet
        raise
    except _TooLong:
        answer = Raised(f"it is not done after {LONGEST_S} s")
    except Exception as error:  # whatever a student's code raises
        answer = Raised(f"it raises {type(error).__name__}: {str(error)[:200]}")
    return _Outcome(answer, [(value, before) for value, before in given if not _is_same(value, before)])


def _containers(values: Iterable[Any]) -> Iterator[Any]:
    """The tensors, arrays, frames and lists among values, and in their lists and tuples."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _containers(value)
        if isinstance(value, list) or hasattr(value, "dtype") or hasattr(value, "equals"):
            yield value


def _copy(value: Any) -> Any:
    return value.detach().clone() if hasattr(value, "detach") else value.copy()


def _is_same(value: Any, before: Any) -> bool:
    if isinstance(value, list):
        return len(value) == len(before) and all(map(operator.is_, value, before))
    if hasattr(value, "columns"):
        return value.equals(before)
    return value.shape == before.shape and bool(((value == before) | (value != value)).all())


class _TooLong(Exception):
    pass


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise `_TooLong` in what does not end; where the system has no such timer, wait."""

    def stop(*_: Any) -> None:
        raise _TooLong

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before, timer = signal.signal(signal.SIGALRM, stop), signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def differs(found: Any, right: Any, relative: float) -> str:
    """How an answer differs from the right one, in words; empty where it does not.

    >>> differs([1, 2.5], [1, 2.0], 1e-4)
    'at [1] it gives 2.5, and 2 is right'
    """
    import numpy as np

    if isinstance(found, Raised):
        return "" if isinstance(right, Raised) and found.kind == right.kind else str(found)
    if isinstance(right, Raised):
        return f"it gives {_shown(found)}, where right code raises"
    if isinstance(right, Mapping):
        if not isinstance(found, Mapping) or set(found) != set(right):
            return f"it gives {_shown(found)}, and a dict with the keys {', '.join(map(repr, right))} is wanted"
        return next(filter(None, (_within(key, found[key], right[key], relative) for key in right)), "")
    if isinstance(right, (list, tuple)):
        found = found.tolist() if hasattr(found, "tolist") else found
        if not isinstance(found, (list, tuple)) or len(found) != len(right):
            return f"it gives {_shown(found)}, and {_shown(right)} is right"
        pairs = enumerate(zip(found, right, strict=True))
        return next(filter(None, (_within(place, one, other, relative) for place, (one, other) in pairs)), "")
    if any(value is None or isinstance(value, str) for value in (found, right)) or isinstance(right, bool):
        same = found == right  # an array is compared number by number
        return "" if np.ndim(same) == 0 and same else f"it gives {_shown(found)}, and {_shown(right)} is right"
    try:
        one, other = (np.asarray(_plain(value), dtype=np.float64) for value in (found, right))
    except (TypeError, ValueError):
        return f"it gives {_shown(found)}, and {_shown(right)} is right"
    if one.shape != other.shape:
        return f"it gives the shape {one.shape}, and {other.shape} is right"
    largest = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    near = np.isclose(one, other, rtol=relative, atol=relative * largest, equal_nan=True)
    if near.all():
        return ""
    place = tuple(int(each) for each in np.argwhere(~near)[0])
    where = f"at {list(place)} " if place else ""
    return f"{where}it gives {one[place]:.6g}, and {other[place]:.6g} is right"


def _within(place: Any, found: Any, right: Any, relative: float) -> str:
    difference = differs(found, right, relative)
    at = f"at [{place!r}]"
    return difference and (at + difference[3:] if difference.startswith("at [") else f"{at} {difference}")


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
