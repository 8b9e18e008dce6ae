"""Text in which quotes and brackets hold together what they enclose, as on a command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from labkit.errors import UserError


def split_outside(text: str, separator: str, most: int = -1) -> list[str]:
    """The parts of a text between separators that stand outside quotes and square brackets.

    Args:
        text: as a user wrote it; its quotes stay.
        separator: one character; a space stands for any white space.
        most: splits, from the left; -1 sets no limit.

    Raises:
        UserError: a quote or a bracket is not closed.

    >>> split_outside("a[x=1,y=2] 'b, c', d", ",")
    ["a[x=1,y=2] 'b, c'", ' d']
    """
    parts, begin = [], 0
    for place, char, depth in _bare(text):
        if not depth and len(parts) != most and (char == separator or (separator == " " and char.isspace())):
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def split_bracket(text: str) -> tuple[str, str | None]:
    """A text, and what stands in square brackets at its end; None where there are none.

    Raises:
        UserError: a quote or a bracket is not closed.

    >>> split_bracket("a[1].py[x=b[2]]"), split_bracket("a[1].py")
    (('a[1].py', 'x=b[2]'), ('a[1].py', None))
    """
    begin = end = -1
    for place, char, depth in _bare(text):
        if char == "[" and depth == 1:
            begin = place
        end = place if char == "]" and depth == 0 else end
    return (text[:begin], text[begin + 1 : end]) if 0 <= begin < end == len(text) - 1 else (text, None)


def _bare(text: str) -> Iterator[tuple[int, str, int]]:
    """Place, character, and how many brackets are open after it, of all that stands outside quotes."""
    depth, quote, escaped = 0, "", False
    for place, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth = max(0, depth + (char == "[") - (char == "]"))
            yield place, char, depth
    if quote:
        raise UserError(f"the quote {quote} in {text.strip()!r} is not closed: close it, or write \\{quote} for it.")
    if depth:
        raise UserError(f"a bracket [ in {text.strip()!r} is not closed: close it, or put it in quotes.")


def split_words(text: str) -> list[str]:
    """The words of a command line: quotes hold words together and are taken away.

    Raises:
        UserError: a quote is not closed, or nothing follows a backslash.

    >>> split_words("--lr 0.1 --note 'two words'")
    ['--lr', '0.1', '--note', 'two words']
    """
    try:
        return shlex.split(text)
    except ValueError:
        raise UserError(
            f"the arguments {text!r} end inside a quote, or in a backslash: close the quote, or put the backslash in "
            "quotes."
        ) from None
