"""`load_speech`: open a speech set by name or path; it is decoded, checked and written at the first call.

Two threads decode audio and compute features, because libsndfile and torch release Python's lock; this thread writes.
A few minutes of audio are in memory at a time, whatever the size of the source.
"""

import contextlib
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader, Dataset, Subset

from labkit import DataError, UserError, hardware, project
from labkit.data import store
from labkit.data.catalog import unknown
from labkit.data.speech.audio import KINDS, Reader, Voice, decode, features_of, frame_count, is_silent, normalise_file
from labkit.data.speech.prepared import (
    FRAMES_PER_S,
    TAGS,
    Alphabet,
    SpeechSet,
    in_lower_case,
    outputs_needed,
    padded,
    tidy,
    transcript,
)
from labkit.data.speech.sources import SPLITS, Source, Utterance, fill_splits, find_source, read_manifest
from labkit.data.store import UNASKED, BadRows, Progress

FORMAT_VERSION = 11
OFTEN = 0.1
"""Share of transcripts with ı or İ from which this is their language, and no foreign name"""

SHIPPED = "shipped"
"""Name of the corpus that comes with labkit: `datasets/speech/`, spoken by espeak-ng"""
GROUP = 64
"""Utterances that are processed together"""
WORKERS = 2
AT_ONCE = 8
"""Groups that are processed before they are written"""
LAYOUTS = (
    "a .jsonl manifest, a folder with one or with one for each split, an audio folder with metadata.csv, FSDD's "
    "recordings, a LibriSpeech tree, or a Common Voice folder with clips and tables"
)
OTHER_LAYOUTS = {
    "wav.scp": "Kaldi's data folders are not read: write a line of a manifest for each line of wav.scp and text",
    "**/*.parquet": "Parquet files are not read: write their audio into files, and the rest into a metadata.csv there",
    "**/*.arrow": "Arrow files are not read: write their audio into files, and the rest into a metadata.csv there",
    "**/*.[tT][xX][tT]": "transcripts in .txt files are not read: write a line of a manifest for each utterance",
    "**/*.tar": "tar files are not read: unpack them",
    "*.json*.gz": "compressed manifests are not read: gunzip them",
}
"""Layouts of others that are not read, by a file that they have, and what to do"""


def load_speech(
    data: str = SHIPPED,
    *,
    cache_dir: Path | None = None,
    on_bad_row: str = UNASKED["speech"],
    progress: Progress | None = None,
    seed: int = 0,
    features: str = "log-mel",
) -> SpeechSet:
    """Open a speech set. It is prepared first if that has not been done yet, or if its source has changed.

    Args:
        data: "shipped" (the corpus that comes with labkit), or the path of a manifest or of a folder:
            FSDD's recordings (joined into connected digits), a LibriSpeech tree, a Common Voice language, an audio
            folder.
        cache_dir: the folder of prepared data; default `labkit.data.prepared_root()`.
        on_bad_row: one of `labkit.data.POLICIES`; skipped utterances are listed in `info["skipped"]`.
        progress: called with the fraction done and a short text.
        seed: of splits by speaker if the source has none, and of FSDD's connected digits.
        features: one of `labkit.data.speech.KINDS`.

    Raises:
        DataError: the data cannot be used; file, line and field say where.
        UserError: the name or layout is unknown, or the disk is full.
    """
    if features not in KINDS:
        raise UserError(f"features are {features!r}: choose one of {', '.join(KINDS)}.", field="features")
    root = store.prepared_root() if cache_dir is None else Path(cache_dir)
    bad = BadRows(on_bad_row)
    source = read_source(data, bad, seed)
    settings = {"on_bad_row": on_bad_row, "seed": seed, "features": features}
    folder = root / "speech" / f"{source.name}-{cache_key(source, **settings)}"

    def build(new: Path) -> dict:
        meta = prepare_speech(new, source, features, seed, bad, progress or (lambda fraction, text: None))
        return meta | {"fingerprint": fingerprint(source, **settings)}

    return SpeechSet(store.prepare_once(folder, build))


def cache_key(source: Source, **settings: str | int) -> str:
    """What a prepared dataset is found by: its place, times and sizes, and the settings that `fingerprint` takes."""
    return store.fingerprint(
        format=FORMAT_VERSION,
        name=source.name,
        folder=str(source.folder.resolve()),
        listings=[store.file_fingerprint(path) for path in source.listings],
        files=store.tree_fingerprint(source.folder, source.files),
        **settings,
    )


def fingerprint(source: Source, **settings: str | int) -> str:
    """The fingerprint of a dataset and of the settings it is prepared with: `on_bad_row`, `seed` and `features`."""
    return store.content_fingerprint(source.folder, source.files, format=FORMAT_VERSION, **settings)


def read_source(data: str, bad: BadRows, seed: int) -> Source:
    """The utterances of a dataset, whose layout is recognised."""
    if data == SHIPPED:
        return replace(read_manifest(project.shipped_datasets() / "speech" / "manifest.jsonl", bad), name=SHIPPED)
    path = Path(data).expanduser()
    if not path.exists():
        raise unknown(data, "speech")
    if found := find_source(path, bad, seed):
        return with_dotless_i(found)
    about = (words for name, words in OTHER_LAYOUTS.items() if path.is_dir() and any(path.glob(name)))
    seen = "".join(f" Of what is there, {words}." for words in dict.fromkeys(about))
    raise UserError(
        f"{path} has no speech in a known layout ({LAYOUTS}): write a manifest with one JSON object per line, such as "
        '{"audio_filepath": "a.wav", "text": "stop all jobs", "speaker": "anna"}, and pass its path.' + seen
    )


def with_dotless_i(source: Source) -> Source:
    """The source with ı for I, if its language has both i (İ) and ı (I), as Turkish has."""
    texts = [unicodedata.normalize("NFC", each.text) for each in source.utterances]
    if sum("ı" in text or "İ" in text for text in texts) <= OFTEN * len(texts):
        return source
    pairs = zip(source.utterances, texts, strict=True)
    return replace(source, utterances=[replace(each, text=text.replace("I", "ı")) for each, text in pairs])


def prepare_speech(folder: Path, source: Source, kind: str, seed: int, bad: BadRows, progress: Progress) -> dict:
    """Write features of this kind into an empty folder and return the content of its `meta.json`."""
    bad.expect(len(source.utterances) + bad.count)
    readable, alphabet = _readable(source, bad)
    utterances = sorted(fill_splits(readable, seed), key=lambda each: SPLITS.index(each.split))
    written: list[Utterance] = []
    frames: list[int] = []
    with (folder / "features.f16").open("wb") as file:
        for done, (utterance, features) in enumerate(_features(utterances, kind), 1):
            if done % GROUP == 0 or done == len(utterances):
                progress(done / len(utterances), f"{source.name}: features of {done:,} utterances")
            if isinstance(features, DataError):
                bad.add(features)
                continue
            file.write(features.astype(np.float16, order="C").data)
            written.append(utterance)
            frames.append(len(features))
    splits, hours = {}, {}
    for split in SPLITS:
        own = [(each, count) for each, count in zip(written, frames, strict=True) if each.split == split]
        if not own:
            fix = "Add some, or correct those that were skipped."
            raise source.error(f"The {split} split has no usable utterance.", fix)
        texts, speakers = [each.text for each, _ in own], [each.speaker for each, _ in own]
        splits[split] = {"frames": [count for _, count in own], "texts": texts, "speakers": speakers}
        hours[split] = sum(splits[split]["frames"]) / FRAMES_PER_S / 3600
    # utterances of one speaker are normalised together, one of an unknown speaker alone
    keys = [(each.split, each.speaker or str(index), bool(each.speaker)) for index, each in enumerate(written)]
    normalise_file(folder / "features.f16", keys, frames, kind)
    divided = {each.split for each in readable} != {*SPLITS}
    unused = unused_of(source)
    seen = ", ".join(f"{what} ({count:,})" for what, count in unused.items())
    return {
        "name": source.name,
        "bins": KINDS[kind],
        "alphabet": alphabet.characters,
        "splits": splits,
        "info": {
            "hours": hours,
            "skipped": bad.info(),
            "unused": unused,
            "divided": divided,
            "notices": [f"seen and not used: {seen}."] if unused else [],
        },
    }


def unused_of(source: Source) -> dict[str, int]:
    """What a source has and training does not use, with counts."""
    texts = [in_lower_case(each.text) for each in source.utterances]
    tags = sum(bool(TAGS.search(text)) for text in texts)
    marks = sum(tidy(text).split() != TAGS.sub(" ", text).split() for text in texts)
    counts = source.unused | {"transcripts' tags in brackets": tags, "transcripts' punctuation": marks}
    return {what: count for what, count in counts.items() if count}


def usable_utterances(source: Source, bad: BadRows) -> list[Utterance]:
    """The utterances whose transcripts fit the alphabet, in its characters, with the splits of training."""
    return fill_splits(_readable(source, bad)[0], seed=0)


def _readable(source: Source, bad: BadRows) -> tuple[list[Utterance], Alphabet]:
    """The utterances whose transcripts fit their alphabet, in its characters."""
    alphabet, readable = Alphabet.of([tidy(each.text) for each in source.utterances]), []
    for utterance in source.utterances:
        try:
            readable.append(replace(utterance, text=transcript(utterance, alphabet)))
        except DataError as error:
            bad.add(error)
    if not readable:
        fix = f"The first bad one: {bad.first[0]['reason']}" if bad.first else "Add some."
        raise source.error("There is no usable utterance.", fix)
    return readable, alphabet


def _features(utterances: list[Utterance], kind: str) -> Iterator[tuple[Utterance, np.ndarray | DataError]]:
    """Each utterance, in order, with its features float32 (T, F) or the reason why it has none."""
    groups = [utterances[start : start + GROUP] for start in range(0, len(utterances), GROUP)]
    # one thread of torch per worker, because more took five times as long
    with hardware.one_thread(), ThreadPoolExecutor(WORKERS) as pool:
        for start in range(0, len(groups), AT_ONCE):
            for group in pool.map(partial(_work, kind), groups[start : start + AT_ONCE]):
                yield from group


def _work(kind: str, utterances: list[Utterance]) -> list[tuple[Utterance, np.ndarray | DataError]]:
    """Decode and check a group, and compute the features of its good utterances."""
    found: list[np.ndarray | DataError] = []
    with contextlib.closing(Reader()) as file:
        for utterance in utterances:
            try:
                found.append(wave_of(utterance, file))
            except DataError as error:
                found.append(error)
    features = iter(features_of([wave for wave in found if not isinstance(wave, DataError)], kind))
    results = [each if isinstance(each, DataError) else next(features) for each in found]
    return list(zip(utterances, results, strict=True))


def wave_of(utterance: Utterance, file: Reader | None = None) -> np.ndarray:
    """The wave float32 (n,) at 16 kHz of an utterance, decoded (see `decode`) and checked (see `refuse_mismatch`)."""
    wave, is_cut_off = decode(utterance, file)
    refuse_mismatch(utterance, wave, is_cut_off)
    return wave


def refuse_mismatch(utterance: Utterance, wave: np.ndarray, is_cut_off: bool) -> None:
    """Check that a transcript, in the alphabet's characters, can be that of its wave float32 (n,) at 16 kHz.

    Raises:
        DataError: the file is truncated or silent, or the text is longer than CTC can write (Graves et al., 2006,
            section 3).
    """
    fix = "Check that audio and transcript belong together, and check offset and duration."
    if is_cut_off:
        what = f"{utterance.segments[0].audio.name} is truncated, so {utterance.text[:60]!r} may be longer than it."
        raise utterance.error(what, "Copy or download it again.", utterance.audio_field)
    if is_silent(wave):
        what = f"{utterance.segments[0].audio.name} is silent, but the transcript is {utterance.text[:60]!r}."
        raise utterance.error(what, fix, utterance.audio_field)
    frames, needed = frame_count(len(wave)), outputs_needed(utterance.text)
    if needed > frames:
        what = (
            f"The transcript {utterance.text[:60]!r} needs {needed} CTC outputs (its characters, and a blank "
            f"between equal neighbours), but {frames / FRAMES_PER_S:.2f} s of audio give at most {frames}."
        )
        raise utterance.error(what, fix, utterance.text_field)


class WaveformUtterances(Dataset):
    """A split of a speech set with its audio in memory; features are computed at each access.

    Utterances that cannot be used are skipped.
    """

    def __init__(self, data: str, split: str, *, kind: str = "log-mel"):
        """Read the audio of `data`, a name or path as for `load_speech`."""
        bad, self.kind = BadRows("skip"), kind
        found, self.alphabet = _readable(read_source(data, bad, seed=0), bad)
        self.texts: list[str] = []
        self.waves: list[np.ndarray] = []
        for each in fill_splits(found, seed=0):
            if each.split == split:
                with contextlib.suppress(DataError):
                    self.waves.append(wave_of(each))
                    self.texts.append(each.text)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, str]:
        """Features (T, F), normalised over the utterance, the ids of its characters (S,), and its text."""
        voice = Voice(self.kind)
        (features,) = features_of([self.waves[index]], self.kind)
        voice.listen(features)
        return voice.normalised(features), self.alphabet.encode(self.texts[index]), self.texts[index]


def textbook_loader(
    data: str, split: str, batch_size: int, *, shuffle: bool, kind: str = "log-mel", kept: np.ndarray | None = None
) -> DataLoader:
    """A data loader of `WaveformUtterances`, or only of those at the indices `kept` of the prepared split."""
    utterances = WaveformUtterances(data, split, kind=kind)
    chosen = utterances if kept is None else Subset(utterances, kept.tolist())
    return DataLoader(chosen, batch_size=batch_size, shuffle=shuffle, collate_fn=padded)
