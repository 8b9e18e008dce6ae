"""JSON from people, other programs and disks: read, and checked against types."""

import dataclasses
import functools
import json
import math
import typing
from collections.abc import Callable
from datetime import datetime
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar

from labkit import DataError, errors

Value = TypeVar("Value")
Found = tuple[str, str] | None
"""Where a value does not fit, after its name, and what is wrong there; None if it fits."""
Check = Callable[[Any], Found]


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: the text is not UTF-8 or not JSON, is nested too deeply, or holds something that tables and files
            cannot take: a number beyond 64 bits, half a surrogate pair, or the character 0.
    """
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(text, parse_int=lambda digits: _within(int(digits)), parse_float=lambda n: _within(float(n)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if "\\u" in text and b"\\u0000" in json.dumps(value, ensure_ascii=False).encode("utf-8"):  # fails for half a pair
        raise ValueError("it holds the character 0")
    return value


def _within(number: float) -> float:
    if not (abs(number) < 2**63 if isinstance(number, int) else math.isfinite(number)):
        raise ValueError(f"the number {str(number)[:20]} is beyond 64 bits")
    return number


def read_json(path: Path, shape: Any, *, fix: str) -> Any:
    """Read a JSON file of the given shape (see `check_shape`); `fix` says what to do if it is damaged.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it cannot be read, or has another shape; the text names file, field and reason.
    """
    try:
        content = parse_json(path.read_bytes())
        check_shape(content, shape)
    except ValueError as error:
        raise DataError(f"this file is damaged ({error}).", file=path, fix=fix) from error
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise DataError(f"this file cannot be read ({error.strerror}).", file=path, fix=fix) from error
    return content


def check_shape(value: Any, shape: Any, name: str = "", *, exact: bool = False) -> None:
    """Check JSON data against a type. Keys that the type does not name are ignored, unless `exact`.

    A type is as in annotations: int, float (no NaN), str, bool, Any, X | None, Literal, list, tuple, dict, TypedDict,
    dataclasses, and Annotated with a function that raises a ValueError for a value it refuses.

    Raises:
        ValueError: it does not fit; the text names the field.

    >>> check_shape({"seeds": [0, "2"]}, dict[str, list[int]])
    Traceback (most recent call last):
    ValueError: seeds[1] must be an integer, not '2'
    """
    if found := _check_of(shape, exact)(value):
        place = f"{name}{found[0]}" if name else found[0].removeprefix(".")
        raise ValueError(f"{place or 'the content'} {found[1]}")


@functools.cache
def _check_of(shape: Any, exact: bool) -> Check:
    """The check of a type.

    A folder of runs has a hundred thousand values, so what a type asks for is looked up once.
    """
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    kinds, words = _PLAIN.get(shape, (list, "a list") if origin in (list, tuple) else (dict, "an object with keys"))
    if origin is Literal:
        words = f"one of {', '.join(map(str, inner))}"
        return lambda value: None if value in inner else _must_be(words, value)
    if origin is Annotated:
        check, refuse = _check_of(inner[0], exact), inner[1]
        return lambda value: check(value) or refuse(value)
    if type(None) in inner:
        check = _check_of(inner[0], exact)
        return lambda value: None if value is None else check(value)

    def plain(value: Any) -> Found:
        is_odd = isinstance(value, bool) and shape is not bool
        fits = isinstance(value, kinds) and not is_odd and (shape is not float or math.isfinite(value))
        return None if fits else _must_be(words, value)

    def items(value: Any) -> Found:
        if not isinstance(value, list):
            return _must_be(words, value)
        each = inner if origin is tuple and inner[-1] is not ... else [inner[0]] * len(value)
        if len(each) != len(value):
            return "", f"must have {len(each)} items, not {len(value)}"
        for index, (item, hint) in enumerate(zip(value, each, strict=True)):
            if found := _check_of(hint, exact)(item):
                return f"[{index}]{found[0]}", found[1]
        return None

    def values(value: Any) -> Found:
        if not isinstance(value, dict):
            return _must_be(words, value)
        keys = dict.fromkeys(value, (_check_of(inner[1], exact), False)) if origin is dict else _checks(shape, exact)
        if exact and (unknown := [key for key in value if key not in keys]):
            return f".{unknown[0]}", f"is unknown: {errors.did_you_mean(unknown[0], keys)}"
        for key, (check, is_required) in keys.items():
            if key in value:
                if found := check(value[key]):
                    return f".{key}{found[0]}", found[1]
            elif is_required:
                return f".{key}", "is missing"
        return None

    if shape is Any:
        return lambda value: None
    if shape in _PLAIN or hasattr(shape, "from_json"):  # which checks its own content when it is built
        return plain
    return items if kinds is list else values


def _must_be(words: str, value: Any) -> tuple[str, str]:
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
    return "", f"must be {words}, not {shown}"


@functools.cache
def _checks(shape: Any, exact: bool) -> dict[str, tuple[Check, bool]]:
    """The keys of a TypedDict or dataclass, each with its check and whether it is required."""
    hints, required = _keys(shape)
    return {key: (_check_of(hint, exact), key in required) for key, hint in hints.items()}


def build(value: Any, shape: Any) -> Any:
    """Make dataclasses and tuples, as a type says, from JSON data that fits it; the inverse of `asdict`."""
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if value is None or type(None) in inner or origin is Annotated:
        return None if value is None else build(value, inner[0])
    if hasattr(shape, "from_json"):
        return shape.from_json(value)
    if dataclasses.is_dataclass(shape):
        hints = _keys(shape)[0]
        return shape(**{name: build(value[name], hint) for name, hint in hints.items() if name in value})
    if origin in (list, tuple):
        return origin(build(each, inner[0]) for each in value)
    return {name: build(each, inner[1]) for name, each in value.items()} if origin is dict else value


def to_json(value: Any) -> Any:
    """JSON-able data of a value: a dataclass is an object, one with a `to_json` of its own what that gives."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value):
        return {each.name: to_json(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return str(value) if isinstance(value, PurePath) else value


def from_json(shape: type[Value], data: Any) -> Value:
    """The value of a dataclass that `to_json` gave this data of; keys that it does not have are left alone.

    Raises:
        ValueError: the data does not fit; the text names the field.
    """
    check_shape(data, shape)
    return build(data, shape)


_PLAIN: dict[Any, tuple[Any, str]] = {int: (int, "an integer"), float: ((int, float), "a number"), str: (str, "text")}
_PLAIN[bool] = (bool, "true or false")


@functools.cache
def _keys(shape: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The type of each key of a TypedDict or dataclass, and the required keys."""
    hints = typing.get_type_hints(shape, include_extras=True)
    if typing.is_typeddict(shape):
        return hints, shape.__required_keys__
    absent, fields = dataclasses.MISSING, dataclasses.fields(shape)
    hints = {each.name: hints[each.name] for each in fields}
    return hints, frozenset(f.name for f in fields if f.default is absent and f.default_factory is absent)


def _refuse_no_moment(text: str) -> None:
    try:
        moment = datetime.fromisoformat(text)
        is_moment = moment.tzinfo is not None and moment.timestamp() >= 0
    except (ValueError, OverflowError):
        is_moment = False
    if not is_moment:
        raise ValueError(f"{text[:40]!r} is not a date and time with an offset, such as 2026-11-21T10:15:02+01:00")


Moment = Annotated[str, _refuse_no_moment]
"""A date and time in ISO 8601, with the offset from UTC."""
