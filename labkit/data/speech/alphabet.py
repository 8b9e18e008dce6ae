"""The characters a recogniser writes: transcripts brought to them, text to ids, and a model's ids back to text."""

from __future__ import annotations

import string
import unicodedata
from itertools import groupby

import numpy as np

from labkit.data.speech.utterance import Utterance
from labkit.errors import UserError

BLANK = 0
"""The id of CTC's blank."""

ENGLISH = " '" + string.ascii_lowercase

ADVICE = {"L": "write it in these letters", "N": "write numbers as words"}
"""By what a character is in Unicode: a letter, a number"""
UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
"""Its marks of byte order, read as UTF-8 with what is not so kept"""


class Alphabet:
    """A set of characters; id 0 is the blank, character i has id i + 1.

    >>> alphabet = Alphabet()
    >>> alphabet.encode("a b").tolist()
    [3, 1, 4]
    >>> alphabet.decode(np.array([[3, 3, 0, 3, 1, 4]]), np.array([6]))
    ['aa b']
    """

    def __init__(self, characters: str = ENGLISH):
        self.characters = characters
        self._ids = {character: index for index, character in enumerate(characters, BLANK + 1)}
        self._table = np.array(["", *characters])  # (V,)

    def __len__(self) -> int:
        """Size of a model's output: the characters and the blank."""
        return len(self.characters) + 1

    def encode(self, text: str) -> np.ndarray:
        """Ids of the characters of a text: int64 (S,)."""
        try:
            return np.array([self._ids[character] for character in text], dtype=np.int64)
        except KeyError as error:
            raise UserError(
                f"The character {error.args[0]!r} of {text!r} is not in the alphabet "
                f"{self.characters!r}: spell it with characters that are."
            ) from None

    def outside(self, text: str) -> str:
        """The characters of a text that are not in the alphabet, each once, in order."""
        return "".join(dict.fromkeys(character for character in text if character not in self._ids))

    def decode(self, ids: np.ndarray, lengths: np.ndarray) -> list[str]:
        """Texts of the likeliest ids (B, T) of a batch, of whose T `lengths` (B,) are real, by CTC's rule: merge
        repeats, then drop blanks. Arrays or CPU tensors."""
        ids, lengths = np.asarray(ids), np.asarray(lengths)
        keep = ids != BLANK  # (B, T)
        keep[:, 1:] &= ids[:, 1:] != ids[:, :-1]
        keep &= np.arange(ids.shape[1]) < lengths[:, None]
        written = "".join(self._table[ids[keep]].tolist())
        ends = keep.sum(1).cumsum().tolist()
        return [written[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def outputs_needed(text: str) -> int:
    """Outputs that CTC needs to write a text: one a character, and a blank between equal neighbours.

    >>> outputs_needed("three")
    6
    """
    return sum(2 * len(list(same)) - 1 for _, same in groupby(text))


def in_lower_case(text: str) -> str:
    """A text in lower case, with the apostrophe of the alphabet."""
    return text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def transcript(utterance: Utterance, alphabet: Alphabet, *, without_punctuation: bool) -> str:
    """The text as the recogniser is to write it, in lower case with single spaces."""
    text, field = in_lower_case(utterance.text), utterance.text_field or "text"
    if without_punctuation:
        marks = {character for character in alphabet.outside(text) if unicodedata.category(character)[0] == "P"}
        text = text.translate({ord(mark): " " for mark in marks})
    text = " ".join(text.split())
    try:
        (utterance.text + utterance.speaker).encode("utf-8")
    except UnicodeEncodeError:
        what = f"{utterance.text[:60]!r} by {utterance.speaker[:60]!r} is not UTF-8."
        coding = "latin1"
        if utterance.text.startswith(UTF_16):
            what, coding = "The transcript is UTF-16, not UTF-8.", "utf-16"
        fix = f"Convert the file, for example: iconv -f {coding} -t utf-8 OLD > NEW."
        raise utterance.error(what, fix, field) from None
    if not text:
        raise utterance.error("The transcript is empty.", "Write what is said, or remove the line.", field)
    if outside := alphabet.outside(text):
        which = ", ".join(map(repr, outside))
        what = f"The transcript {text[:60]!r} has {which}, and the alphabet is {alphabet.characters!r}."
        advice = dict.fromkeys(ADVICE.get(unicodedata.category(each)[0], "remove signs") for each in outside)
        raise utterance.error(what, f"{' and '.join(advice).capitalize()}, or leave the utterance out.", field)
    return text
