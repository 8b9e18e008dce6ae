"""Predict, then run: a guess is committed before the answer is shown, and scored against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import EllipsisType

from labkit.errors import UserError
from labkit_course.boxes import offer
from labkit_course.exercise import is_number
from labkit_course.progress import keep, kept, progress_file


@dataclass
class _Guess:
    value: float
    unit: str
    truth: float | None = None

    def words(self, value: float) -> str:
        return f"{value:.4g} {self.unit}".strip()


_open: dict[str, _Guess] = {}
"""What was guessed in this kernel, by name, in order."""


def guess(name: str, value: float | EllipsisType, unit: str = "") -> None:
    """Commit a guess before the answer is shown: of `name` ("00.time_to_target"), a number; dots are none, not scored.

    Raises:
        UserError: the value is no finite number.
    """
    of = f" of {unit}" if unit else ""
    if value is ...:
        if made := _made(name):  # by the box, before this cell ran again
            print(f"Your guess: {made.words(made.value)}.")
            return
        print(f"No guess yet: write a number{of} into the box, or in place of the dots and run this cell again.")
        offer(name, unit, lambda number: guess(name, number, unit))
        return
    if not is_number(value):
        raise UserError(f"The guess {name!r} is {value!r}: write a number{of}, such as 2.5.")
    known = _open.get(name)
    if known is not None and known.truth is not None:
        print(f"The answer was shown already ({known.words(known.truth)}), so your first guess stays.")
        return
    _open[name] = made = _Guess(float(value), unit)
    keep("guessed", name, guess=made.value, unit=unit)
    print(f"Your guess: {made.words(made.value)}.")


def reveal(name: str, truth: float | None) -> None:
    """Show the answer (None or NaN where this machine gave none), and how far off the guess was; both are kept.

    Without a guess nothing is shown.
    """
    made = _made(name)
    if made is None:
        print(f"Guess first: {name} is shown when the cell with your guess has run; then run this one again.")
        return
    if truth is None or math.isnan(truth):
        print("This machine gave no answer, so the guess is not scored.")
        return
    first_time, truth = made.truth is None, float(truth)
    if first_time:  # the first answer is the one that was guessed
        made.truth = truth
    counts = "" if first_time else f" The first answer counts, {made.words(made.truth)}."
    print(f"You guessed {made.words(made.value)}; it is {made.words(truth)}: {_how_far(made, truth)}.{counts}")
    if first_time:
        keep("guess", name, guess=made.value, truth=truth, unit=made.unit)


def _made(name: str) -> _Guess | None:
    """A guess of this kernel, or the latest that an earlier one kept."""
    earlier = [entry for entry in kept("guessed", name) if is_number(entry.get("guess"))]
    if name not in _open and earlier:
        _open[name] = _Guess(earlier[-1]["guess"], str(earlier[-1].get("unit", "")))
    return _open.get(name)


def ratio_error(guessed: float, truth: float) -> float:
    """How many times too large or too small a guess was: 1 is right, infinity is another sign."""
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
    """Print this notebook's guesses, answers and factors: of each name the first that was scored."""
    _print_scores({name: made for name, made in first_guesses().items() if name in _open}, "this notebook")


def score_course() -> None:
    """Print the first guess of each name over all notebooks and days, and where they are kept."""
    _print_scores(first_guesses(), "the course")
    print(f"They are kept in {progress_file()}: delete it to start anew.")


def first_guesses() -> dict[str, _Guess]:
    """The first guess of each name that was scored; lines that another program wrote are left out."""
    first: dict[str, _Guess] = {}
    for entry in kept("guess"):
        if all(is_number(entry.get(key)) for key in ("guess", "truth")):
            first.setdefault(entry["name"], _Guess(entry["guess"], str(entry.get("unit", "")), entry["truth"]))
    return first


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
