"""What code gives when it is asked, and how that differs from what is right, as text."""

import contextlib
import functools
import inspect
import operator
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple

import labkit
import labkit_course
from labkit.hardware import one_thread

LONGEST_S = 30
"""Seconds after which a case has failed; references take one or two."""

_OURS = tuple(str(Path(package.__file__).parent) + os.sep for package in (labkit, labkit_course))


class Raised(str):
    """What code raised instead of answering."""

    @property
    def kind(self) -> str:
        """As "it raises ValueError"."""
        return self.partition(":")[0]


class Outcome(NamedTuple):
    """What came of asking code."""

    answer: Any
    changed: list[tuple[Any, Any]]
    """Tensors, arrays, frames and lists that the code was given and has changed; what they were before."""

    called: set[str]
    """Names of functions that it may not call, and has called."""

    def restore(self) -> None:
        for value, before in self.changed:
            with contextlib.suppress(Exception):  # such as another size, which nothing makes the old one again
                (value.data if hasattr(value, "detach") else value)[:] = before


def functions_of(code: Any) -> list[Any]:
    """A function without what wraps it; of a class and those it builds on, all that are written in Python."""
    code = inspect.unwrap(code.func if isinstance(code, functools.partial) else code)
    parts = [each for one in code.__mro__ for each in vars(one).values()] if inspect.isclass(code) else [code]
    found = [inspect.unwrap(getattr(each, "__func__", getattr(each, "fget", None) or each)) for each in parts]
    return [each for each in found if inspect.isfunction(each)]


def is_labkits(code: Any) -> bool:
    """Whether a function or class, or what it wraps or builds on, is written in a file of labkit."""
    return any(each.__code__.co_filename.startswith(_OURS) for each in functions_of(code))


def calls_of(code: Any) -> set[Any]:
    """What is noticed when a function is called, or a class made: the places of its code; if it is compiled, itself."""
    own = functions_of(code.__init__ if inspect.isclass(code) else code)
    return {_place(each.__code__) for each in own} or {code}


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


@contextlib.contextmanager
def _noting(replaced: Mapping[Any, str], called: set[str]) -> Generator[None]:
    """Add the names of the functions that are called in the block."""

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            name = replaced.get(_place(frame.f_code) if event == "call" else argument)
            called.update([name] if name else ())

    before = sys.getprofile()
    if not replaced:
        yield
        return
    threading.setprofile(note)  # of the threads that it starts
    sys.setprofile(note)
    try:
        yield
        if sys.getprofile() is not note:
            called.add("sys.setprofile")
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


def outcome(code: Any, ask: Callable[[Any], Any], replaced: Mapping[Any, str] = MappingProxyType({})) -> Outcome:
    """What code gives where `ask` asks it, or that it raises, or does not end.

    Args:
        code: a function or class.
        ask: calls it.
        replaced: functions that it may not call, by what `calls_of` gives.

    Raises:
        NotImplementedError: nothing is written yet.
    """
    given: list[tuple[Any, Any]] = []
    called: set[str] = set()

    @functools.wraps(code)
    def watched(*arguments: Any, **named: Any) -> Any:
        given.extend((each, _copy(each)) for each in _containers([*arguments, *named.values()]))
        with _noting(replaced, called):
            return code(*arguments, **named)

    try:
        with one_thread() if "torch" in sys.modules else contextlib.nullcontext(), _limited():
            if inspect.isfunction(code):
                answer = ask(watched)
            else:  # whose methods are called anywhere in `ask`
                with _noting(replaced, called):
                    answer = ask(code)
    except NotImplementedError:
        raise
    except _TooLong:
        answer = Raised(f"it is not done after {LONGEST_S} s")
    except Exception as error:  # whatever a student's code raises
        answer = Raised(f"it raises {type(error).__name__}: {str(error)[:200].rstrip('.')}")
    return Outcome(answer, [(value, before) for value, before in given if not _is_same(value, before)], called)


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
    return value.shape == before.shape and bool(((value == before) | ((value != value) & (before != before))).all())


class _TooLong(BaseException):
    """Code took longer than `LONGEST_S`; what a student catches leaves this alone."""


@contextlib.contextmanager
def _limited() -> Generator[None]:
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


def differs(found: Any, right: Any, relative: float, shown: bool = True) -> str:
    """How an answer differs from the right one, as text that has the right value if it may be shown; empty if not.

    >>> differs([1, 2.5], [1, 2.0], 1e-4)
    'at [1] it gives 2.5, and 2 is right'
    >>> differs([1, 2.5], [1, 2.0], 1e-4, shown=False)
    'at [1] it gives 2.5, which is too high'
    """
    import numpy as np

    def but(value: Any, other: Any, how: str = "which is not right") -> str:
        return f"it gives {value}, {f'and {other} is right' if shown else how}"

    def first(pairs: Iterable[tuple[Any, Any, Any]]) -> str:
        for place, one, other in pairs:
            if difference := differs(one, other, relative, shown):
                at = f"at [{place!r}]"
                return at + difference[3:] if difference.startswith("at [") else f"{at} {difference}"
        return ""

    if isinstance(found, Raised):
        return "" if isinstance(right, Raised) and found.kind == right.kind else str(found) or "it gives no answer"
    if isinstance(right, Raised):
        return f"it gives {short(found)}, where right code raises"
    if isinstance(right, Mapping):
        if not isinstance(found, Mapping) or set(found) != set(right):
            return f"it gives {short(found)}, and a dict with the keys {', '.join(map(repr, right))} is wanted"
        return first((key, found[key], right[key]) for key in right)
    if isinstance(right, (list, tuple)):
        found = found.tolist() if hasattr(found, "tolist") else found
        if not isinstance(found, (list, tuple)) or len(found) != len(right):
            return but(short(found), short(right), f"and a {type(right).__name__} of {len(right)} is wanted")
        return first(zip(range(len(right)), found, right, strict=True))
    if any(value is None or isinstance(value, str) for value in (found, right)) or isinstance(right, bool):
        same = found == right  # an array is compared number by number
        return "" if np.ndim(same) == 0 and same else but(short(found), short(right))
    try:
        one, other = (np.asarray(_plain(value), dtype=np.float64) for value in (found, right))
    except (TypeError, ValueError):
        return but(short(found), short(right))
    if one.shape != other.shape:
        return f"it gives the shape {one.shape}, and {other.shape} is right"
    largest = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    near = np.isclose(one, other, rtol=relative, atol=relative * largest, equal_nan=True)
    if near.all():
        return ""
    place = tuple(int(each) for each in np.argwhere(~near)[0])
    where = f"at {list(place)} " if place else ""
    way = {1: "which is too high", -1: "which is too low"}.get(np.sign(one[place] - other[place]), "which is not right")
    return where + but(f"{one[place]:.6g}", f"{other[place]:.6g}", way)


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
