"""The layouts of public corpora, LibriSpeech and Common Voice."""

from __future__ import annotations

from pathlib import Path

from labkit.data.bad_rows import BadRows
from labkit.data.speech.utterance import Segment, Source, Utterance, is_file, open_listing
from labkit.errors import DataError

SUBSETS = {"train": "train", "dev": "validation", "test": "test"}
"""How the names of LibriSpeech's subsets begin, and the split each is."""
TABLES = {"train.tsv": "train", "dev.tsv": "validation", "test.tsv": "test"}
WHOLE = "validated.tsv"
"""Every checked clip of Common Voice; read where none of the splits is there."""
COLUMNS = ("client_id", "path", "sentence")


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
    return Source(folder.resolve().name, utterances, folder, listings=tuple(tables), punctuation="remove")


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
