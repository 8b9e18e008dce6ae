"""Claims of the papers, a card each: the paper's sentence and number, this machine's, a verdict and one reason."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any, get_args

from labkit.errors import UserError
from labkit.hardware import read_cpu
from labkit.runs import Kind, timestamp
from labkit_course.exercise import NotAnswered, WrongKind
from labkit_course.progress import keep

MIME = "application/vnd.labkit.claim+json"
VERDICTS = ("holds here", "does not hold here", "cannot be tested here")
FEWEST_WORDS = 5
"""Of a reason"""


@functools.cache
def all_claims() -> dict[str, dict[str, str]]:
    """By id ("A9"): paper, claim, number, evidence (where it was read) and test (what can test it)."""
    text = (files("labkit_course") / "claims.csv").read_text(encoding="utf-8")
    return {row["id"]: row for row in csv.DictReader(text.splitlines())}


def claim(id: str, mine: str, answer: Any, how: Kind = "measured") -> None:
    """Judge a paper's claim: show its card, and keep it.

    Args:
        id: of the claim, such as "A9".
        mine: this machine's number, in words: "1.8 times the samples/s at batch 4,096".
        answer: the verdict ("holds here", "does not hold here" or "cannot be tested here") and one reason.
        how: where `mine` comes from.

    Raises:
        ExerciseError: there is no verdict yet, or no reason.
        UserError: there is no such claim.
    """
    if id not in all_claims():
        raise UserError(f"there is no claim {id!r}: the ids are {', '.join(all_claims())}.")
    if how not in get_args(Kind):
        raise UserError(f"claim {id}: how is {how!r}: it is one of {', '.join(get_args(Kind))}.")
    paper = all_claims()[id]
    number = f" ({paper['number']})" if paper["number"] != "–" else ""
    said = f"{paper['paper']}: {paper['claim']}{number}"
    if answer is None or answer is Ellipsis:
        raise NotAnswered(
            f"Claim {id} is not judged yet: {said}. Yours: {mine}. Write the verdict and a reason, "
            f'such as "{VERDICTS[0]}", "...": the verdicts are {", ".join(VERDICTS)}.'
        )
    verdict, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
    if verdict not in VERDICTS or len(str(reason).split()) < FEWEST_WORDS:
        verdicts = ", ".join(map(repr, VERDICTS))
        raise WrongKind(f"Claim {id}: write one of {verdicts}, a comma, and a reason of a sentence.")
    cpu = read_cpu()
    facts = {"machine": f"{cpu.available_cores} cores of {cpu.model}"}
    facts |= {"verdict": verdict, "mine": mine, "reason": str(reason), "how": how}
    keep("claim", id, **facts)
    _show({"Paper": said, "Mine": f"{mine} ({how})", "Verdict": verdict, "Reason": str(reason)}, {"id": id} | facts)


def _show(words: Mapping[str, str], card: Mapping[str, str]) -> None:
    from IPython.display import display

    rows = "".join(f"<tr><th scope='row'>{name}</th><td>{escape(text)}</td></tr>" for name, text in words.items())
    html = f"<table class='claim'><caption>Claim {card['id']}</caption>{rows}</table>"
    plain = "\n".join(f"{name}: {text}" for name, text in words.items())
    display({MIME: dict(card) | {"date": timestamp()[:10]}, "text/html": html, "text/plain": plain}, raw=True)
