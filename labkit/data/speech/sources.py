"""Speech datasets as found: utterances, their splits, and the layouts in which they are listed.

These are JSONL manifests, LibriSpeech, Common Voice, and spoken digits, which are joined.

A manifest has one JSON object per utterance, in the format of NeMo and others.

    {"audio_filepath": "audio/a.opus", "offset": 0.35, "duration": 1.94, "text": "stop all jobs",
     "speaker": "anna", "accent": "scottish", "split": "train", "sample_rate": 16000}

Audio (`audio_filepath`, `audio` or `path`, relative to the manifest) and transcript (`text`, `sentence` or
`transcript`) are required, the rest is optional. Lines of other listings are checked in the same way.
"""

import codecs
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labkit import DataError
from labkit.data.store import BadRows

SPLITS = ("train", "validation", "test")
HELD_OUT = 0.1
"""Share of the speakers (or of the utterances, if there are few speakers) that a missing split gets"""
SUFFIXES = {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".w64", ".caf"}
"""Suffixes of audio files in a folder; a file given by name is tried whatever its suffix"""
AUDIO_FIELDS = ("audio_filepath", "audio", "path")
TEXT_FIELDS = ("text", "sentence", "transcript")
SPLIT_OF = {"train": "train", "dev": "validation", "test": "test"}
"""Our names of splits by those of LibriSpeech and Common Voice"""
LARGEST = 1e9
"""Largest number of seconds or Hz accepted"""
TABLES = ("train.tsv", "dev.tsv", "test.tsv")
COLUMNS = {"path": "path", "sentence": "sentence", "client_id": "speaker", "accents": "accent", "accent": "accent"}
"""Names of fields in a manifest by the columns of Common Voice's tables"""
WHOLE = "validated.tsv"
"""Table of all validated clips of Common Voice; read if there is no table of a split"""
RECORDING = re.compile(r"(\d)_(\w+)_(\d+)\.wav")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FIRST_INDEX = {"test": 0, "validation": 5, "train": 8}
"""Lowest index of each split; the next one starts the next split"""
DEALS = {"train": 12, "validation": 7, "test": 5}
"""Number of uses of each recording: 4 speakers give about 5,800 utterances to train, 260 to validate, 290 to test"""
MAX_DIGITS = 6
SILENCE_S = (0.03, 0.15)
"""Range of the silences between two digits, and after the last"""


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


def find_source(path: Path, bad: BadRows, seed: int) -> Source | None:
    """The utterances of a manifest, or of a folder in one of the layouts; None if it is in no known layout.

    Raises:
        DataError: the folder contains several datasets, or the file is audio.
    """
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        fix = "Give a manifest or a folder; `labkit transcribe` takes audio."
        raise DataError("This is an audio file, not a list of files and transcripts.", fix=fix, file=path)
    if path.is_file():
        return read_manifest(path, bad)
    # an unpacked archive often has its layout one or two folders down
    for pattern in ("", "*/", "*/*/"):
        folders = sorted(path.glob(pattern)) if pattern else [path]
        found = [source for folder in folders if (source := read_layout(folder, bad, seed))]
        if len(found) > 1:
            names = ", ".join(str(source.folder.relative_to(path)) for source in found[:4])
            what = f"This folder has {len(found)} datasets: {names}{', …' if len(found) > 4 else ''}."
            fix = "Give one of them, or write a manifest of all, with a split in each line."
            raise DataError(what, fix=fix, file=path)
        if found:
            return found[0]
    return None


def read_layout(folder: Path, bad: BadRows, seed: int | None = None) -> Source | None:
    """The utterances of a folder in one of the layouts, spoken digits only with a seed; None if it is in none."""
    manifests = sorted(folder.glob("*.jsonl"))
    if len(manifests) == 1:
        return read_manifest(manifests[0], bad)
    digits = None if seed is None else read_fsdd(folder, seed)
    return digits or read_common_voice(folder, bad) or read_librispeech(folder, bad)


def read_manifest(path: Path, bad: BadRows) -> Source:
    """The utterances of a manifest."""
    name = path.parent.name if path.stem == "manifest" else path.stem
    return Source(name, _utterances(path, read_lines(path), path.parent, bad), path.parent, listings=(path,))


def read_librispeech(folder: Path, bad: BadRows) -> Source | None:
    """The utterances of a LibriSpeech tree, or of one of its subsets (`dev-clean`); None if it is not one.

    A subset has `SPEAKER/CHAPTER/*.flac` with `*.trans.txt` next to them.
    """
    chapters, listings = "*/*/", sorted(folder.glob("*/*/*.trans.txt"))
    if not listings:
        chapters, listings = "*/*/*/", sorted(folder.glob("*/*/*/*.trans.txt"))
    utterances = []
    for chapter in sorted({*folder.glob(chapters)} - {listing.parent for listing in listings}) if listings else ():
        if any(chapter.glob("*.flac")):
            bad.add(DataError("The recordings have no *.trans.txt next to them.", fix="Restore it.", file=chapter))
    for listing in listings:
        speaker = listing.parent.parent
        subset = speaker.resolve().parent.name.partition("-")[0]
        known = {"speaker": speaker.name, "split": SPLIT_OF.get(subset)}
        words = ((line, text.strip().partition(" ")) for line, text in read_lines(listing))
        rows = ((line, known | {"audio": f"{name}.flac", "text": text}) for line, (name, _, text) in words)
        utterances += _utterances(listing, rows, listing.parent, bad)
    return Source(folder.resolve().name, utterances, folder, listings=tuple(listings)) if listings else None


def read_common_voice(folder: Path, bad: BadRows) -> Source | None:
    """The utterances of a Common Voice folder of one language, with `clips/` and tables; None if it is not one."""
    tables = [folder / name for name in TABLES if (folder / name).is_file()] or [folder / WHOLE]
    if not (folder / "clips").is_dir() or not tables[0].is_file():
        return None
    utterances = []
    for table in tables:
        lines = ((line, text.rstrip("\n").split("\t")) for line, text in read_lines(table))  # nothing is quoted
        keys = [COLUMNS.get(name) for name in next(lines, (1, []))[1]]
        split = SPLIT_OF.get(table.stem)
        rows = ((line, dict(zip(keys, values, strict=False)) | {"split": split}) for line, values in lines)
        utterances += _utterances(table, rows, folder / "clips", bad)
    return Source(folder.resolve().name, utterances, folder, listings=tuple(tables), has_punctuation=True)


def read_lines(listing: Path) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a text file, with their numbers.

    Bytes that are not UTF-8 become lone surrogates: file names may have them, and other lines are refused one by one.
    """
    with listing.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            fix = "Convert it: iconv -f utf-16 -t utf-8 OLD > NEW."
            raise DataError("This is UTF-16, not UTF-8.", fix=fix, file=listing)
    with listing.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _utterances(listing: Path, rows: Iterable[tuple[int, str | dict]], audio: Path, bad: BadRows) -> list[Utterance]:
    """Utterances of the good lines of a listing (JSON, or its content); paths are relative to the folder `audio`."""
    utterances = []
    for line, row in rows:
        try:
            utterances.append(_utterance(listing, line, row, audio))
        except DataError as error:
            bad.add(error)
    return utterances


def _utterance(listing: Path, line: int, row: str | dict, audio_folder: Path) -> Utterance:
    def error(what: str, fix: str, field: str | None = None) -> DataError:
        return DataError(what, fix=fix, file=listing, line=line, field=field)

    if isinstance(row, str):
        try:
            row = json.loads(row)
        except (ValueError, RecursionError) as problem:  # ValueError: also a number of thousands of digits
            what = f"This is not JSON ({getattr(problem, 'msg', problem)})."
            raise error(what, "Write one JSON object per line.") from None
    if not isinstance(row, dict):
        raise error("This is JSON, but not an object.", "Write one JSON object per line.")
    fields = []
    for names, meaning in ((AUDIO_FIELDS, "the path of the audio"), (TEXT_FIELDS, "the words that are spoken")):
        field = next((name for name in names if name in row), None)
        if field is None:
            raise error(f"None of {', '.join(names)} is there.", f"Add {names[0]!r}.", names[0])
        if not isinstance(row[field], str) or not row[field].strip():
            raise error(f"{field!r} is {row[field]!r}.", f"Write {meaning} as a JSON string.", field)
        fields.append(field)
    audio = audio_folder / row[fields[0]]
    if not os.path.isfile(audio):  # noqa: PTH113 (Path.is_file raises for names that are too long or not text)
        fix = f"Correct the path (relative ones start at {audio_folder}), or remove the line."
        raise error(f"There is no file {audio}.", fix, fields[0])
    numbers = {}
    for key in ("offset", "duration", "sample_rate"):
        value = row.get(key)
        if value is None:
            continue
        lowest = 0 if key == "offset" else 1e-9
        if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value < LARGEST:
            raise error(f"{key!r} is {value!r}.", "Give a positive number (seconds, Hz) or omit it.", key)
        numbers[key] = value
    if (split := row.get("split")) not in (None, *SPLITS):
        raise error(f"The split {split!r} is unknown.", f"Use one of {', '.join(SPLITS)}.", "split")
    return Utterance(
        (Segment(audio, float(numbers.get("offset", 0)), numbers.get("duration")),),
        row[fields[1]],
        "" if (speaker := row.get("speaker")) is None else str(speaker),
        split,
        listing,
        line,
        *fields,
        sample_rate_hz=numbers.get("sample_rate"),
        accent=str(row.get("accent") or ""),
    )


def read_fsdd(folder: Path, seed: int) -> Source | None:
    """Connected digits from a folder of recordings, `{digit}_{speaker}_{index}.wav`; None if there are none.

    Indices 0 to 4 are the official test split; here 5 to 7 are for validation and the rest for training. In each split
    the recordings of a speaker are joined into utterances of 1 to 6 digits with short silences, several times and in a
    new order each time, so that all recordings are used equally often.
    """
    recordings: dict[tuple[str, str], list[tuple[Path, str]]] = {}
    for path in sorted(folder.glob("[0-9]_*_*.wav")):
        if name := RECORDING.fullmatch(path.name):
            digit, speaker, index = name.groups()
            split = max((s for s, low in FIRST_INDEX.items() if int(index) >= low), key=FIRST_INDEX.get)
            recordings.setdefault((split, speaker), []).append((path, DIGITS[int(digit)]))
    if not recordings:
        return None
    if missing := set(FIRST_INDEX) - {split for split, _ in recordings}:
        which = " or the ".join(sorted(missing))
        what = f"There are no recordings of the {which} split (test: index 0 to 4, validation: 5 to 7, train: from 8)."
        raise DataError(what, fix="Copy the whole folder `recordings` of the dataset.", file=folder)
    utterances = []
    for number, ((split, speaker), of_speaker) in enumerate(sorted(recordings.items())):
        rng = np.random.default_rng((seed, number))
        for _ in range(DEALS[split]):
            order, start = rng.permutation(len(of_speaker)), 0
            while start < len(order):
                chosen = [of_speaker[index] for index in order[start : start + rng.integers(1, MAX_DIGITS + 1)]]
                start += len(chosen)
                silences_s = rng.uniform(*SILENCE_S, len(chosen)).tolist()
                heard = zip(chosen, silences_s, strict=True)
                segments = tuple(Segment(path, silence_s=silence_s) for (path, _), silence_s in heard)
                utterances.append(Utterance(segments, " ".join(word for _, word in chosen), speaker, split))
    return Source("fsdd", utterances, folder)


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
