"""Values that a script gives, as a record has them: numbers of any library, and settings as JSON."""

import enum
import math
import numbers
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

from labkit import UserError

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}")
"""In the text of an object that has none which means something"""


def settings(config: Any) -> dict[str, Any]:
    """Settings as JSON has them, from a mapping, an argparse.Namespace, a dataclass, or None for none.

    Numbers of NumPy, torch and Decimal become Python's; arrays and sets become lists; an enum's member its name; a
    class or function its qualified name; and paths, devices, dtypes, dates and the like their text.

    Raises:
        UserError: it is none of these, or a setting has no text that means something; the error names its key.
    """
    if config is None:
        return {}
    try:
        found = _plain(config, "config")
    except RecursionError:
        raise UserError("labkit.Run: config contains itself: give settings that can be written down.") from None
    if not isinstance(found, dict):
        fix = "give a dictionary, such as vars(config), an argparse.Namespace or a dataclass"
        raise UserError(f"labkit.Run: config is {config!r}: {fix}.")
    return found


def _plain(value: Any, key: str) -> Any:
    try:
        return _read(value, key)
    except (UserError, RecursionError):
        raise
    except Exception as error:  # a value of any library, which may not be readable
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"labkit.Run: {key} is a {type(value).__qualname__} that cannot be read ({why}).") from error


def _read(value: Any, key: str) -> Any:
    if getattr(getattr(value, "dtype", None), "kind", "") in {"m", "M"}:  # NumPy's times, some of which are integers
        value = value.astype(str)
    match value:
        case enum.Enum():
            return value.name or _text(value)
        case None | bool():
            return value
        case str():
            return _text(value)
        case Namespace():
            return _plain(vars(value), key)
        case Mapping():
            found = {_text(name): _plain(value[name], f"{key}[{name!r}]") for name in value}
            if len(found) < len(value):
                raise UserError(f"labkit.Run: two names in {key} have one text: {', '.join(map(repr, value))}.")
            return found
        case set() | frozenset():
            return sorted((_plain(each, key) for each in value), key=repr)
        case numbers.Integral():
            return int(value) if abs(int(value)) < 2**63 else str(value)  # what readers of JSON and Parquet can hold
        case numbers.Real() | Decimal():
            return float(value) if math.isfinite(value) else str(float(value))
        case type() | Callable() if hasattr(value, "__qualname__"):
            return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name), f"{key}.{each.name}") for each in fields(value)}
    if hasattr(value, "tolist"):  # an array or tensor, of any number of axes
        return _plain(value.tolist(), key)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(each, f"{key}[{place}]") for place, each in enumerate(value)]
    if ADDRESS.search(text := _text(value)):
        kind = type(value).__qualname__
        raise UserError(f"labkit.Run: {key} is a {kind}, which has no text: give numbers or names that describe it.")
    return text


def _text(value: Any) -> str:
    """The text of a value, without what files cannot hold: half a surrogate pair, and the character 0."""
    return str(value).replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def whole(value: Any, what: str, least: int | None = None) -> int:
    """A whole number of any library, such as `numpy.int64` or a tensor with one element.

    Raises:
        UserError: it is none, or below `least`; the error begins with `what`.
    """
    if type(value) is int and (least is None or value >= least):  # each step of a run comes here
        return value
    number = _number(value)
    if number is None or not math.isfinite(number) or number != int(number) or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise UserError(f"{what} is {value!r}: give a whole number{bound}.")
    return int(number)


def real(value: Any, what: str) -> float:
    """A number of any library; it may be NaN or infinite.

    Raises:
        UserError: it is none; the error begins with `what`.
    """
    number = _number(value)
    if number is None:
        raise UserError(f"{what} is {value!r}, not a number: pass one number, such as {what.split()[-1]}=value.item().")
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _number(value: Any) -> int | float | None:
    """Python's number for one of any library; None where the value is none."""
    if getattr(value, "mask", None) is not None and bool(value.mask):  # of numpy.ma: there is no number
        return None
    if hasattr(value, "item") and getattr(value, "size", 1) != 0:
        try:
            value = value.item()
        except (RuntimeError, ValueError):  # more than one element
            return None
    if isinstance(value, bool | str | bytes):
        return None
    try:
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
