"""Read audio files as waveforms: decoded by soundfile, checked, mixed down to one channel, resampled to 16 kHz."""

from __future__ import annotations

import math
import os
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile

from labkit import DataError
from labkit.data.speech.utterance import Segment, Utterance

SUFFIXES = {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".w64", ".caf"}
"""Suffixes of audio files in a folder; a file given by name is tried whatever its suffix"""
SAMPLE_RATE_HZ = 16_000
LOWEST_RATE_HZ = 8_000
"""The rate of telephone speech; audio of a lower rate has lost its consonants, or its header is wrong"""
HIGHEST_RATE_HZ = 768_000
"""The highest rate of sound cards; above it the header of a file is wrong"""
LOUDEST = 1e10
"""Largest sample accepted. Full scale is 1, or 2^31 in files with a sound card's numbers; the energies of larger ones
overflow."""
SILENT = 1e-4
"""A wave without a sample above this, three steps of 16 bits, is silent: a recogniser would make something up"""
CANCELLED = 0.1
"""Channels cancel each other out if the amplitude (RMS) of their mean is below this share of the loudest one's"""
CUT_PAGES = re.compile("Last page lacks an end-of-stream bit|Junk after the last page")
STATED_SIZE = re.compile(r"(?:data|SSND|Data Size)\s*: (\d+) \(should be (\d+)\)")
"""libsndfile's log about truncated Ogg streams, and about truncated WAV, AIFF and AU files (stated and actual bytes)"""
UNKNOWN_SIZE = 2**31 - 2**16
"""Sizes in a header from this on come from programs that wrote into a pipe and did not know the size"""
LONGEST_S = 600.0
"""Longest utterance accepted; a damaged header may state any length"""
TOLERANCE_S = 0.02
"""Seconds by which an audio file may be shorter than its manifest says, because manifests round"""


def read_wave(path: Path | str) -> np.ndarray:
    """The waveform of an audio file (WAV, FLAC, Ogg Vorbis or Opus, MP3): float32 (samples,), mono, at 16 kHz.

    Raises:
        DataError: there is no such file, or its audio cannot be used.
    """
    if not Path(path).is_file():
        raise DataError("There is no such file.", fix="Check the path.", file=path)
    return decode(Utterance((Segment(Path(path)),), text="", speaker=""))[0]


def decode(utterance: Utterance) -> tuple[np.ndarray, bool]:
    """The waveform of an utterance, float32 (samples,) at 16 kHz, and whether one of its files is truncated.

    Raises:
        DataError: its audio cannot be used.
    """
    pieces, is_cut_off = [], False
    for segment in utterance.segments:
        wave, ends_early = _read(segment, utterance)
        pieces += [wave, np.zeros(round(segment.silence_s * SAMPLE_RATE_HZ), np.float32)]
        is_cut_off = is_cut_off or ends_early
    return np.concatenate(pieces), is_cut_off


def _read(segment: Segment, utterance: Utterance) -> tuple[np.ndarray, bool]:
    """A stretch of a file, float32 (samples,) at 16 kHz, and whether the file is truncated."""
    path, field = segment.audio, utterance.audio_field
    if not path.exists():
        raise utterance.error(f"There is no file {path}.", "Restore it, or correct the path.", field)
    try:
        with _open(path) as file:
            rate_hz, stated_hz = file.samplerate, utterance.sample_rate_hz
            if stated_hz not in (None, rate_hz):
                what = f"The stated sample rate is {stated_hz:,} Hz, but {path.name} has {rate_hz:,} Hz."
                fix = "Correct or remove sample_rate; rates other than 16,000 Hz are resampled."
                raise utterance.error(what, fix, "sample_rate")
            if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
                wrong = "too low for speech" if rate_hz < LOWEST_RATE_HZ else "higher than any sound card's"
                fix = f"Check its header, or record it again with {LOWEST_RATE_HZ:,} to {HIGHEST_RATE_HZ:,} Hz."
                raise utterance.error(f"{path.name} has a sample rate of {rate_hz:,} Hz, {wrong}.", fix, field)
            channels = _read_stretch(file, segment, utterance)
            is_cut_off = segment.duration_s is None and _is_cut_off(file)
    except (soundfile.LibsndfileError, TypeError) as error:  # a TypeError if the name ends in .raw
        why = getattr(error, "error_string", "it is raw audio, without a header")
        what = "is empty (0 bytes)." if path.stat().st_size == 0 else f"cannot be decoded: {why}"
        fix = "Copy it again if it is truncated, or replace it by one that plays (WAV, FLAC, Ogg Vorbis or Opus, MP3)."
        raise utterance.error(f"The audio file {path} {what}", fix, field) from None
    if not np.abs(channels).max() < LOUDEST:  # false for NaN as well
        fix = "Export the audio again, for example as 16-bit PCM."
        what = f"{path.name} has samples that are NaN, infinite or beyond {LOUDEST:g}."
        raise utterance.error(what, fix, field)
    return resample(mixed_down(channels), rate_hz), is_cut_off


def mixed_down(channels: np.ndarray) -> np.ndarray:
    """One channel float32 (n,) of (n, channels): their mean, or the loudest if they cancel each other out."""
    mean, loudness = channels.mean(1), np.square(channels, dtype=np.float64).mean(0)
    if np.square(mean, dtype=np.float64).mean() < CANCELLED**2 * loudness.max():
        return channels[:, loudness.argmax()]
    return mean


def is_silent(wave: np.ndarray) -> bool:
    """Whether a wave (n,) is silent."""
    return float(np.abs(wave).max(initial=0)) < SILENT


def resample(wave: np.ndarray, rate_hz: int) -> np.ndarray:
    """Resample a waveform (n,) to 16 kHz: float32 (samples,)."""
    if rate_hz == SAMPLE_RATE_HZ:
        return wave
    from scipy.signal import resample_poly  # takes half a second, and most sets need no resampling

    up, down = (hz // math.gcd(rate_hz, SAMPLE_RATE_HZ) for hz in (SAMPLE_RATE_HZ, rate_hz))
    return resample_poly(wave, up, down, window=_low_pass(max(up, down))).astype(np.float32)


@lru_cache(maxsize=4)
def _low_pass(factor: int) -> np.ndarray:
    """The filter that `resample_poly` would otherwise design at each call, for the larger of its two factors."""
    from scipy.signal import firwin

    return firwin(20 * factor + 1, 1 / factor, window=("kaiser", 5.0)).astype(np.float32)


def _is_cut_off(file: soundfile.SoundFile) -> bool:
    """Whether a file is truncated.

    A truncated WAV, AIFF or AU file is shorter than its header says, and an Ogg stream (Opus, Vorbis) lacks its last
    page. libsndfile reads them without an error and mentions it only in its log. It refuses truncated FLAC. An MP3 file
    may not state its length.
    """
    log = file.extra_info
    sizes = (map(int, found) for found in STATED_SIZE.findall(log))
    return bool(CUT_PAGES.search(log)) or any(actual < stated < UNKNOWN_SIZE for stated, actual in sizes)


def _open(path: Path) -> soundfile.SoundFile:
    # as bytes, because soundfile cannot encode names that are not UTF-8 (Windows has none)
    return soundfile.SoundFile(path if os.name == "nt" else os.fsencode(path))


def _read_stretch(file: soundfile.SoundFile, segment: Segment, utterance: Utterance) -> np.ndarray:
    """The samples of one stretch: float32 (samples, channels)."""
    name, rate_hz, length_s = segment.audio.name, file.samplerate, file.frames / file.samplerate
    start, field = round(segment.offset_s * rate_hz), utterance.audio_field
    if file.frames == 0:
        raise utterance.error(f"{name} has no samples.", "Record or export it again, or remove it.", field)
    if start >= file.frames:
        what = f"The utterance starts at {segment.offset_s:g} s, but {name} is {length_s:.2f} s long."
        raise utterance.error(what, "Correct the offset (in seconds).", "offset")
    wanted = file.frames - start
    if segment.duration_s is not None:
        wanted, end_s = round(segment.duration_s * rate_hz), segment.offset_s + segment.duration_s
        if start + wanted > file.frames + TOLERANCE_S * rate_hz:
            what = f"The utterance ends at {end_s:g} s, but {name} is {length_s:.2f} s long."
            fix = "Correct offset and duration (in seconds), or replace the audio if it is truncated."
            raise utterance.error(what, fix, "duration")
    if wanted > LONGEST_S * rate_hz:
        what = f"The utterance lasts {wanted / rate_hz:,.0f} s, but at most {LONGEST_S:,.0f} s are allowed."
        raise utterance.error(
            what, "Cut it (in a manifest: offset, duration), or replace the file if its header is damaged.", field
        )
    file.seek(start)
    samples = file.read(wanted, dtype="float32", always_2d=True)
    # MP3 files without a table of contents only estimate their length
    if len(samples) < min(wanted, file.frames - start) and file.format != "MP3":
        what = f"{name} ends after {(start + len(samples)) / rate_hz:.2f} s of {length_s:.2f} s."
        raise utterance.error(what, "The file is truncated or damaged: copy or download it again.", field)
    if not len(samples):
        raise utterance.error(f"{name} has no samples there.", "Correct the duration, or replace the audio.", field)
    return samples
