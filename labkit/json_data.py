"""JSON that people, other programs and disks have had their hands on: read, and checked against types."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import typing
from datetime import datetime
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar

from labkit.errors import DataError

Value = TypeVar("Value")


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: it is not UTF-8, no JSON, nested too deeply, or holds what no table or file can take: a number
            beyond 64 bits, half a surrogate pair, or the character 0.
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
    """What a JSON file holds, of the given shape (see `check_shape`); `fix` says what to do about a damaged one.

    Raises:
        FileNotFoundError: there is none.
        DataError: it cannot be read as such; the text names file, field and reason.
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


def check_shape(value: Any, shape: Any, name: str = "") -> None:
    """Check JSON data against a type: what is named must fit, and keys beyond are left alone.

    A type is as in annotations: int, float (no NaN), str, bool, Any, X | None, Literal, list, tuple, dict, TypedDict,
    dataclasses, and Annotated with a function that raises a ValueError for what it refuses.

    Raises:
        ValueError: it does not fit; the text names the field, as in "seeds.1 is '2', and a whole number belongs there".
    """
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    kinds, words = _PLAIN.get(shape, (list, "a list") if origin in (list, tuple) else (dict, "an object with keys"))
    if shape is Any or (value is None and type(None) in inner):
        return
    if origin is Literal:
        kinds, words = type(value) if value in inner else (), f"one of {', '.join(map(str, inner))}"
    elif type(None) in inner or origin is Annotated:
        check_shape(value, inner[0], name)
        return inner[1](value) if origin is Annotated else None
    is_odd = isinstance(value, bool) and shape in (int, float)
    if not isinstance(value, kinds) or is_odd or (shape is float and not math.isfinite(value)):
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
        raise ValueError(f"{name or 'the whole'} is {shown}, and {words} belongs there")
    if kinds is list:
        each = inner if origin is tuple and inner[-1] is not ... else [inner[0]] * len(value)
        if len(each) != len(value):
            raise ValueError(f"{name or 'the whole'} has {len(value)} items, and {len(each)} belong there")
        hints, required = dict(enumerate(each)), ()
    elif kinds is dict:
        hints, required = (dict.fromkeys(value, inner[1]), ()) if origin is dict else _keys(shape)
    else:
        return
    for key, hint in hints.items():
        if kinds is list or key in value:
            check_shape(value[key], hint, f"{name}.{key}".removeprefix("."))
        elif key in required:
            raise ValueError(f"{name}.{key} is missing".removeprefix("."))


def build(value: Any, shape: Any) -> Any:
    """What JSON data that fits a type stands for: dataclasses and tuples made of it, as `asdict` gave it."""
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if value is None or type(None) in inner or origin is Annotated:
        return None if value is None else build(value, inner[0])
    if dataclasses.is_dataclass(shape):
        hints = _keys(shape)[0]
        return shape(**{name: build(value[name], hint) for name, hint in hints.items() if name in value})
    if origin in (list, tuple):
        return origin(build(each, inner[0]) for each in value)
    return value


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


_PLAIN = {
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    str: (str, "a text"),
    bool: (bool, "true or false"),
}


@functools.cache
def _keys(shape: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Type of each key of a TypedDict or dataclass, and which are required."""
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
        raise ValueError(f"{text[:40]!r} is no date and time with its offset, such as 2026-11-21T10:15:02+01:00")


Moment = Annotated[str, _refuse_no_moment]
"""A date and time in ISO 8601, with its offset from UTC."""
