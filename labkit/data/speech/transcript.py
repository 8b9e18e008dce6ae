"""A transcript brought to the alphabet: lower case, single spaces, and no punctuation where that is asked."""

from __future__ import annotations

import re
import unicodedata

from labkit.data.speech.alphabet import Alphabet
from labkit.data.speech.utterance import Utterance
from labkit.errors import DataError, UserError

PUNCTUATION = ("keep", "remove")
FIELD = "text"


def check_punctuation(choice: str) -> None:
    if choice not in PUNCTUATION:
        raise UserError(f"punctuation is {choice!r}: choose one of {', '.join(PUNCTUATION)}.")


def transcript(utterance: Utterance, alphabet: Alphabet, punctuation: str) -> str | DataError:
    """The text as the recogniser is to write it, or why it cannot."""
    text = utterance.text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if punctuation == "remove":
        text = "".join(" " if _is_punctuation(character, alphabet) else character for character in text)
    text = re.sub(r"\s+", " ", text).strip()
    field = utterance.text_field or FIELD
    if not _is_utf8(utterance.text + utterance.speaker):
        return utterance.error(
            f"{utterance.text[:60]!r} by {utterance.speaker[:60]!r} is not UTF-8.",
            fix="Convert the file, for example: iconv -f latin1 -t utf-8 OLD > NEW.",
            field=field,
        )
    if not text:
        return utterance.error("The transcript is empty.", fix="Write what is said, or remove the line.", field=field)
    outside = alphabet.outside(text)
    if outside:
        return utterance.error(
            f"The transcript {text[:60]!r} has {', '.join(repr(c) for c in outside)}, and the alphabet is "
            f"{alphabet.characters!r}.",
            fix=_fix(outside, alphabet),
            field=field,
        )
    return text


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_punctuation(character: str, alphabet: Alphabet) -> bool:
    return unicodedata.category(character)[0] == "P" and character not in alphabet.characters


def _fix(outside: str, alphabet: Alphabet) -> str:
    if all(_is_punctuation(character, alphabet) for character in outside):
        return "Remove the punctuation, or load with load_speech(..., punctuation='remove')."
    return "Write numbers as words and other letters by their nearest ones."
