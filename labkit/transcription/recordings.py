"""The recordings that paths lead to, one after another: files, folders of any size, and listings with transcripts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from labkit.data import BadRows
from labkit.data.speech import (
    SUFFIXES,
    Segment,
    Source,
    Utterance,
    dealing,
    find_source,
    fingerprint,
    read_common_voice,
    read_librispeech,
    read_manifest,
    usable_utterances,
)
from labkit.errors import DataError, UserError
from labkit.runs import RunRecord

MANIFESTS = {".jsonl", ".json"}
SORTED = 4096
"""Names of a folder that are read and sorted together, however many it has"""


@dataclass(frozen=True)
class Recording:
    """Something to transcribe."""

    name: str
    """For people: the path, and where it is a stretch of a file, its beginning."""
    utterance: Utterance
    """Its text is empty where nobody wrote it down."""
    voice: str
    """Recordings in a row with one `voice` are one speaker's"""


def find_recordings(
    paths: Iterable[Path], split: str | None = None, record: RunRecord | None = None
) -> Iterator[Recording | UserError]:
    """The recordings below paths, or why one of them cannot be used, in bounded memory unless a listing has them.

    Listings (a manifest, a folder with one, a LibriSpeech tree, a Common Voice folder) say who
    speaks, and what. Elsewhere what lies in one folder is one speaker's, and a transcript is a .txt file beside the
    audio.

    Args:
        paths: files and folders.
        split: of listings, keep this one.
        record: that of the run which trained the recogniser.
    """
    for path in paths:
        try:
            listing = _listing(path, split)
        except DataError as error:
            yield error
            continue
        except OSError as error:
            yield UserError(f"{path}: this cannot be read ({error.strerror}): give yourself the permission.")
            continue
        if listing is not None:
            yield from _listed(*listing, split, record)
        elif split and path.exists():
            yield UserError(f"{path}: only listings and datasets have splits: leave --split {split} away.")
        elif path.is_dir():
            yield from _walked(path)
        elif path.exists():
            yield from_file(path)
        else:
            fix = "Correct the path; what ships with labkit is in the folder datasets/speech."
            yield DataError("There is no such file or folder.", fix=fix, file=path)


def from_file(path: Path, name: str | None = None) -> Recording | UserError:
    """A file of one recording, with its transcript where a .txt of its name lies beside it; an error if unreadable."""
    transcript = path.with_suffix(".txt")
    text = ""
    if transcript != path and transcript.is_file():
        try:
            text = transcript.read_text(encoding="utf-8-sig", errors="surrogateescape")
        except OSError as error:
            return UserError(f"{transcript}: this cannot be read ({error.strerror}): give yourself the permission.")
    else:
        transcript = None
    utterance = Utterance((Segment(path),), text, path.absolute().parent.name, listed_in=transcript)
    return Recording(name or str(path), utterance, f"folder {path.parent}")


def _listing(path: Path, split: str | None) -> tuple[Source, BadRows] | None:
    """The listing that a path is or has; None: it has none. Spoken digits are joined only where a split is asked for,
    as training joins them."""
    bad, has_audio, manifests, inner = BadRows("skip"), False, [], []
    if not path.is_dir():
        return (read_manifest(path, bad), bad) if path.suffix in MANIFESTS and path.is_file() else None
    if split:  # as training looks for it
        source = find_source(path, bad, seed=0)
        return source and (source, bad)
    with os.scandir(path) as entries:  # one by one, for there may be a million
        for entry in entries:
            has_audio = has_audio or _is_audio(entry.name)
            if entry.name.endswith(".jsonl"):
                manifests.append(Path(entry.path))
            if len(inner) < 2 and entry.is_dir(follow_symlinks=False):
                inner.append(Path(entry.path))
    if len(manifests) == 1:
        return read_manifest(manifests[0], bad), bad
    source = None if has_audio else read_common_voice(path, bad) or read_librispeech(path, bad)
    if source is None and not has_audio and len(inner) == 1:  # as of an unpacked archive
        return _listing(inner[0], None)
    return source and (source, bad)


def _listed(
    source: Source, bad: BadRows, split: str | None, record: RunRecord | None
) -> Iterator[Recording | UserError]:
    """A listing's recordings, speaker by speaker, then its bad lines."""
    utterances = source.utterances
    if split and utterances and split in dealing(utterances)[1]:
        try:
            if record and _has_changed(source, record):
                what = "It has changed since the recogniser's training, and would be dealt into other splits than then."
                fix = "Train anew, write a split into each line of a manifest, or leave --split away."
                raise source.error(what, fix)
            utterances = usable_utterances(source, bad)
        except DataError as error:
            yield error
            return
    chosen = [each for each in utterances if split in (None, each.split)]
    if not chosen and split:
        yield source.error(f"There is no recording in its {split} split.", "Name another with --split, or none.")
    elif not chosen:
        yield source.error("It lists nothing that can be used.", "Remove it from its folder, or name the audio files.")
    chosen.sort(key=lambda each: (each.split or "", each.speaker))
    for number, each in enumerate(chosen):
        segment, more = each.segments[0], len(each.segments) - 1
        at = f" at {segment.offset_s:g} s" if segment.offset_s else ""
        at += f" and {more} more" if more else ""
        # as in training: a speaker's splits stand apart, and whose speaker nobody knows stands alone
        voice = f"{each.split} {each.speaker}" if each.speaker else f"line {number}"
        yield Recording(f"{segment.audio}{at}", each, voice)
    if bad.count:
        yield UserError(f"Lines of the listing that cannot be used: {bad.count:,}; the first: {bad.in_words()}")


def _has_changed(source: Source, record: RunRecord) -> bool:
    """Whether a source is what a run was trained on, and has changed since."""
    data, train = record.config["data"], record.config["train"]
    places = (path.absolute() for path in (source.folder, *source.listings))
    if not any(place.is_relative_to(data.get("source", data["name"])) for place in places):
        return False
    settings = {"on_bad_row": train["on_bad_row"], "seed": 0, "features": train.get("features", "log-mel")}
    return fingerprint(source, **settings) != data["fingerprint"]


def _walked(folder: Path) -> Iterator[Recording | UserError]:
    """The audio files of a folder and of those in it, thousands at a time."""
    found = False
    folders = [folder]
    while folders:
        inner: list[Path] = []
        place = folders.pop()
        try:
            entries = _entries(place, inner)
            while names := sorted(islice(entries, SORTED)):
                for name in names:
                    yield from_file(place / name)
                found = True
        except OSError as error:
            yield UserError(f"{place}: this folder cannot be read ({error.strerror}); the others are.")
            found = True
        folders += sorted(inner, reverse=True)
    if not found:
        yield DataError(
            "There is no audio in this folder.",
            fix=f"Name one with files of {', '.join(sorted(SUFFIXES))}, or a file itself.",
            file=folder,
        )


def _entries(folder: Path, inner: list[Path]) -> Iterator[str]:
    """Names of the audio files of a folder; the folders in it go into `inner`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(Path(entry.path))
            elif _is_audio(entry.name):
                yield entry.name


def _is_audio(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
