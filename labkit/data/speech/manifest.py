"""JSONL manifests: one JSON object an utterance, as NeMo and others write them.

    {"audio_filepath": "audio/a.opus", "offset": 0.35, "duration": 1.94, "text": "stop all jobs",
     "speaker": "anna", "split": "train", "sample_rate": 16000}

Audio (`audio_filepath`, `audio` or `path`, relative to the manifest) and transcript (`text`, `sentence` or
`transcript`) are needed, the rest is optional.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from labkit.data.bad_rows import BadRows
from labkit.data.speech.utterance import Segment, Source, Utterance, is_file, open_listing
from labkit.data.store import shipped_datasets
from labkit.errors import DataError

AUDIO_FIELDS = ("audio_filepath", "audio", "path")
TEXT_FIELDS = ("text", "sentence", "transcript")
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
LARGEST = 1e9
"""Seconds or Hz; no audio is longer."""
SHIPPED = "shipped"
"""The name of the corpus that comes with labkit: `datasets/speech/`, spoken by espeak-ng."""


def read_shipped(bad: BadRows) -> Source:
    """The utterances of the shipped corpus."""
    return replace(read_manifest(shipped_datasets() / "speech" / "manifest.jsonl", bad), name=SHIPPED)


def read_manifest(path: Path, bad: BadRows) -> Source:
    """The utterances of a manifest.

    Raises:
        DataError: a line cannot be used and `bad` says to stop, or there is none.
    """
    utterances, found = [], {}
    with open_listing(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                utterances.append(_utterance(path, number, line, found))
            except DataError as error:
                bad.add(error)
    if not utterances:
        raise DataError(
            "The manifest has no usable utterance.",
            fix='Give one JSON object a line, such as {"audio_filepath": "a.wav", "text": "stop all jobs"}.',
            file=path,
        )
    name = path.parent.name if path.stem == "manifest" else path.stem
    return Source(name, utterances, path.parent, listings=(path,))


def _utterance(path: Path, number: int, line: str, found: dict[Path, bool]) -> Utterance:
    def error(what: str, fix: str, field: str | None = None) -> DataError:
        return DataError(what, fix=fix, file=path, line=number, field=field)

    try:
        row = json.loads(line, parse_int=_number)
    except (json.JSONDecodeError, RecursionError) as problem:
        raise error(
            f"This is not JSON ({getattr(problem, 'msg', problem)}).", "Write one JSON object a line."
        ) from None
    if not isinstance(row, dict):
        raise error("This is JSON, but not an object.", "Write one JSON object a line.")
    audio_field = next((key for key in AUDIO_FIELDS if key in row), None)
    text_field = next((key for key in TEXT_FIELDS if key in row), None)
    for field, names in ((audio_field, AUDIO_FIELDS), (text_field, TEXT_FIELDS)):
        if field is None:
            raise error(f"None of {', '.join(names)} is there.", f"Add {names[0]!r}.", names[0])
        if not isinstance(row[field], str):
            raise error(f"{field!r} is {row[field]!r}, not a text.", "Write it as a JSON string.", field)
        if not row[field].strip():
            what = "the words that are spoken" if field == text_field else "the path of the audio"
            raise error(f"{field!r} is empty.", f"Write {what}.", field)
    audio = path.parent / row[audio_field]
    if audio not in found:
        found[audio] = is_file(audio)
    if not found[audio]:
        raise error(
            f"There is no file {audio}.", "Correct the path (relative ones start at the manifest).", audio_field
        )
    numbers = {}
    for key in ("offset", "duration", "sample_rate"):
        value = row.get(key)
        if value is None:
            continue
        lowest = 0 if key == "offset" else 1e-9
        if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value < LARGEST:
            raise error(f"{key!r} is {value!r}.", "Give a positive number (seconds, Hz) or leave it out.", key)
        numbers[key] = value
    split = row.get("split")
    if split is not None and (not isinstance(split, str) or split not in SPLIT_NAMES):
        raise error(f"The split {split!r} is unknown.", f"Use one of {', '.join(SPLIT_NAMES)}.", "split")
    return Utterance(
        (Segment(audio, float(numbers.get("offset", 0)), numbers.get("duration")),),
        text=row[text_field],
        speaker=str(row.get("speaker", "")),
        split=SPLIT_NAMES.get(split),
        listed_in=path,
        line=number,
        audio_field=audio_field,
        text_field=text_field,
        sample_rate_hz=numbers.get("sample_rate"),
    )


def _number(digits: str) -> int | float:
    """A whole number; Python reads no int of thousands of digits, and no file has use for one of more than 18."""
    return int(digits) if len(digits) <= 18 else float(digits)
