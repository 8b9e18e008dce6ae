"""An utterance as its source describes it, before any audio is read, and which split it is in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labkit.errors import DataError

SPLITS = ("train", "validation", "test")
HELD_OUT = 0.1
"""The share of speakers (or of utterances, where speakers are few) that a missing split gets."""


@dataclass(frozen=True)
class Segment:
    """A stretch of an audio file."""

    audio: Path
    offset_s: float = 0.0
    duration_s: float | None = None
    """None: to the end of the file."""
    silence_s: float = 0.0
    """Silence put after it."""


@dataclass(frozen=True)
class Utterance:
    """What one speaker says in one or more stretches of audio, and where that is written."""

    segments: tuple[Segment, ...]
    text: str
    speaker: str
    split: str | None = None
    """"train", "validation" or "test"; None: the source does not say."""
    listed_in: Path | None = None
    """The manifest or transcript file; None where the audio file's own name says everything."""
    line: int | None = None
    """Line of `listed_in`, from 1."""
    audio_field: str | None = None
    """What that file calls the audio."""
    text_field: str | None = None
    """What that file calls the transcript."""
    sample_rate_hz: int | None = None
    """The rate the source states; None: it states none."""
    accent: str = ""
    """As the source calls it; empty: it does not say."""

    def error(self, what: str, fix: str, field: str | None = None) -> DataError:
        """The error that points at this utterance's line, or at that of its two files which it is about."""
        of_audio = self.listed_in is None or (self.line is None and field != "text")
        file = self.segments[0].audio if of_audio else self.listed_in
        return DataError(what, fix=fix, file=file, line=self.line, field=field)


@dataclass(frozen=True)
class Source:
    """A speech dataset as found: what was said, in which files."""

    name: str
    utterances: list[Utterance]
    folder: Path
    """What the paths are relative to."""
    listings: tuple[Path, ...] = ()
    """Files that say what was said."""
    has_punctuation: bool = False
    """Whether transcripts of this layout are written sentences, whose punctuation is removed."""

    @property
    def files(self) -> set[Path]:
        """Every file that the prepared data depends on."""
        return {segment.audio for each in self.utterances for segment in each.segments} | set(self.listings)

    def error(self, what: str, fix: str) -> DataError:
        """The error of a source that cannot be used."""
        return DataError(what, fix=fix, file=self.listings[0] if self.listings else self.folder)


def dealing(utterances: list[Utterance]) -> tuple[str | None, list[str]]:
    """The split whose utterances `fill_splits` deals out, and those that get them: none where all splits are there."""
    present = {each.split for each in utterances}
    shared = next(split for split in (None, *SPLITS) if split in present)
    wanted = [split for split in SPLITS if split not in present or split == shared]
    if shared is None and "train" not in wanted:
        wanted.insert(0, "train")
    return shared, [] if wanted == [shared] else wanted


def fill_splits(utterances: list[Utterance], seed: int) -> list[Utterance]:
    """Give every utterance a split, and every split its utterances.

    Utterances without a split are divided among the splits the source lacks, and so is a split that has to be
    shared out because one is missing: the training split, or else the validation or test split. Speakers
    stay whole if there are enough of them; whose speaker nobody knows stands alone.
    """
    shared, wanted = dealing(utterances)
    if not wanted:
        return utterances
    pool = [index for index, each in enumerate(utterances) if each.split == shared]
    # With as many speakers as splits each would get one; fewer cannot be kept whole.
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
        what = f"There are {len(utterances)} utterances, too few for a {' and a '.join(sorted(missing))} split."
        raise DataError(what, fix="Give at least three, better several hundred.", file=utterances[0].listed_in)
    return filled
