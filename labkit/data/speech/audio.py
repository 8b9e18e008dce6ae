"""Audio files to waveforms: decoded by soundfile, checked, mixed down to one channel, resampled to 16 kHz."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile
import torch

from labkit.data.speech.utterance import Segment, Utterance
from labkit.data.torchaudio_cpu import import_torchaudio
from labkit.errors import DataError

SAMPLE_RATE_HZ = 16_000
LOWEST_RATE_HZ = 8_000
"""Telephone speech; audio of a lower rate has lost its consonants, or its header is wrong."""
HIGHEST_RATE_HZ = 768_000
"""The highest that sound cards have; above it a file's header is wrong."""
KERNEL_VALUES = 2**22
"""The most values that a resampling kernel may have, of 8 bytes while it is made and several times over."""
BLOCK_VALUES = 2**24
"""Samples decoded at once, of all channels together: a damaged header may promise any number."""
TOLERANCE_S = 0.02
"""How much shorter than a manifest says an audio file may be: manifests round."""


@dataclass
class Decoded:
    """The waveforms of some utterances, and what had to be done to them."""

    waves: list[np.ndarray | DataError] = field(default_factory=list)
    """float32 (samples,) at 16 kHz for each utterance, or why it has none."""
    mixed_down: set[Path] = field(default_factory=set)
    """Files with more than one channel."""
    resampled: set[Path] = field(default_factory=set)
    """Files with another rate than 16 kHz."""


def decode(utterances: list[Utterance]) -> Decoded:
    """Read the audio of utterances; a stretch that several of them use is decoded once."""
    decoded = Decoded()
    with _Reader(decoded) as reader:
        for utterance in utterances:
            try:
                decoded.waves.append(_wave(utterance, reader))
            except DataError as error:
                decoded.waves.append(error)
    return decoded


def _wave(utterance: Utterance, reader: _Reader) -> np.ndarray:
    pieces = []
    for segment in utterance.segments:
        pieces.append(reader.wave(segment, utterance))
        if segment.silence_s:
            pieces.append(np.zeros(round(segment.silence_s * SAMPLE_RATE_HZ), np.float32))
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class _Reader:
    """Reads stretches of files and remembers them; keeps the last file open, as neighbours often share it."""

    def __init__(self, decoded: Decoded):
        self._decoded = decoded
        self._waves: dict[tuple[Path, float, float | None, int | None], np.ndarray] = {}
        self._file: soundfile.SoundFile | None = None
        self._path: Path | None = None

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_) -> None:
        self._close()

    def wave(self, segment: Segment, utterance: Utterance) -> np.ndarray:
        # The stated rate is checked while reading, so each rate that is stated needs a reading.
        key = (segment.audio, segment.offset_s, segment.duration_s, utterance.sample_rate_hz)
        if key not in self._waves:
            self._waves[key] = self._read(segment, utterance)
        return self._waves[key]

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._path = None

    def _open(self, path: Path) -> soundfile.SoundFile:
        if path != self._path:
            self._close()
            # as bytes, for soundfile encodes no name that is not UTF-8; Windows has none
            self._file = soundfile.SoundFile(path if os.name == "nt" else os.fsencode(path))
            self._path = path
        return self._file

    def _read(self, segment: Segment, utterance: Utterance) -> np.ndarray:
        path, audio_field = segment.audio, utterance.audio_field
        with _named(path, utterance):
            file = self._open(path)
            rate_hz = file.samplerate
            if utterance.sample_rate_hz not in (None, rate_hz):
                raise utterance.error(
                    f"The sample rate is stated as {utterance.sample_rate_hz:,} Hz, and {path.name} has "
                    f"{rate_hz:,} Hz.",
                    fix="Correct or remove sample_rate; other rates than 16,000 Hz are resampled.",
                    field="sample_rate",
                )
            if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
                wrong = "too low for speech" if rate_hz < LOWEST_RATE_HZ else "more than any microphone's"
                raise utterance.error(
                    f"{path.name} has a sample rate of {rate_hz:,} Hz, {wrong}.",
                    fix=f"Check its header, or record it anew with {LOWEST_RATE_HZ:,} to {HIGHEST_RATE_HZ:,} Hz.",
                    field=audio_field,
                )
            samples = _read_stretch(file, segment, utterance)  # (samples, channels)
        if file.channels > 1:
            self._decoded.mixed_down.add(path)
        wave = samples.mean(1)
        if not np.isfinite(wave).all():
            raise utterance.error(
                f"{path.name} has samples that are not numbers (NaN or infinite).",
                fix="Export the audio again, for example as 16-bit PCM.",
                field=audio_field,
            )
        if rate_hz != SAMPLE_RATE_HZ:
            self._decoded.resampled.add(path)
            wave = _resampler(rate_hz)(torch.from_numpy(wave)).numpy()
        return wave


def _read_stretch(file: soundfile.SoundFile, segment: Segment, utterance: Utterance) -> np.ndarray:
    """Samples of one stretch: float32 (samples, channels)."""
    rate_hz, length_s = file.samplerate, file.frames / file.samplerate
    start = round(segment.offset_s * rate_hz)
    if file.frames == 0:
        raise utterance.error(
            f"{segment.audio.name} has no samples.",
            fix="Record or export it again, or remove it.",
            field=utterance.audio_field,
        )
    if start >= file.frames:
        raise utterance.error(
            f"The utterance starts at {segment.offset_s:g} s, and {segment.audio.name} is {length_s:.2f} s long.",
            fix="Correct the offset (in seconds).",
            field="offset",
        )
    wanted = file.frames - start
    if segment.duration_s is not None:
        wanted = round(segment.duration_s * rate_hz)
        if start + wanted > file.frames + TOLERANCE_S * rate_hz:
            raise utterance.error(
                f"The utterance ends at {segment.offset_s + segment.duration_s:g} s, and {segment.audio.name} is "
                f"{length_s:.2f} s long.",
                fix="Correct offset and duration (in seconds), or replace the audio if it was cut off.",
                field="duration",
            )
    file.seek(start)
    at_once, blocks = BLOCK_VALUES // file.channels, []
    for begin in range(0, wanted, at_once):
        blocks.append(file.read(min(at_once, wanted - begin), dtype="float32", always_2d=True))
        if len(blocks[-1]) < at_once:
            break
    samples = np.concatenate(blocks) if blocks else np.zeros((0, file.channels), np.float32)
    # MPEG files without a table of contents only estimate their length.
    if len(samples) < min(wanted, file.frames - start) and file.format != "MP3":
        raise utterance.error(
            f"{segment.audio.name} ends after {(start + len(samples)) / rate_hz:.2f} s of {length_s:.2f} s.",
            fix="The file is cut off or damaged: copy or download it again.",
            field=utterance.audio_field,
        )
    return samples


@contextmanager
def _named(path: Path, utterance: Utterance) -> Iterator[None]:
    """Turn soundfile's error into one that says which utterance it is about."""
    try:
        yield
    except (soundfile.LibsndfileError, TypeError) as error:  # a TypeError where the name ends in .raw
        why = getattr(error, "error_string", "it is raw audio, without a header")
        what = "is empty (0 bytes)." if path.stat().st_size == 0 else f"cannot be decoded: {why}"
        raise utterance.error(
            f"The audio file {path} {what}",
            fix="Replace it by one that plays (WAV, FLAC, Ogg Vorbis or Opus, MP3).",
            field=utterance.audio_field,
        ) from None


@functools.lru_cache(8)
def _resampler(rate_hz: int) -> torch.nn.Module:
    """torchaudio's transform of waves (..., n) at that rate to 16 kHz, or nearly (see `ratio`)."""
    import_torchaudio()
    from torchaudio.transforms import Resample

    used = ratio(rate_hz)
    return Resample(used.numerator, used.denominator)


def ratio(rate_hz: int) -> Fraction:
    """Samples read for each sample at 16 kHz, exactly or within 0.04 %: that much too fast or slow is the speech then.

    torchaudio's kernel has about numerator times denominator values: 700 million at 44,101 Hz. Let r be the rate over
    16 kHz; with denominators up to N = sqrt(KERNEL_VALUES / r) there is a fraction within 1 / (2 N) of it, which is
    1 / (2 sqrt(r KERNEL_VALUES)) of r itself: at most 0.035 %, at 8 kHz.
    """
    exact = Fraction(rate_hz, SAMPLE_RATE_HZ)
    return exact.limit_denominator(math.isqrt(int(KERNEL_VALUES / exact)))
