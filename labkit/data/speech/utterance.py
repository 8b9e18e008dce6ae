"""Utterances as their source describes them, before any audio is read, and their splits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labkit.errors import DataError

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
