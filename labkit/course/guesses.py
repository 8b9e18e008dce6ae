"""Predict, then run: a guess is committed before the answer is shown, and scored against it."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TypedDict

import platformdirs

from labkit.course.exercise import is_number
from labkit.errors import UserError
from labkit.json_data import check_shape, parse_json
from labkit.runs.record import timestamp

_open: dict[str, _Guess] = {}
"""What was guessed in this kernel, by name, in order."""


@dataclass
class _Guess:
    value: float | None
    """None where the dots were left in its place."""
    unit: str
    truth: float | None = None


class _Entry(TypedDict):
    """A line of the file of guesses."""

    name: str
    guess: float
    truth: float
    unit: str


def guess_file() -> Path:
    """Where guesses are kept, across notebooks and days; LABKIT_COURSE names another folder."""
    folder = os.environ.get("LABKIT_COURSE")
    return (Path(folder) if folder else platformdirs.user_data_path("labkit") / "course") / "guesses.jsonl"


def guess(name: str, value: float | EllipsisType, unit: str = "") -> None:
    """Commit a guess before the answer is shown.

    Args:
        name: the notebook's number and what is guessed, such as "00.time_to_target".
        value: the guess; the dots that exercise notebooks have in its place are none, and are not scored.
        unit: of the value, in words.

    Raises:
        UserError: the value is no finite number.
    """
    if value is ...:
        of = f" of {unit}" if unit else ""
        print(f"No guess yet: write a number{of} in place of the dots, then run this cell again.")
        _open.setdefault(name, _Guess(None, unit))
        return
    if not is_number(value):
        raise UserError(f"The guess {name!r} is {value!r}: write a number{f' of {unit}' if unit else ''}, such as 2.5.")
    value, known = float(value), _open.get(name)
    if known is not None and known.truth is not None:
        rest = "this guess does not count" if known.value is None else "your first guess stays"
        print(f"The answer was shown already ({_number(known.truth, known.unit)}), so {rest}.")
        return
    _open[name] = _Guess(value, unit)
    print(f"Your guess: {_number(value, unit)}.")


def reveal(name: str, truth: float | None) -> None:
    """Show the answer and how far off the guess was; both are kept.

    Args:
        name: as given to `guess`.
        truth: the answer; None or NaN where this machine gave none (a run that did not reach its target), which is not
            scored.

    Raises:
        UserError: nothing was guessed under that name.
    """
    made = _open.get(name)
    if made is None:
        raise UserError(f"There is no guess {name!r} yet: run the cell with your guess first, then this one again.")
    if truth is None or math.isnan(truth):
        guessed = "You did not guess" if made.value is None else f"You guessed {_number(made.value, made.unit)}"
        print(f"{guessed}. There was no answer this time, so it is not scored.")
        return
    first_time = made.truth is None
    made.truth = float(truth) if first_time else made.truth  # the first answer is the one that was guessed
    if made.value is None:
        print(f"It is {_number(truth, made.unit)}. You did not guess, so it is not scored.")
        return
    how_far = _how_far(made.value, float(truth), made.unit)
    print(f"You guessed {_number(made.value, made.unit)}; it is {_number(truth, made.unit)}: {how_far}.")
    if first_time:
        entry = {"time": timestamp(), "name": name, "guess": made.value, "truth": made.truth, "unit": made.unit}
        path = guess_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def ratio_error(guessed: float, truth: float) -> float:
    """How many times too large or too small a guess was: 1 is right, infinity is another sign.

    >>> ratio_error(5, 10), ratio_error(20, 10), ratio_error(0, 0), ratio_error(-1, 1)
    (2.0, 2.0, 1.0, inf)
    """
    if guessed == truth:
        return 1.0
    if guessed * truth <= 0:
        return math.inf
    return max(guessed / truth, truth / guessed)


def score_notebook() -> None:
    """Print this notebook's guesses, answers and factors."""
    scored = [(name, g.value, g.truth, g.unit) for name, g in _open.items() if None not in (g.value, g.truth)]
    _print_scores(scored, "this notebook")


def score_course() -> None:
    """Print the first guess of each name over all notebooks and days, and where they are kept."""
    entries: dict[str, tuple[str, float, float, str]] = {}
    for line in guess_file().read_bytes().splitlines() if guess_file().is_file() else []:
        try:
            entry = parse_json(line)
            check_shape(entry, _Entry)
        except ValueError:
            continue  # a line that a crash cut short
        entries.setdefault(entry["name"], (entry["name"], entry["guess"], entry["truth"], entry["unit"]))
    _print_scores(list(entries.values()), "the course")
    print(f"They are kept in {guess_file()}: delete it to start anew.")


def _print_scores(scored: list[tuple[str, float, float, str]], where: str) -> None:
    if not scored:
        print(f"No guess of {where} is scored yet.")
        return
    width = max(len(name) for name, *_ in scored)
    for name, guessed, truth, unit in scored:
        factor = ratio_error(guessed, truth)
        off = f"off by {_number(abs(guessed - truth), unit)}" if math.isinf(factor) else f"factor {factor:.2f}"
        print(f"{name:{width}}  guessed {_number(guessed, unit):>16}  is {_number(truth, unit):>16}  {off}")
    factors = sorted(ratio_error(guessed, truth) for _, guessed, truth, _ in scored)
    middle = factors[(len(factors) - 1) // 2]
    within = sum(factor <= 2 for factor in factors)
    typical = "" if math.isinf(middle) else f"; the middle one was off by a factor of {middle:.2f}"
    print(f"{within} of {len(factors)} guesses of {where} were within a factor of 2{typical}.")


def _how_far(guessed: float, truth: float, unit: str) -> str:
    factor = ratio_error(guessed, truth)
    if factor < 1.005:
        return "right" if factor > 1 else "exactly right"
    if math.isinf(factor):
        return f"off by {_number(abs(guessed - truth), unit)}"
    return f"your guess was {'too high' if guessed > truth else 'too low'} by a factor of {factor:.2f}"


def _number(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".strip()
