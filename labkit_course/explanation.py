"""An explanation in the student's words: graded by hand, with a rubric, and a model answer to compare it with."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from labkit_course.exercise import NotAnswered, WrongKind

FEWEST_WORDS = 20
"""Of two sentences that say a number and why."""


@dataclass(frozen=True)
class Explanation:
    """What is asked for, and one good answer."""

    rubric: tuple[str, ...]
    """What the text has to say."""
    model: str
    """Two or three sentences that say it."""

    def check(self, name: str, answer: Any) -> str:
        """The model answer and the rubric as HTML, for a text that is long enough to be compared with them.

        Raises:
            NotAnswered, WrongKind: there is no text, or hardly one.
        """
        asked = "It has to say: " + " ".join(f"({number}) {point}" for number, point in enumerate(self.rubric, 1))
        todo = f"Exercise {name} is not answered yet"
        if answer is None or answer is Ellipsis:
            raise NotAnswered(f"{todo}: write two sentences, in quotes. {asked}")
        words = len(answer.split()) if isinstance(answer, str) else 0
        if words < FEWEST_WORDS:
            raise WrongKind(f"{todo}: these are {words} words, and two sentences have {FEWEST_WORDS}. {asked}")
        number = "" if any(map(str.isdigit, answer)) else ", and no number in them"
        points = "".join(f"<li>{escape(point)}</li>" for point in self.rubric)
        return (
            f"<p>{words} words kept, to be graded by hand{number}. It has to say:</p><ol>{points}</ol>"
            f"<details><summary>A model answer, to compare yours with</summary><p>{escape(self.model)}</p></details>"
        )
