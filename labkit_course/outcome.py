"""What code gives when it is asked, and how that differs from what is right, as text."""

import contextlib
import functools
import inspect
import operator
import pkgutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from labkit.hardware import one_thread

LONGEST_S = 30
"""Seconds after which a case has failed; references take one or two."""


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


def code_of(names: Iterable[str]) -> dict[Any, str]:
    """Functions by the code that runs when they are called; of what is compiled, the function itself."""
    found = {name: inspect.unwrap(pkgutil.resolve_name(name)) for name in names}
    return {
        getattr(getattr(each, "__init__", each) if inspect.isclass(each) else each, "__code__", each): name
        for name, each in found.items()
    }


@contextlib.contextmanager
def _noting(replaced: Mapping[Any, str], called: set[str]) -> Generator[None]:
    """Add the names of the functions that are called in the block."""

    def note(frame: Any, event: str, argument: Any) -> None:
        key = {"call": frame.f_code, "c_call": argument}.get(event)
        if key is not None and key in replaced:
            called.add(replaced[key])

    before = sys.getprofile()
    if replaced:
        sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def outcome(code: Any, ask: Callable[[Any], Any], replaced: Mapping[Any, str] = MappingProxyType({})) -> Outcome:
    """What code gives where `ask` asks it, or that it raises, or does not end.

    Args:
        code: a function or class.
        ask: calls it.
        replaced: functions that it may not call, as `code_of` gives them.

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
        answer = Raised(f"it raises {type(error).__name__}: {str(error)[:200]}")
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


def differs(found: Any, right: Any, relative: float) -> str:
    """How an answer differs from the right one, as text; empty where it does not.

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
