"""Speech datasets as found: the layouts in which their utterances are listed, and their splits.

These are manifests as of NeMo and audio folders as of Hugging Face (`labkit.data.speech.listings`), LibriSpeech, Common
Voice, LJSpeech, and spoken digits, which are joined.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from labkit import DataError
from labkit.data.speech.listings import (
    SPLIT_OF,
    SPLITS,
    Segment,
    Utterance,
    is_listing,
    read_lines,
    read_lj_speech,
    read_table,
    utterances_of,
)
from labkit.data.store import BadRows

HELD_OUT = 0.1
"""Share of the speakers (or of the utterances, if there are few speakers) that a missing split gets"""
SUFFIXES = {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".w64", ".caf"}
"""Suffixes of audio files in a folder; a file given by name is tried whatever its suffix"""
OTHER_SUFFIXES = {".m4a", ".mp4", ".3gp", ".aac", ".amr", ".wma", ".webm", ".mka"}
"""Suffixes of audio that libsndfile does not read: such a file is refused by name"""
TABLES = ("train.tsv", "dev.tsv", "test.tsv")
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
class Source:
    """A speech dataset as found: its utterances and files."""

    name: str
    utterances: list[Utterance]
    folder: Path
    """Folder that paths are relative to"""
    listings: tuple[Path, ...] = ()
    """Files with the transcripts"""
    unused: dict[str, int] = field(default_factory=dict)
    """What else it has, and was not used, with counts"""

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
    if manifests := _manifests(folder, is_training=seed is not None):
        if len(manifests) == 1:
            return read_manifest(manifests[0], bad)
        utterances = []
        for path in manifests:
            found = read_manifest(path, bad).utterances
            utterances += [replace(each, split=each.split or _split_in(path)) for each in found]
        return Source(folder.resolve().name, utterances, folder, listings=tuple(manifests))
    digits = None if seed is None else read_fsdd(folder, seed)
    return digits or read_common_voice(folder, bad) or read_librispeech(folder, bad)


def _manifests(folder: Path, *, is_training: bool) -> list[Path]:
    """The manifests of a folder: of an audio folder its metadata, else those whose names have splits, or the only one.

    A lone .jsonl of another kind is taken for a manifest with errors in training, and ignored elsewhere.
    """
    for place in ("", *(f"{split}/" for split in SPLIT_OF)):
        metadata = [*folder.glob(f"{place}metadata.jsonl"), *folder.glob(f"{place}metadata.csv")][:1]
        if metadata and (is_training or is_listing(metadata[0]) or (folder / "wavs").is_dir()):
            inner = (folder / split / metadata[0].name for split in SPLIT_OF)
            return [path for path in inner if path.is_file()] if place else metadata
    lines = sorted(folder.glob("*.jsonl"))
    is_common_voice = (folder / "clips").is_dir() or (folder / "audios").is_dir()
    kinds = ("*.json", "*.csv", "*.tsv")[: 2 if is_common_voice else 3]
    tables = [path for kind in kinds for path in sorted(folder.glob(kind))]
    found = [path for path in lines + tables if is_listing(path)]
    of_splits = [path for path in found if _split_in(path)]
    if len(of_splits) > 1:
        return of_splits
    return found if len(found) == 1 else lines if is_training and len(lines) == 1 else []


def _split_in(path: Path) -> str | None:
    """The split in a name such as train_manifest.json, or in that of its folder if it is metadata."""
    name = path.parent.name if path.stem == "metadata" else path.stem
    return next((SPLIT_OF[word] for word in reversed(re.findall("[a-z]+", name.lower())) if word in SPLIT_OF), None)


def read_manifest(path: Path, bad: BadRows) -> Source:
    """The utterances of a manifest."""
    name = path.parent.name if path.stem in ("manifest", "metadata") else path.stem
    lines: Iterable[tuple[int, str | dict | DataError]] = read_lines(path)
    if (suffix := path.suffix.lower()) in (".csv", ".tsv"):
        lines = read_lj_speech(path) or read_table(path, is_quoted=suffix == ".csv")
    unused: Counter[str] = Counter()
    utterances = utterances_of(path, _noting_stretches(lines, unused), path.parent, bad)
    return Source(name, utterances, path.parent, listings=(path,), unused=unused)


def _noting_stretches(rows: Iterable[tuple], unused: Counter[str]) -> Iterator[tuple]:
    """The same rows; fields by which others name a stretch of a file, or of what it was cut from, are counted."""
    for line, row in rows:
        for name in ("start", "end", "start_time", "end_time"):
            is_given = isinstance(row, dict) and row.get(name) is not None
            if is_given or (isinstance(row, str) and f'"{name}":' in row):
                unused[f"{name}; a stretch is offset and duration"] += 1
        yield line, row


def read_librispeech(folder: Path, bad: BadRows) -> Source | None:
    """The utterances of a LibriSpeech tree, or of one of its subsets (`dev-clean`); None if it is not one.

    A subset has `SPEAKER/CHAPTER/*.flac` with `*.trans.txt` next to them.
    """
    for chapters in ("*/*/", "*/*/*/"):
        if listings := sorted(folder.glob(f"{chapters}*.trans.txt")):
            break
    else:
        return None
    utterances = []
    for chapter in sorted({*folder.glob(chapters)} - {listing.parent for listing in listings}):
        if any(chapter.glob("*.flac")):
            bad.add(DataError("The recordings have no *.trans.txt next to them.", fix="Restore it.", file=chapter))
    for listing in listings:
        speaker = listing.parent.parent
        subset = speaker.resolve().parent.name.partition("-")[0]
        known = {"speaker": speaker.name, "split": SPLIT_OF.get(subset)}
        words = ((line, text.strip().partition(" ")) for line, text in read_lines(listing))
        rows = ((line, known | {"audio": f"{name}.flac", "text": text}) for line, (name, _, text) in words)
        utterances += utterances_of(listing, rows, listing.parent, bad)
    return Source(folder.resolve().name, utterances, folder, listings=tuple(listings))


def read_common_voice(folder: Path, bad: BadRows) -> Source | None:
    """The utterances of a Common Voice folder of one language, scripted or spontaneous; None if it is not one.

    Scripted speech has `clips/` and a table for each split, spontaneous speech `audios/` and one table.
    """
    unused: Counter[str] = Counter()
    spontaneous = sorted(folder.glob("ss-corpus-*.tsv"))
    if spontaneous and (folder / "audios").is_dir():
        rows = _transcribed(list(read_table(spontaneous[0], is_quoted=False)), unused)
        utterances = utterances_of(spontaneous[0], rows, folder / "audios", bad)
        return Source(folder.resolve().name, utterances, folder, listings=(spontaneous[0],), unused=unused)
    tables = [folder / name for name in TABLES if (folder / name).is_file()] or [folder / WHOLE]
    if not (folder / "clips").is_dir() or not tables[0].is_file():
        return None
    utterances = []
    for table in tables:
        known = {"split": SPLIT_OF.get(table.stem)}
        rows = ((n, row | known if isinstance(row, dict) else row) for n, row in read_table(table, is_quoted=False))
        utterances += utterances_of(table, rows, folder / "clips", bad)
    for name in sorted({"other.tsv", "invalidated.tsv", WHOLE} - {table.name for table in tables}):
        if (folder / name).is_file():
            unused[f"rows of {name}"] = sum(1 for _ in read_lines(folder / name)) - 1
    return Source(folder.resolve().name, utterances, folder, listings=tuple(tables), unused=unused)


def _transcribed(rows: list[tuple[int, dict | DataError]], unused: Counter[str]) -> Iterator[tuple]:
    """The rows of a table of spontaneous speech that are transcribed and of a split; the others are counted.

    Rows of no split are used if no row has one: small languages are not divided.
    """
    is_divided = any(isinstance(row, dict) and row.get("split") in SPLIT_OF for _, row in rows)
    for line, row in rows:
        if isinstance(row, dict):
            row["split"] = SPLIT_OF.get(row.get("split"))
            if not (row.get("transcription") or "").strip():
                unused["rows without a transcription"] += 1
                continue
            if is_divided and row["split"] is None:
                unused["rows of no split"] += 1
                continue
        yield line, row


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
            split = max((s for s, low in FIRST_INDEX.items() if int(index) >= low), key=FIRST_INDEX.__getitem__)
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
