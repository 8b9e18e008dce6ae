"""The layouts of public corpora: LibriSpeech, Common Voice, and the Free Spoken Digit Dataset as connected digits."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from labkit.data.bad_rows import BadRows
from labkit.data.speech.utterance import Segment, Source, Utterance, is_file, open_listing
from labkit.errors import DataError

SUBSETS = {"train": "train", "dev": "validation", "test": "test"}
"""How the names of LibriSpeech's subsets begin, and the split each is."""
TABLES = {"train.tsv": "train", "dev.tsv": "validation", "test.tsv": "test"}
WHOLE = "validated.tsv"
"""Every checked clip of Common Voice; read where none of the splits is there."""
COLUMNS = ("client_id", "path", "sentence")
RECORDING = re.compile(r"(\d)_(\w+)_(\d+)\.wav")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FIRST_INDEX = {"test": 0, "validation": 5, "train": 8}
"""The lowest index of each split; the next one starts the next split."""
DEALS = {"train": 12, "validation": 7, "test": 5}
"""How often each recording is used: with 4 speakers about 5,800 utterances to train, 260 to validate, 290 to
test."""
MAX_DIGITS = 6
SILENCE_S = (0.03, 0.15)
"""Between two digits, and after the last."""


def is_librispeech(folder: Path) -> bool:
    """Whether a folder holds subsets (`dev-clean`), or is one: `SPEAKER/CHAPTER/*.flac` with `*.trans.txt` beside."""
    return any(folder.glob("*/*/*.trans.txt")) or any(folder.glob("*/*/*/*.trans.txt"))


def read_librispeech(folder: Path, bad: BadRows) -> Source:
    """The utterances of a LibriSpeech tree, of all its subsets or of one."""
    listings = sorted(folder.glob("*/*/*.trans.txt")) or sorted(folder.glob("*/*/*/*.trans.txt"))
    utterances = []
    for listing in listings:
        speaker = listing.parent.parent
        split = SUBSETS.get(speaker.resolve().parent.name.partition("-")[0])
        with open_listing(listing) as lines:
            for number, line in enumerate(lines, 1):
                name, _, text = line.strip().partition(" ")
                audio = listing.parent / f"{name}.flac"
                if is_file(audio):
                    said = Utterance((Segment(audio),), text, speaker.name, split, listing, number, text_field="text")
                    utterances.append(said)
                    continue
                what = f"The transcript is of {audio.name}, which is not beside it."
                bad.add(DataError(what, fix="Unpack the archive again, or remove the line.", file=listing, line=number))
    return Source(folder.resolve().name, utterances, folder, listings=tuple(listings))


def is_common_voice(folder: Path) -> bool:
    """Whether a folder has `clips/` and a table of them."""
    return (folder / "clips").is_dir() and any((folder / name).is_file() for name in (*TABLES, WHOLE))


def read_common_voice(folder: Path, bad: BadRows) -> Source:
    """The utterances of a Common Voice folder of one language."""
    tables = {folder / name: split for name, split in TABLES.items() if (folder / name).is_file()}
    tables = tables or {folder / WHOLE: None}
    utterances = []
    for table, split in tables.items():
        utterances += _read_table(table, split, folder / "clips", bad)
    return Source(folder.resolve().name, utterances, folder, listings=tuple(tables), has_punctuation=True)


def _read_table(table: Path, split: str | None, clips: Path, bad: BadRows) -> list[Utterance]:
    def error(line: int, what: str, fix: str, field: str | None = None) -> DataError:
        return DataError(what, fix=fix, file=table, line=line, field=field)

    utterances = []
    with open_listing(table) as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)  # nothing is quoted
        names = next(rows, [])
        for column in COLUMNS:
            if column not in names:
                fix = f"Common Voice's tables have {', '.join(COLUMNS)}; download the table again."
                raise error(1, f"The column {column!r} is missing.", fix, column)
        for number, values in enumerate(rows, 2):
            row = dict(zip(names, values, strict=False))
            clip = clips / row["path"] if row.get("path") else None
            if values == [""]:
                continue
            if any(not row.get(column) for column in COLUMNS):
                bad.add(error(number, "The row has too few fields.", "Complete or remove it."))
            elif not is_file(clip):
                fix = "Unpack the clips again, or remove the row."
                bad.add(error(number, f"There is no file {clip}.", fix, "path"))
            else:
                where = (split, table, number, "path", "sentence")
                utterances.append(Utterance((Segment(clip),), row["sentence"], row["client_id"], *where))
    return utterances


def is_fsdd(folder: Path) -> bool:
    """Whether a folder holds recordings named as FSDD's."""
    return any(RECORDING.fullmatch(path.name) for path in folder.glob("[0-9]_*_*.wav"))


def read_fsdd(folder: Path, seed: int) -> Source:
    """Connected digits from a folder of recordings, `{digit}_{speaker}_{index}.wav`.

    Indices 0 to 4 are the official test split; here 5 to 7 validate and the rest train. Each split deals every
    speaker's recordings into utterances of 1 to 6 digits with short silences, several times over, so that each
    recording is heard equally often in ever new company.
    """
    recordings: dict[tuple[str, str], list[tuple[Path, str]]] = {}
    for path in sorted(folder.glob("*.wav")):
        name = RECORDING.fullmatch(path.name)
        if name:
            digit, speaker, index = name.groups()
            split = max((s for s, low in FIRST_INDEX.items() if int(index) >= low), key=FIRST_INDEX.get)
            recordings.setdefault((split, speaker), []).append((path, DIGITS[int(digit)]))
    for split in FIRST_INDEX:
        if not any(key[0] == split for key in recordings):
            raise DataError(
                f"There is no recording of the {split} split (test: index 0 to 4, validation: 5 to 7, train: from 8).",
                fix="Copy the whole folder `recordings` of the dataset.",
                file=folder,
            )
    utterances = []
    for number, ((split, speaker), of_speaker) in enumerate(sorted(recordings.items())):
        rng = np.random.default_rng((seed, number))
        for _ in range(DEALS[split]):
            utterances += _deal(of_speaker, split, speaker, rng)
    return Source("fsdd", utterances, folder)


def _deal(recordings: list[tuple[Path, str]], split: str, speaker: str, rng: np.random.Generator) -> list[Utterance]:
    """Utterances that use every recording once."""
    order = rng.permutation(len(recordings))
    utterances, start = [], 0
    while start < len(order):
        chosen = [recordings[index] for index in order[start : start + rng.integers(1, MAX_DIGITS + 1)]]
        start += len(chosen)
        silences_s = rng.uniform(*SILENCE_S, len(chosen))
        segments = tuple(
            Segment(path, silence_s=float(silence_s)) for (path, _), silence_s in zip(chosen, silences_s, strict=True)
        )
        utterances.append(Utterance(segments, " ".join(word for _, word in chosen), speaker, split))
    return utterances
