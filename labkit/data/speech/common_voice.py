"""Common Voice's layout: `clips/*.mp3`, and `train.tsv`, `dev.tsv`, `test.tsv` that say what is said."""

from __future__ import annotations

from pathlib import Path

from labkit.data.bad_rows import BadRows
from labkit.data.speech.utterance import Segment, Source, Utterance, is_file, open_listing
from labkit.errors import DataError

TABLES = {"train.tsv": "train", "dev.tsv": "validation", "test.tsv": "test"}
WHOLE = "validated.tsv"
"""Every checked clip; read where none of the splits is there."""
COLUMNS = ("client_id", "path", "sentence")


def is_common_voice(folder: Path) -> bool:
    """Whether a folder has clips and a table of them."""
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
    utterances = []
    with open_listing(table) as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)  # nothing is quoted
        names = next(rows, [])
        for column in COLUMNS:
            if column not in names:
                raise DataError(
                    f"The column {column!r} is missing.",
                    fix=f"Common Voice's tables have {', '.join(COLUMNS)}; download the table again.",
                    file=table,
                    line=1,
                    field=column,
                )
        for number, values in enumerate(rows, 2):
            row = dict(zip(names, values, strict=False))
            if values == [""]:
                continue
            if any(not row.get(column) for column in COLUMNS):
                bad.add(_error(table, number, "The row has too few fields.", "Complete or remove it.", None))
            elif not is_file(clips / row["path"]):
                what = f"There is no file {clips / row['path']}."
                bad.add(_error(table, number, what, "Unpack the clips again, or remove the row.", "path"))
            else:
                segments = (Segment(clips / row["path"]),)
                utterances.append(
                    Utterance(segments, row["sentence"], row["client_id"], split, table, number, "path", "sentence")
                )
    return utterances


def _error(table: Path, line: int, what: str, fix: str, field: str | None) -> DataError:
    return DataError(what, fix=fix, file=table, line=line, field=field)
