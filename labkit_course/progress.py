"""What a student did, kept line by line on this machine: guesses, attempts, explanations and verdicts."""

import ast
import contextlib
import io
import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import EllipsisType
from typing import Any

import platformdirs

from labkit.errors import UserError, certain
from labkit.runs import timestamp
from labkit_course.exercise import is_number

RESULTS = "application/vnd.labkit.results+json"
"""The type of an output that is a results record."""


def progress_file() -> Path:
    """The file, for all notebooks and days; the variable LABKIT_COURSE names another folder."""
    folder = os.environ.get("LABKIT_COURSE")
    return (Path(folder) if folder else platformdirs.user_data_path("labkit") / "course") / "progress.jsonl"


def keep(kind: str, name: str, **facts: Any) -> None:
    """Add a line: what was done ("guess", "attempt", "reference", "explanation", "claim", "verdict"), where."""
    path = progress_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"time": timestamp(), "kind": kind, "name": name, **facts}).encode() + b"\n"
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a crash cut the last line, which must not take this one with it
                line = b"\n" + line
        file.write(line)


def kept(kind: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
    """The lines of a kind, or all, oldest first."""
    lines = [entry for entry in entries(progress_file()) if kind in (None, entry.get("kind"))]
    return [entry for entry in lines if name is None or entry["name"] == name]


def entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a progress file, oldest first; one that a crash cut short is left out."""
    lines = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                lines.append(entry)
    return lines


def done() -> set[str]:
    """Exercises, explanations, claims and verdicts that are done: of an exercise the latest attempt counts."""
    latest = {entry["name"]: entry.get("right") for entry in kept("attempt")}  # what was right may be so no longer
    right = {name for name, is_right in latest.items() if is_right}
    return right | {entry["name"] for kind in ("explanation", "claim", "verdict") for entry in kept(kind)}


_recorded: dict[str, float | None] = {}


def recorded() -> dict[str, float | None]:
    """The numbers of this kernel's `results`, by name."""
    return dict(_recorded)


def recorded_in(cells: Iterable[Any]) -> dict[str, float | None]:
    """The numbers in a notebook's cells tagged results; what another program wrote there is left out."""
    tagged = [cell for cell in cells if "results" in cell.metadata.get("tags", [])]
    records = [output.get("data", {}).get(RESULTS) for cell in tagged for output in cell.get("outputs", [])]
    entries = [item for record in records if isinstance(record, dict) for item in record.items()]
    values = {name: entry["value"] for name, entry in entries if isinstance(entry, dict) and "value" in entry}
    return {name: value for name, value in values.items() if value is None or is_number(value) or value != value}


def results(**numbers: tuple[float | None, float, float]) -> None:
    """Print the numbers of a notebook, and keep them in its output for programs.

    Args:
        numbers: by name, (value, lowest, highest), with bounds that hold on any machine; the value may be None, such as
            the time to a target that was not reached.
    """
    from IPython.display import display

    record: dict[str, dict[str, Any]] = {
        name: {"value": None if value is None else float(value), "low": low, "high": high}
        for name, (value, low, high) in numbers.items()
    }
    _recorded.update({name: entry["value"] for name, entry in record.items()})
    words = [f"{name} = {'none' if e['value'] is None else format(e['value'], '.4g')}" for name, e in record.items()]
    words += [
        f"{name} is not from {e['low']:g} to {e['high']:g}: close other programs, and run what measured it again."
        for name, e in record.items()
        if e["value"] is not None and not e["low"] <= e["value"] <= e["high"]
    ]
    display({RESULTS: record, "text/plain": "\n".join(words)}, raw=True)


def offer_box(name: str, unit: str, take: Callable[[Any], None]) -> None:
    """Show a box and a button for a number where a notebook is open, for keyboard and mouse.

    Args:
        name: of what is answered; the label of the box.
        unit: of the number.
        take: is called with the answer; what it prints or raises is shown below the box.
    """
    from IPython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None:  # a script has nowhere to show it
        return
    import ipywidgets as widgets
    from IPython.display import display

    label = f"{name}{f' ({unit})' if unit else ''}"
    style = {"description_width": "initial"}
    box = widgets.Text(placeholder="a number", description=label, style=style, continuous_update=False)
    button, shown = widgets.Button(description="Answer", tooltip=f"Answer {name}"), widgets.HTML()

    def press(_: Any) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                take(literal(box.value))
            except Exception as error:  # of any kind: a callback has no other place to show it
                print(error)
        shown.value = f"<p role='status'>{escape(printed.getvalue())}</p>"

    button.on_click(press)
    display(widgets.VBox([widgets.HBox([box, button]), shown]))


def literal(text: str) -> object:
    """The value that a text writes as a Python literal, or the text where it writes none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@dataclass
class _Guess:
    value: float
    unit: str
    truth: float | None = None

    def words(self, value: float) -> str:
        return f"{value:.4g} {self.unit}".strip()


_open: dict[str, _Guess] = {}
"""Guesses made in this kernel, by name, in order."""


def guess(name: str, value: float | EllipsisType, unit: str = "") -> None:
    """Commit a guess before the answer is shown.

    Args:
        name: of the guess, such as "00.time_to_target".
        value: a number; dots are no guess, and are not scored.
        unit: of the number.

    Raises:
        UserError: the value is not a finite number.
    """
    of = f" of {unit}" if unit else ""
    if value is ...:
        if made := _made(name):  # by the box, before this cell ran again
            print(f"Your guess: {made.words(made.value)}.")
            return
        print(f"No guess yet: write a number{of} into the box, or in place of the dots and run this cell again.")
        offer_box(name, unit, lambda number: guess(name, number, unit))
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
    """Show the answer and how far off the guess was, and keep both; without a guess nothing is shown.

    Args:
        name: of the guess.
        truth: the answer; None or NaN where this machine gave none.
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
    counts = "" if first_time else f" The first answer counts, {made.words(certain(made.truth))}."
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
    """The factor by which a guess is too large or too small: 1 is right, infinity is another sign.

    Nothing has a ratio to 0, so each unit that a guess of 0 is off counts as one more: 1 is off by a factor of 2.
    """
    if guessed == truth or truth == 0:
        return 1.0 + abs(guessed - truth)
    return max(guessed / truth, truth / guessed) if guessed * truth > 0 else math.inf


def _how_far(made: _Guess, truth: float) -> str:
    factor = ratio_error(made.value, truth)
    if factor < 1.005:
        return "right" if factor > 1 else "exactly right"
    if math.isinf(factor) or truth == 0:
        return f"off by {made.words(abs(made.value - truth))}"
    return f"your guess was {'too high' if made.value > truth else 'too low'} by a factor of {factor:.2f}"


def score_notebook() -> None:
    """Print the guesses of this notebook with their answers: the first of each name that was scored."""
    _print_scores({name: made for name, made in first_guesses(kept()).items() if name in _open}, "this notebook")


def score_course() -> None:
    """Print the first guess of each name over all notebooks and days, and where they are kept."""
    _print_scores(first_guesses(kept()), "the course")
    print(f"They are kept in {progress_file()}: delete it to start again.")


def first_guesses(lines: Iterable[dict[str, Any]]) -> dict[str, _Guess]:
    """The first guess of each name that was scored; lines that another program wrote are left out."""
    first: dict[str, _Guess] = {}
    for entry in lines:
        if entry.get("kind") == "guess" and all(is_number(entry.get(key)) for key in ("guess", "truth")):
            first.setdefault(entry["name"], _Guess(entry["guess"], str(entry.get("unit", "")), entry["truth"]))
    return first


def _print_scores(scored: dict[str, _Guess], where: str) -> None:
    if not scored:
        print(f"No guess of {where} is scored yet.")
        return
    width, truths = max(map(len, scored)), {name: certain(made.truth) for name, made in scored.items()}
    for name, made in scored.items():
        how_far = _how_far(made, truths[name]).removeprefix("your guess was ")
        print(f"{name:{width}}  guessed {made.words(made.value):>16}  is {made.words(truths[name]):>16}  {how_far}")
    factors = sorted(ratio_error(made.value, truths[name]) for name, made in scored.items())
    middle = factors[(len(factors) - 1) // 2]
    within = sum(factor <= 2 for factor in factors)
    typical = "" if math.isinf(middle) else f"; the middle one was off by a factor of {middle:.2f}"
    print(f"{within} of {len(factors)} guesses of {where} were within a factor of 2{typical}.")
