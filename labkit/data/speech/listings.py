"""Listings of utterances: JSON lines and tables, read row by row; a row that is not understood costs itself.

A manifest has one JSON object per utterance, or is a CSV or TSV table with these names in its first line.

    {"audio_filepath": "audio/a.opus", "offset": 0.35, "duration": 1.94, "text": "stop all jobs",
     "speaker": "anna", "accent": "scottish", "split": "train", "sample_rate": 16000}

Audio (one of `AUDIO_FIELDS`, relative to the manifest) and transcript (one of `TEXT_FIELDS`) are required, the rest is
optional. Lines of other listings are checked in the same way.
"""

import codecs
import csv
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from labkit import DataError
from labkit.data.store import BadRows

SPLITS = ("train", "validation", "test")
AUDIO_FIELDS = ("audio_filepath", "audio", "path", "file_name", "audio_file", "wav_filename", "filename")
TEXT_FIELDS = ("text", "sentence", "transcript", "transcription")
"""Names of NeMo, Hugging Face, Common Voice and DeepSpeech"""
SPEAKER_FIELDS = ("speaker", "speaker_id", "client_id")
ACCENT_FIELDS = ("accent", "accents")
NUMBERS = ("offset", "duration", "sample_rate")
KNOWN_FIELDS = {*AUDIO_FIELDS, *TEXT_FIELDS, *SPEAKER_FIELDS, *ACCENT_FIELDS, *NUMBERS, "split"}
SPLIT_OF = (
    dict.fromkeys(("train", "training"), "train")
    | dict.fromkeys(("validation", "dev", "val", "valid"), "validation")
    | dict.fromkeys(("test", "testing"), "test")
)
"""Our names of splits by those of others, in a row, a file's name or a folder's"""
LARGEST = 1e9
"""Largest number of seconds or Hz accepted"""


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


def read_lines(listing: Path) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a text file, with their numbers.

    Bytes that are not UTF-8 become lone surrogates: file names may have them, and other lines are refused one by one.
    """
    with listing.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            fix = "Convert it: iconv -f utf-16 -t utf-8 OLD > NEW."
            raise DataError("This is UTF-16, not UTF-8.", fix=fix, file=listing)
    with listing.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        # joined files have byte order marks inside
        yield from ((number, line.lstrip("\ufeff")) for number, line in enumerate(lines, 1) if line.strip())


def utterances_of(
    listing: Path, rows: Iterable[tuple[int, str | dict | DataError]], audio: Path, bad: BadRows
) -> list[Utterance]:
    """Utterances of the good lines of a listing (JSON, or its content); paths are relative to the folder `audio`."""
    utterances = []
    for line, row in rows:
        try:
            utterances.append(_utterance(listing, line, row, audio))
        except DataError as error:
            bad.add(error)
    return utterances


def _utterance(listing: Path, line: int, row: str | dict | DataError, audio_folder: Path) -> Utterance:
    error = partial(DataError, file=listing, line=line)
    if isinstance(row, str):
        try:
            row = json.loads(row)
        except (ValueError, RecursionError) as problem:  # ValueError: also a number of thousands of digits
            what = f"This is not JSON ({getattr(problem, 'msg', problem)})."
            raise error(what, fix="Write one JSON object per line.") from None
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, dict):
        raise error("This is JSON, but not an object.", fix="Write one JSON object per line.")
    fields = []
    for names, meaning in ((AUDIO_FIELDS, "the path of the audio"), (TEXT_FIELDS, "the words that are spoken")):
        field = next((name for name in names if name in row), None)
        if field is None:
            raise error(f"None of {', '.join(names)} is there.", fix=f"Add {names[0]!r}.", field=names[0])
        value = row[field]
        if names is AUDIO_FIELDS and isinstance(value, dict):  # Hugging Face: {"path": …, "bytes": …}
            value = row[field] = value.get("path")
        if not isinstance(value, str) or not value.strip():
            raise error(f"{field!r} is {value!r}.", fix=f"Write {meaning} as a string.", field=field)
        fields.append(field)
    audio = audio_folder / row[fields[0]]
    if not audio.suffix and os.path.isfile(f"{audio}.mp3"):  # noqa: PTH113  # old tables of Common Voice
        audio = Path(f"{audio}.mp3")
    if not os.path.isfile(audio):  # noqa: PTH113 (Path.is_file raises for names that are too long or not text)
        fix = f"Correct the path (relative ones start at {audio_folder}), or remove the line."
        if "shard_id" in row or "://" in row[fields[0]]:
            fix = "Audio in tar archives or elsewhere is not read: unpack or download it, and write its path."
        raise error(f"There is no file {audio}.", fix=fix, field=fields[0])
    numbers = {}
    for key in NUMBERS:
        value = row.get(key)
        if value is None:
            continue
        lowest = 0 if key == "offset" else 1e-9
        if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value < LARGEST:
            raise error(f"{key!r} is {value!r}.", fix="Give a positive number (seconds, Hz) or omit it.", field=key)
        numbers[key] = value
    split = row.get("split")
    if split is not None and (not isinstance(split, str) or split not in SPLIT_OF):
        raise error(f"The split {split!r} is unknown.", fix=f"Use one of {', '.join(SPLITS)}.", field="split")
    if split is None and fields[0] == "file_name":  # the folders of an audio folder are its splits
        split = Path(row["file_name"]).parts[0]
    speaker = next((row[name] for name in SPEAKER_FIELDS if row.get(name) is not None), "")
    accent = next((row[name] for name in ACCENT_FIELDS if row.get(name)), "")
    return Utterance(
        (Segment(audio, float(numbers.get("offset", 0)), numbers.get("duration")),),
        row[fields[1]],
        str(speaker),
        None if split is None else SPLIT_OF.get(split),
        listing,
        line,
        *fields,
        sample_rate_hz=numbers.get("sample_rate"),
        accent=str(accent),
    )


def is_listing(path: Path) -> bool:
    """Whether the first line of a file is one of a manifest."""
    try:
        _, first = next(read_lines(path), (0, ""))
        sign = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
        names = next(csv.reader([first], delimiter=sign), []) if sign else json.loads(first)
    except (OSError, ValueError, RecursionError, csv.Error):
        return False
    known = {name.strip() for name in names if isinstance(name, str)} if isinstance(names, list | dict) else set()
    return not known.isdisjoint(AUDIO_FIELDS) and not known.isdisjoint(TEXT_FIELDS)


def read_lj_speech(path: Path) -> Iterator[tuple[int, dict]] | None:
    """The rows of a metadata.csv as of LJSpeech, name|text|text in words, with audio in `wavs/`; None if it is not one.

    The numbers of the last column are written in words.
    """
    if not (path.parent / "wavs").is_dir() or "|" not in next(read_lines(path), (0, ""))[1] or is_listing(path):
        return None
    rows = ((line, text.rstrip("\n").split("|")) for line, text in read_lines(path))
    return ((line, {"audio": f"wavs/{row[0]}.wav", "text": row[-1] if row[1:] else None}) for line, row in rows)


def read_table(path: Path, *, is_quoted: bool) -> Iterator[tuple[int, dict | DataError]]:
    """The rows of a table with names of fields in its first line; those that are not understood as errors.

    A quoted field ends on its line, so that an odd quotation mark costs its row and not the rows up to the next one.

    Raises:
        DataError: a needed column is there twice.
    """
    header: list[str] = []
    for line, text in read_lines(path):
        values = text.rstrip("\r\n").split("\t")  # Common Voice quotes nothing
        if is_quoted:
            try:
                values = next(csv.reader([text.rstrip("\r\n")], strict=True))
            except csv.Error:
                fix = "Double quotation marks inside a quoted field, and end it on its line."
                yield line, DataError("A quotation mark is odd here.", fix=fix, file=path, line=line)
                continue
        if not header:
            header = [name.strip() for name in values]
            if twice := next((name for name in header if name in KNOWN_FIELDS and header.count(name) > 1), None):
                what = f"Two columns are named {twice!r}."
                raise DataError(what, fix="Rename or remove one.", file=path, line=line, field=twice)
            if lacking := next((names for names in (AUDIO_FIELDS, TEXT_FIELDS) if {*names}.isdisjoint(header)), None):
                what = f"The first line is {text.strip()[:200]!r}, and names none of {', '.join(lacking)}."
                fix = "Name the columns so; commas separate them in .csv, and tabs in .tsv."
                raise DataError(what, fix=fix, file=path, line=line, field=lacking[0])
        elif len(values) > len(header):
            what = f"This row has {len(values)} fields, but the first line names {len(header)}."
            yield line, DataError(what, fix="Quote texts that have commas.", file=path, line=line)
        else:
            row = dict(zip(header, values, strict=False))
            yield line, row | {name: _value(row[name]) for name in (*NUMBERS, "split") if name in row}


def _value(text: str) -> float | str | None:
    """The number that a field has, its text if that is none, or None if it is empty."""
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text
