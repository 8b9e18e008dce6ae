"""The characters a recogniser writes: transcripts reduced to them, text to ids, ids back to text, and error rates."""

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
"""What to do about a character outside the alphabet, by its category in Unicode: letter or number"""
UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
"""The byte order marks of UTF-16, as decoding by UTF-8 with "surrogateescape" leaves them"""


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
                f"The character {error.args[0]!r} of {text!r} is not in the alphabet: use only {self.characters!r}."
            ) from None

    def outside(self, text: str) -> str:
        """The characters of a text that are not in the alphabet, in order, without repeats."""
        return "".join(dict.fromkeys(character for character in text if character not in self._ids))

    def decode(self, ids: np.ndarray, lengths: np.ndarray) -> list[str]:
        """Texts of a batch by CTC's rule (merge repeats, then drop blanks).

        The likeliest ids (B, T) and their `lengths` (B,) are arrays or CPU tensors.
        """
        ids, lengths = np.asarray(ids), np.asarray(lengths)
        keep = ids != BLANK  # (B, T)
        keep[:, 1:] &= ids[:, 1:] != ids[:, :-1]
        keep &= np.arange(ids.shape[1]) < lengths[:, None]
        written = "".join(self._table[ids[keep]].tolist())
        ends = keep.sum(1).cumsum().tolist()
        return [written[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def outputs_needed(text: str) -> int:
    """Outputs that CTC needs to write a text: one per character, and a blank between equal neighbours.

    >>> outputs_needed("three")
    6
    """
    return sum(2 * len(list(same)) - 1 for _, same in groupby(text))


def in_lower_case(text: str) -> str:
    """A text in lower case, with the apostrophe of the alphabet."""
    return text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def transcript(utterance: Utterance, alphabet: Alphabet, *, without_punctuation: bool) -> str:
    """The text that the recogniser is to write: in lower case, with single spaces.

    Raises:
        DataError: the transcript is not UTF-8, is empty, or has characters outside the alphabet.
    """
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
        what = f"The transcript {text[:60]!r} has {which}, but the alphabet is {alphabet.characters!r}."
        advice = dict.fromkeys(ADVICE.get(unicodedata.category(each)[0], "remove the signs") for each in outside)
        raise utterance.error(what, f"{' and '.join(advice).capitalize()}, or remove the utterance.", field)
    return text


def speech_metrics(references: list[str], hypotheses: list[str]) -> dict[str, float]:
    """Character and word error rate over all utterances together.

    >>> speech_metrics(["one two"], ["one too"])["wer"]
    0.5
    """
    import jiwer

    return {name: float(getattr(jiwer, name)(references, hypotheses)) for name in ("cer", "wer")}
