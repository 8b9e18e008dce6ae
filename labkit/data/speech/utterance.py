"""An utterance as its source describes it, before any audio is read."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from labkit.errors import DataError

SPLITS = ("train", "validation", "test")


def open_listing(path: Path) -> TextIO:
    """Open a manifest or a table of transcripts.

    What is not UTF-8 in it is kept as lone surrogates: names of files may be so, and other lines are refused singly.
    """
    return path.open(encoding="utf-8", errors="surrogateescape")


def is_file(audio: Path) -> bool:
    """Whether there is such a file; not if its name is too long for one, or no text."""
    try:
        return audio.is_file()
    except UnicodeEncodeError:
        return False
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


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

    def error(self, what: str, *, fix: str, field: str | None = None) -> DataError:
        """The error that points at this utterance's line."""
        file = self.listed_in or self.segments[0].audio
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
    punctuation: str = "keep"
    """"remove" where transcripts of this layout are written sentences."""
    notes: tuple[str, ...] = ()
    """What was decided while reading it."""

    @property
    def files(self) -> set[Path]:
        """Every file that the prepared data depends on."""
        return {segment.audio for each in self.utterances for segment in each.segments} | set(self.listings)
