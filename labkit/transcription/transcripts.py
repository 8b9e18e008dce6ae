"""From paths to texts: recordings in files, folders of any size and listings with transcripts, heard lot by lot.

What cannot be used is reported, and the rest goes on.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from labkit import DataError, UserError, errors, runs
from labkit.data import BadRows, speech
from labkit.transcription.decoding import Decoder
from labkit.transcription.recogniser import Heard, Recogniser

MANIFESTS = {".jsonl", ".json", ".csv", ".tsv"}
AUDIO = speech.SUFFIXES | speech.OTHER_SUFFIXES
SORTED = 4096
"""Number of a folder's names that are read and sorted together"""
LOT = 64
"""Largest number of recordings that are decoded before they are heard"""
LOT_S = 300.0
"""Seconds of audio that complete a lot"""
DECODERS = 2
"""Threads that decode: an Opus file takes longer to decode than to hear"""

Decoded = tuple["Recording", np.ndarray, bool]
"""A recording, its wave float32 (n,) at 16 kHz, and whether the end of its file is missing"""


@dataclass(frozen=True)
class Recording:
    """Something to transcribe."""

    name: str
    """Path for display, with the offset of a stretch of a file"""
    utterance: speech.Utterance
    """The utterance; its text is empty without a transcript"""
    voice: str
    """Speaker: consecutive recordings with the same `voice` belong together"""


def find_recordings(
    paths: Iterable[Path], split: str | None = None, record: "runs.RunRecord | None" = None
) -> Iterator[Recording | UserError]:
    """The recordings below paths, or errors for those that cannot be used; in bounded memory except for listings.

    Listings (a manifest, a folder with one, a LibriSpeech tree, a Common Voice folder) name speakers and transcripts.
    Elsewhere all audio in a folder is one speaker's, and a transcript is a .txt file with the audio's name.

    Args:
        split: split of listings to keep; None keeps all.
        record: record of the run that trained the recogniser.
    """
    for path in paths:
        try:
            listing = _listing(path, split)
        except DataError as error:
            yield error
            continue
        except OSError as error:
            yield UserError(f"{path}: this cannot be read ({error.strerror}): get read permission for it.")
            continue
        if listing is not None:
            yield from _listed(*listing, split, record)
        elif split and path.exists():
            yield UserError(f"{path}: only listings and datasets have splits: remove --split {split}.")
        elif path.is_dir():
            yield from _walked(path)
        elif path.exists():
            yield from_file(path)
        else:
            fix = "Correct the path; the recordings that ship with labkit are in the folder datasets/speech."
            yield DataError("There is no such file or folder.", fix=fix, file=path)


def from_file(path: Path, name: str | None = None) -> Recording | UserError:
    """A file of one recording, with the transcript of a .txt file of the same name; an error if that is unreadable."""
    listed_in = path.with_suffix(".txt")
    text = ""
    if listed_in != path and listed_in.is_file():
        try:
            text = listed_in.read_text(encoding="utf-8-sig", errors="surrogateescape")
        except OSError as error:
            return UserError(f"{listed_in}: this cannot be read ({error.strerror}): get read permission for it.")
    else:
        listed_in = None
    utterance = speech.Utterance((speech.Segment(path),), text, path.absolute().parent.name, listed_in=listed_in)
    return Recording(name or str(path), utterance, f"folder {path.parent}")


def _listing(path: Path, split: str | None) -> tuple[speech.Source, BadRows] | None:
    """The listing that a path is or has, or None. Spoken digits are joined only for a split, as in training."""
    bad, inner = BadRows("skip"), []
    if not path.is_dir():
        return (speech.read_manifest(path, bad), bad) if path.suffix.lower() in MANIFESTS and path.is_file() else None
    has_audio = any(_entries(path, inner))
    source = speech.find_source(path, bad, seed=0) if split else speech.read_layout(path, bad)
    # an unpacked archive has one folder; of several folders all are walked, with or without a listing in one
    if source is None and not split and not has_audio and len(inner) == 1:
        return _listing(inner[0], None)
    return None if source is None else (source, bad)


def _listed(
    source: speech.Source, bad: BadRows, split: str | None, record: "runs.RunRecord | None"
) -> Iterator[Recording | UserError]:
    """A listing's recordings by speaker, then its bad lines."""
    utterances = source.utterances
    if split and utterances and split in speech.dealing(utterances)[1]:
        try:
            if record and _has_changed(source, record):
                what = "It has changed since the recogniser's training, so its splits would differ from then."
                fix = "Train again, write a split into each line of a manifest, or remove --split."
                raise source.error(what, fix)
            utterances = speech.usable_utterances(source, bad)
        except DataError as error:
            yield error
            return
    chosen = [each for each in utterances if split in (None, each.split)]
    if not chosen and split:
        yield source.error(f"There is no recording in its {split} split.", "Give another --split, or none.")
    elif not chosen:
        yield source.error("It lists no usable recording.", "Remove it from its folder, or name the audio files.")
    chosen.sort(key=lambda each: (each.split or "", each.speaker))
    for number, each in enumerate(chosen):
        segment, more = each.segments[0], len(each.segments) - 1
        at = f" at {segment.offset_s:g} s" if segment.offset_s else ""
        at += f" and {more} more" if more else ""
        # as in training: a speaker's splits are separate voices, and each line without a speaker is its own
        voice = f"{each.split} {each.speaker}" if each.speaker else f"line {number}"
        yield Recording(f"{segment.audio}{at}", each, voice)
    if bad.count:
        yield UserError(f"Unusable lines of the listing: {bad.count:,}; the first: {bad.error}")


def _has_changed(source: speech.Source, record: "runs.RunRecord") -> bool:
    """Whether a source is the training data of a run, and has changed since."""
    data, train = record.config["data"], record.config["train"]
    places = (path.absolute() for path in (source.folder, *source.listings))
    if not any(place.is_relative_to(data.get("source", data["name"])) for place in places):
        return False
    settings = {"on_bad_row": train["on_bad_row"], "seed": 0, "features": train.get("features", "log-mel")}
    # until 30 November 2026 runs recorded the key of the cache
    return data["fingerprint"] not in (speech.cache_key(source, **settings), speech.fingerprint(source, **settings))


def _walked(folder: Path) -> Iterator[Recording | UserError]:
    """The audio files of a folder and its subfolders, thousands at a time."""
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
            yield UserError(f"{place}: this folder cannot be read ({error.strerror}): get permission, or move it.")
            found = True
        folders += sorted(inner, reverse=True)
    if not found:
        fix = f"Name one with files of {', '.join(sorted(speech.SUFFIXES))}, or a file itself."
        yield DataError("There is no audio in this folder.", fix=fix, file=folder)


def _entries(folder: Path, inner: list[Path]) -> Iterator[str]:
    """Names of a folder's audio files; its subfolders are added to `inner`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(Path(entry.path))
            elif Path(entry.name).suffix.lower() in AUDIO and not entry.name.startswith("."):
                yield entry.name


@dataclass(frozen=True)
class Transcribed:
    """The result for one recording."""

    recording: Recording
    text: str
    heard: Heard
    wave: np.ndarray
    """float32 (n,) at 16 kHz"""
    is_cut_off: bool
    """Whether the end of the file is missing"""

    @property
    def audio_s(self) -> float:
        return len(self.wave) / speech.SAMPLE_RATE_HZ

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs; fields without a value are omitted."""
        utterance = self.recording.utterance
        answer = {"file": self.recording.name, "text": self.text, "audio_s": round(self.audio_s, 3)}
        known = {"transcript": utterance.text, "accent": utterance.accent, "note": self.note}
        if utterance.line is not None:  # of a listing: its recordings' names include the offset
            segment, known["speaker"] = utterance.segments[0], utterance.speaker
            answer |= {"file": str(segment.audio), "offset_s": segment.offset_s}
        return answer | {key: value for key, value in known.items() if value}

    @property
    def note(self) -> str:
        """A note on silence or a file that is cut off; empty otherwise."""
        if speech.is_silent(self.wave):
            return f"too quiet: no sample beyond {speech.SILENT:g} of full scale" if self.wave.any() else "silence"
        return "the file is cut off, this is its beginning" if self.is_cut_off else ""


class Tally:
    """Sums over transcribed recordings: their number, their length, and their character and word error rates in total,
    by speaker and by accent. Its size does not grow with recordings."""

    def __init__(self, alphabet: speech.Alphabet | None = None):
        """`alphabet` is the recogniser's; None is the English one."""
        self.done = self.failed = self.not_compared = 0
        self.audio_s = 0.0
        self._alphabet = alphabet or speech.Alphabet()
        self._counts: dict[tuple[str, str], list[int]] = {}
        """By (group, name): recordings, wrong characters, characters, wrong words, words"""

    def add(self, each: Transcribed) -> None:
        """Count a recording, and compare it with its transcript; a UserError if that is impossible."""
        self.done, self.audio_s, utterance = self.done + 1, self.audio_s + each.audio_s, each.recording.utterance
        if utterance.text.strip() or utterance.listed_in is not None:
            try:
                self.compare(utterance, each.text, each.wave, each.is_cut_off)
            except UserError:
                self.not_compared += 1
                raise

    def compare(self, utterance: speech.Utterance, heard: str, wave: np.ndarray, is_cut_off: bool = False) -> None:
        """Compare the text heard in a wave float32 (n,) with its transcript, in the alphabet's characters.

        Raises:
            DataError: the alphabet cannot write the transcript, or it cannot be what is said in the wave.
        """
        import jiwer  # only recordings with transcripts need it

        said = speech.transcript(utterance, self._alphabet)
        speech.refuse_mismatch(replace(utterance, text=said), wave, is_cut_off)
        counts = [1]
        for compared in (jiwer.process_characters(said, heard), jiwer.process_words(said, heard)):
            wrong = compared.substitutions + compared.deletions
            counts += [wrong + compared.insertions, wrong + compared.hits]
        for key in (("total", ""), ("speaker", utterance.speaker), ("accent", utterance.accent)):
            old = self._counts.setdefault(key, [0] * 5)
            old[:] = (before + more for before, more in zip(old, counts, strict=True))

    def rows(self) -> list[dict[str, str | int | float]]:
        """The total, then accents and speakers if there are several, most errors first; "" stands for unnamed ones.

        >>> rates = Tally()
        >>> rates.compare(speech.Utterance((), "One, two.", "anna"), "one too", np.ones(16_000))
        >>> rates.rows()
        [{'of': 'total', 'name': '', 'recordings': 1, 'cer': 0.14285714285714285, 'wer': 0.5}]
        """
        rows = [
            {"of": of, "name": name, "recordings": count, "cer": wrong_c / all_c, "wer": wrong_w / all_w}
            for (of, name), (count, wrong_c, all_c, wrong_w, all_w) in self._counts.items()
        ]
        many = {of for of in ("accent", "speaker") if sum(row["of"] == of and row["name"] != "" for row in rows) > 1}
        order = ("total", "accent", "speaker")
        kept = [row for row in rows if row["of"] == "total" or row["of"] in many]
        return sorted(kept, key=lambda row: (order.index(row["of"]), -float(row["cer"])))

    def to_dict(self, run: Path, took_s: float) -> dict[str, Any]:
        """The summary for programs."""
        return {
            "run": run.name,
            "recordings": self.done,
            "failed": self.failed,
            "not_compared": self.not_compared,
            "audio_s": round(self.audio_s, 3),
            "took_s": round(took_s, 3),
            "times_real_time": round(self.audio_s / took_s, 2),
            "provenance": "measured",
            "errors": self.rows(),
        }


def transcribe(
    recogniser: Recogniser,
    recordings: Iterable[Recording | UserError],
    *,
    by_file: bool = False,
    decoder: Decoder | None = None,
    on_more: Callable[[Recording, str], None] | None = None,
) -> Iterator[Transcribed | UserError]:
    """Transcribe each recording, or yield the error of those that cannot be decoded.

    Args:
        recordings: consecutive ones of one voice are normalised together, each lot with everything heard before it.
        by_file: normalise each recording alone.
        decoder: turns outputs into a text; None takes the likeliest path.
        on_more: hear in chunks, and call this with each piece of text when it is known.
    """
    lot: list[Decoded] = []
    voice, of = speech.Voice(recogniser.features_kind), ""

    def hear() -> Iterator[Transcribed]:
        """Hear the lot, which has one voice, and empty it."""
        spoken = [(recording, wave) for recording, wave, _ in lot if not speech.is_silent(wave)]
        waves = [wave for _, wave in spoken]
        if on_more is None:
            heard = iter(recogniser.hear(waves, voice))
        else:
            features = zip(spoken, recogniser.features(waves, voice), strict=True)
            heard = (recogniser.hear_in_chunks(each, partial(on_more, recording)) for (recording, _), each in features)
        nothing = Heard("", np.empty((0, len(recogniser.alphabet)), np.float32))
        for recording, wave, is_cut_off in lot:
            own = nothing if speech.is_silent(wave) else next(heard)
            text = own.text if decoder is None or own is nothing else decoder(own.log_probabilities)
            yield Transcribed(recording, text, own, wave, is_cut_off)
        lot.clear()

    for each in _decoded(recordings):
        if isinstance(each, UserError):
            yield each
            continue
        if by_file or each[0].voice != of:
            yield from hear()
            voice, of = speech.Voice(recogniser.features_kind), each[0].voice
        lot.append(each)
        if len(lot) == LOT or sum(len(wave) for _, wave, _ in lot) > LOT_S * speech.SAMPLE_RATE_HZ:
            yield from hear()
    yield from hear()


def _decoded(recordings: Iterable[Recording | UserError]) -> Iterator[Decoded | UserError]:
    """Recordings with their waves, or why they have none, in order; the next lots are decoded in threads."""
    with ThreadPoolExecutor(DECODERS, "labkit-decoder") as pool:
        coming: deque[Future[list[Decoded | UserError]]] = deque()
        for lot in _lots(recordings):
            coming.append(pool.submit(_decode, lot))
            if len(coming) > DECODERS:
                yield from coming.popleft().result()
        while coming:
            yield from coming.popleft().result()


def _lots(recordings: Iterable[Recording | UserError]) -> Iterator[list[Recording | UserError]]:
    """Consecutive recordings, as many as are decoded at once; one of unstated length may be long, and is the last."""
    lot, audio_s = [], 0.0
    for recording in recordings:
        lot.append(recording)
        if not isinstance(recording, UserError):
            audio_s += sum(each.duration_s or LOT_S for each in recording.utterance.segments)
        if len(lot) == LOT or audio_s >= LOT_S:
            yield lot
            lot, audio_s = [], 0.0
    yield lot


def _decode(lot: list[Recording | UserError]) -> list[Decoded | UserError]:
    decoded = []
    with contextlib.closing(speech.Reader()) as file:
        for each in lot:
            try:
                decoded.append(each if isinstance(each, UserError) else (each, *speech.decode(each.utterance, file)))
            except UserError as error:
                decoded.append(error)
            except OSError as error:
                decoded.append(errors.refusal(error) or UserError(f"{error.filename}: {error.strerror}."))
    return decoded
