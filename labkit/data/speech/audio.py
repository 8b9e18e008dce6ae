"""Audio files to waveforms: decoded by soundfile, checked, mixed down to one channel, resampled to 16 kHz."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile

from labkit.data.speech.utterance import Segment, Utterance
from labkit.errors import DataError

SAMPLE_RATE_HZ = 16_000
LOWEST_RATE_HZ = 8_000
"""Telephone speech; audio of a lower rate has lost its consonants, or its header is wrong."""
HIGHEST_RATE_HZ = 768_000
"""The highest that sound cards have; above it a file's header is wrong."""
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
    # The stated rate is checked while reading, so each rate that is stated needs a reading.
    stretches: dict[tuple[Path, float, float | None, int | None], np.ndarray] = {}
    for utterance in utterances:
        try:
            pieces = []
            for segment in utterance.segments:
                key = (segment.audio, segment.offset_s, segment.duration_s, utterance.sample_rate_hz)
                if key not in stretches:
                    stretches[key] = _read(segment, utterance, decoded)
                pieces += [stretches[key], np.zeros(round(segment.silence_s * SAMPLE_RATE_HZ), np.float32)]
            decoded.waves.append(np.concatenate(pieces))
        except DataError as error:
            decoded.waves.append(error)
    return decoded


def _read(segment: Segment, utterance: Utterance, decoded: Decoded) -> np.ndarray:
    """A stretch of a file: float32 (samples,) at 16 kHz."""
    path, audio_field = segment.audio, utterance.audio_field
    try:
        # as bytes, for soundfile encodes no name that is not UTF-8; Windows has none
        with soundfile.SoundFile(path if os.name == "nt" else os.fsencode(path)) as file:
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
    except (soundfile.LibsndfileError, TypeError) as error:  # a TypeError where the name ends in .raw
        why = getattr(error, "error_string", "it is raw audio, without a header")
        what = "is empty (0 bytes)." if path.stat().st_size == 0 else f"cannot be decoded: {why}"
        raise utterance.error(
            f"The audio file {path} {what}",
            fix="Replace it by one that plays (WAV, FLAC, Ogg Vorbis or Opus, MP3).",
            field=audio_field,
        ) from None
    if samples.shape[1] > 1:
        decoded.mixed_down.add(path)
    wave = samples.mean(1)
    if not np.isfinite(wave).all():
        raise utterance.error(
            f"{path.name} has samples that are not numbers (NaN or infinite).",
            fix="Export the audio again, for example as 16-bit PCM.",
            field=audio_field,
        )
    if rate_hz != SAMPLE_RATE_HZ:
        from scipy.signal import resample_poly  # half a second that most sets do not need

        decoded.resampled.add(path)
        common = math.gcd(rate_hz, SAMPLE_RATE_HZ)
        wave = resample_poly(wave, SAMPLE_RATE_HZ // common, rate_hz // common).astype(np.float32)
    return wave


def _read_stretch(file: soundfile.SoundFile, segment: Segment, utterance: Utterance) -> np.ndarray:
    """Samples of one stretch: float32 (samples, channels)."""
    name, rate_hz, length_s = segment.audio.name, file.samplerate, file.frames / file.samplerate
    start = round(segment.offset_s * rate_hz)
    if file.frames == 0:
        raise utterance.error(
            f"{name} has no samples.",
            fix="Record or export it again, or remove it.",
            field=utterance.audio_field,
        )
    if start >= file.frames:
        raise utterance.error(
            f"The utterance starts at {segment.offset_s:g} s, and {name} is {length_s:.2f} s long.",
            fix="Correct the offset (in seconds).",
            field="offset",
        )
    wanted = file.frames - start
    if segment.duration_s is not None:
        wanted = round(segment.duration_s * rate_hz)
        if start + wanted > file.frames + TOLERANCE_S * rate_hz:
            raise utterance.error(
                f"The utterance ends at {segment.offset_s + segment.duration_s:g} s, and {name} is {length_s:.2f} s "
                "long.",
                fix="Correct offset and duration (in seconds), or replace the audio if it was cut off.",
                field="duration",
            )
    file.seek(start)
    at_once, blocks = BLOCK_VALUES // file.channels, [np.zeros((0, file.channels), np.float32)]
    for begin in range(0, wanted, at_once):
        blocks.append(file.read(min(at_once, wanted - begin), dtype="float32", always_2d=True))
        if len(blocks[-1]) < at_once:
            break
    samples = np.concatenate(blocks)
    # MPEG files without a table of contents only estimate their length.
    if len(samples) < min(wanted, file.frames - start) and file.format != "MP3":
        raise utterance.error(
            f"{name} ends after {(start + len(samples)) / rate_hz:.2f} s of {length_s:.2f} s.",
            fix="The file is cut off or damaged: copy or download it again.",
            field=utterance.audio_field,
        )
    return samples
