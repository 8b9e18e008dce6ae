"""JSON that people, other programs and disks have had their hands on: read, and checked against types."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from labkit.errors import DataError


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: it is not UTF-8, no JSON, nested too deeply, or holds what no table or file can take: a number
            beyond 64 bits, half a surrogate pair, or the character 0.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        value = json.loads(text, parse_int=_whole_number, parse_float=_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if "\\u0000" in text or "\0" in text:
        raise ValueError("it holds the character 0")
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # fails for half a pair
    return value


def read_json(path: Path, shape: Any, *, fix: str) -> Any:
    """What a JSON file holds, of the given shape (see `check_shape`).

    Args:
        path: the file.
        shape: what its readers rely on.
        fix: what to do about a damaged one, for the error.

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

    Args:
        value: as `parse_json` gives it.
        shape: a type as in annotations: int, float (which a whole number fits, and no NaN does), str, bool, None, Any,
            unions, Literal, list[…], tuple[…], dict[str, …], TypedDict and dataclasses (keys without a default are
            required), and Annotated[…, function], where the function raises a ValueError for what it refuses.
        name: of the value, for the error.

    Raises:
        ValueError: it does not fit; the text names the field.

    >>> check_shape({"seeds": [1, "2"]}, dict[str, list[int]])
    Traceback (most recent call last):
    ...
    ValueError: seeds.1 is '2', and a whole number belongs there
    """
    if shape is Any or (type(value) is shape and shape in _AS_THEY_ARE):
        return  # most of them, of thousands of runs
    origin, arguments = _parts(shape)
    if origin is Annotated:
        check_shape(value, arguments[0], name)
        arguments[1](value)
    elif origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return
        others = [each for each in arguments if each is not type(None)]
        check_shape(value, next((each for each in others if isinstance(value, _plain(each))), others[0]), name)
    elif origin is Literal:
        _refuse_unless(value in arguments, value, name, f"one of {', '.join(map(str, arguments))}")
    elif origin is list:
        _refuse_unless(isinstance(value, list), value, name, "a list")
        for number, item in enumerate(value):
            check_shape(item, arguments[0], _within(name, number))
    elif origin is tuple:
        each = [arguments[0]] * len(value) if arguments[-1] is ... and isinstance(value, list) else list(arguments)
        _refuse_unless(isinstance(value, list) and len(value) == len(each), value, name, f"a list of {len(each)}")
        for number, (item, inner) in enumerate(zip(value, each, strict=True)):
            check_shape(item, inner, _within(name, number))
    elif origin is dict:
        _refuse_unless(isinstance(value, dict), value, name, "an object with keys")
        for key, item in value.items():
            check_shape(item, arguments[1], _within(name, key))
    elif fields := _fields(shape):
        _refuse_unless(isinstance(value, dict), value, name, "an object with keys")
        for key, (inner, is_required) in fields.items():
            if key in value:
                if type(value[key]) is not inner or inner not in _AS_THEY_ARE:  # no name is made for most
                    check_shape(value[key], inner, _within(name, key))
            elif is_required:
                raise ValueError(f"{_within(name, key)} is missing")
    else:
        fits = isinstance(value, _plain(shape)) and (shape is bool or not isinstance(value, bool))
        fits = fits and (shape is not float or math.isfinite(value))
        _refuse_unless(fits, value, name, _WORDS[shape])


_AS_THEY_ARE = (int, str, bool)


@functools.cache
def _parts(shape: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(shape), typing.get_args(shape)


_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object with keys",
    list: "a list",
    type(None): "null",
}


@functools.cache
def _plain(shape: Any) -> tuple[type, ...]:
    """The types that Python's own check knows."""
    origin = typing.get_origin(shape)
    if origin is Annotated:
        return _plain(typing.get_args(shape)[0])
    if origin is Literal:
        return tuple({type(each) for each in typing.get_args(shape)})
    if origin is not None:
        return (list,) if origin is tuple else (origin,)
    if shape is float:
        return (int, float)
    return (dict,) if _fields(shape) else (shape,)


@functools.cache
def _fields(shape: Any) -> dict[str, tuple[Any, bool]]:
    """Type of each key, and whether it is required; empty for what has no keys of its own."""
    if typing.is_typeddict(shape):
        hints = typing.get_type_hints(shape, include_extras=True)
        return {name: (hint, name in shape.__required_keys__) for name, hint in hints.items()}
    if dataclasses.is_dataclass(shape):
        hints = typing.get_type_hints(shape, include_extras=True)
        missing = dataclasses.MISSING
        return {
            field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
            for field in dataclasses.fields(shape)
        }
    return {}


def _refuse_unless(fits: bool, value: Any, name: str, wanted: str) -> None:
    if not fits:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
        raise ValueError(f"{name or 'the whole'} is {shown}, and {wanted} belongs there")


def _within(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _whole_number(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(
            f"the number {text[:20]}… is beyond 64 bits" if len(text) > 20 else f"{text} is beyond 64 bits"
        )
    return int(text)


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"the number {text[:20]} is beyond what a computer's numbers reach")
    return number


def _refuse_no_moment(text: str) -> None:
    try:
        moment = datetime.fromisoformat(text)
        is_moment = moment.tzinfo is not None and moment.timestamp() >= 0
    except (ValueError, OverflowError):
        is_moment = False
    if not is_moment:
        raise ValueError(
            f"{text[:40]!r} is no date and time with its offset from UTC, such as 2026-11-21T10:15:02+01:00"
        )


Moment = Annotated[str, _refuse_no_moment]
"""A date and time in ISO 8601, with its offset from UTC."""
