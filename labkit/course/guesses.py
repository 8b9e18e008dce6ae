"""Predict, then run: a guess is committed before the answer is shown, and scored against it."""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType

import platformdirs

from labkit.course.exercise import is_number
from labkit.errors import UserError
from labkit.runs.record import timestamp


@dataclass
class _Guess:
    value: float | None
    """None where the dots were left in its place."""
    unit: str
    truth: float | None = None

    def words(self, value: float) -> str:
        return f"{value:.4g} {self.unit}".strip()


_open: dict[str, _Guess] = {}
"""What was guessed in this kernel, by name, in order."""


def guess_file() -> Path:
    """Where guesses are kept, across notebooks and days; LABKIT_COURSE names another folder."""
    folder = os.environ.get("LABKIT_COURSE")
    return (Path(folder) if folder else platformdirs.user_data_path("labkit") / "course") / "guesses.jsonl"


def guess(name: str, value: float | EllipsisType, unit: str = "") -> None:
    """Commit a guess before the answer is shown: of `name` ("00.time_to_target"), a number; dots are none, not scored.

    Raises:
        UserError: the value is no finite number.
    """
    of = f" of {unit}" if unit else ""
    if value is ...:
        print(f"No guess yet: write a number{of} in place of the dots, then run this cell again.")
        _open.setdefault(name, _Guess(None, unit))
        return
    if not is_number(value):
        raise UserError(f"The guess {name!r} is {value!r}: write a number{of}, such as 2.5.")
    known = _open.get(name)
    if known is not None and known.truth is not None:
        rest = "this guess does not count" if known.value is None else "your first guess stays"
        print(f"The answer was shown already ({known.words(known.truth)}), so {rest}.")
        return
    _open[name] = made = _Guess(float(value), unit)
    print(f"Your guess: {made.words(made.value)}.")


def reveal(name: str, truth: float | None) -> None:
    """Show the answer, and how far off the guess of that name was; both are kept.

    Where this machine gave no answer (None or NaN, as of a run that did not reach its target), nothing is scored.

    Raises:
        UserError: nothing was guessed under that name.
    """
    made = _open.get(name)
    if made is None:
        raise UserError(f"There is no guess {name!r} yet: run the cell with your guess first, then this one again.")
    if truth is None or math.isnan(truth):
        guessed = "You did not guess" if made.value is None else f"You guessed {made.words(made.value)}"
        print(f"{guessed}. There was no answer this time, so it is not scored.")
        return
    first_time, truth = made.truth is None, float(truth)
    if first_time:  # the first answer is the one that was guessed
        made.truth = truth
    if made.value is None:
        print(f"It is {made.words(truth)}. You did not guess, so it is not scored.")
        return
    print(f"You guessed {made.words(made.value)}; it is {made.words(truth)}: {_how_far(made, truth)}.")
    if first_time:
        entry = {"time": timestamp(), "name": name, "guess": made.value, "truth": truth, "unit": made.unit}
        guess_file().parent.mkdir(parents=True, exist_ok=True)
        with guess_file().open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def ratio_error(guessed: float, truth: float) -> float:
    """How many times too large or too small a guess was: 1 is right, infinity is another sign.

    >>> ratio_error(5, 10), ratio_error(20, 10), ratio_error(0, 0), ratio_error(-1, 1)
    (2.0, 2.0, 1.0, inf)
    """
    if guessed == truth:
        return 1.0
    return max(guessed / truth, truth / guessed) if guessed * truth > 0 else math.inf


def _how_far(made: _Guess, truth: float) -> str:
    factor = ratio_error(made.value, truth)
    if factor < 1.005:
        return "right" if factor > 1 else "exactly right"
    if math.isinf(factor):
        return f"off by {made.words(abs(made.value - truth))}"
    return f"your guess was {'too high' if made.value > truth else 'too low'} by a factor of {factor:.2f}"


def score_notebook() -> None:
    """Print this notebook's guesses, answers and factors."""
    _print_scores({name: made for name, made in _open.items() if None not in (made.value, made.truth)}, "this notebook")


def score_course() -> None:
    """Print the first guess of each name over all notebooks and days, and where they are kept."""
    first: dict[str, _Guess] = {}
    for line in guess_file().read_bytes().splitlines() if guess_file().is_file() else []:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a line that a crash cut short
            entry = json.loads(line)
            first.setdefault(entry["name"], _Guess(float(entry["guess"]), entry["unit"], float(entry["truth"])))
    _print_scores(first, "the course")
    print(f"They are kept in {guess_file()}: delete it to start anew.")


def _print_scores(scored: dict[str, _Guess], where: str) -> None:
    if not scored:
        print(f"No guess of {where} is scored yet.")
        return
    width = max(map(len, scored))
    for name, made in scored.items():
        how_far = _how_far(made, made.truth).removeprefix("your guess was ")
        print(f"{name:{width}}  guessed {made.words(made.value):>16}  is {made.words(made.truth):>16}  {how_far}")
    factors = sorted(ratio_error(made.value, made.truth) for made in scored.values())
    middle = factors[(len(factors) - 1) // 2]
    within = sum(factor <= 2 for factor in factors)
    typical = "" if math.isinf(middle) else f"; the middle one was off by a factor of {middle:.2f}"
    print(f"{within} of {len(factors)} guesses of {where} were within a factor of 2{typical}.")
