"""Utterances as their source describes them, their splits and transcripts, and the alphabet of a recogniser."""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from labkit import DataError, UserError

SPLITS = ("train", "validation", "test")
HELD_OUT = 0.1
"""Share of the speakers (or of the utterances, if there are few speakers) that a missing split gets"""


@dataclass(frozen=True)
class Segment:
    """A stretch of an audio file."""

    audio: Path
    offset_s: float = 0.0
    duration_s: float | None = None
    """None: to the end of the file"""
    silence_s: float = 0.0
    """Silence added after it"""


@dataclass(frozen=True)
class Utterance:
    """One utterance of a speaker: its stretches of audio, its transcript, and where these are listed."""

    segments: tuple[Segment, ...]
    text: str
    speaker: str
    split: str | None = None
    """"train", "validation" or "test"; None: unknown"""
    listed_in: Path | None = None
    """The manifest or transcript file; None if the name of the audio file has everything"""
    line: int | None = None
    """Line of `listed_in`, from 1"""
    audio_field: str | None = None
    """Name of the audio's field in that file"""
    text_field: str | None = None
    """Name of the transcript's field in that file"""
    sample_rate_hz: int | None = None
    """Sample rate stated by the source; None: not stated"""
    accent: str = ""
    """The source's name of the accent; empty: unknown"""

    def error(self, what: str, fix: str, field: str | None = None) -> DataError:
        """An error at the line of this utterance, or at the one of its two files that it is about."""
        of_audio = self.listed_in is None or (self.line is None and field != "text")
        file = self.segments[0].audio if of_audio else self.listed_in
        return DataError(what, fix=fix, file=file, line=self.line, field=field)


@dataclass(frozen=True)
class Source:
    """A speech dataset as found: its utterances and files."""

    name: str
    utterances: list[Utterance]
    folder: Path
    """Folder that paths are relative to"""
    listings: tuple[Path, ...] = ()
    """Files with the transcripts"""
    has_punctuation: bool = False
    """Whether transcripts are written sentences, whose punctuation is removed"""

    @property
    def files(self) -> set[Path]:
        """All files that the prepared data depends on."""
        return {segment.audio for each in self.utterances for segment in each.segments} | set(self.listings)

    def error(self, what: str, fix: str) -> DataError:
        """An error about this source as a whole."""
        return DataError(what, fix=fix, file=self.listings[0] if self.listings else self.folder)


def dealing(utterances: list[Utterance]) -> tuple[str | None, list[str]]:
    """The split whose utterances `fill_splits` distributes, and the splits that get them; none if none is missing."""
    present = {each.split for each in utterances}
    shared = next(split for split in (None, *SPLITS) if split in present)
    wanted = [split for split in SPLITS if split not in present or split == shared]
    if shared is None and "train" not in wanted:
        wanted.insert(0, "train")
    return shared, [] if wanted == [shared] else wanted


def fill_splits(utterances: list[Utterance], seed: int) -> list[Utterance]:
    """Give every utterance a split, and every split some utterances.

    Utterances without a split are distributed among the missing splits. If there are none, another split is divided:
    the training split, or else the validation or test split. All utterances of a speaker stay in one split if there
    are enough speakers; an utterance of an unknown speaker counts as a speaker.
    """
    shared, wanted = dealing(utterances)
    if not wanted:
        return utterances
    pool = [index for index, each in enumerate(utterances) if each.split == shared]
    # with as many speakers as splits, each gets one; with fewer, the utterances of a speaker are divided
    whole = len({utterances[index].speaker for index in pool} - {""}) >= len(wanted)
    keys = [utterances[index].speaker or index if whole else index for index in pool]
    distinct = list(dict.fromkeys(keys))
    held_out, chosen = max(1, round(HELD_OUT * len(distinct))), {}
    for rank, index in enumerate(np.random.default_rng(seed).permutation(len(distinct))):
        place = 1 + rank // held_out
        chosen[distinct[index]] = wanted[place] if place < len(wanted) else wanted[0]
    filled = list(utterances)
    for index, key in zip(pool, keys, strict=True):
        filled[index] = replace(utterances[index], split=chosen[key])
    if missing := set(SPLITS) - {each.split for each in filled}:
        what = f"There are only {len(utterances)} utterances, too few for a {' and a '.join(sorted(missing))} split."
        raise DataError(what, fix="Give at least three, preferably several hundred.", file=utterances[0].listed_in)
    return filled


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
