"""Read audio files as waveforms at 16 kHz, and compute features of them: 80 log-mel bins per frame, normalised for each
speaker.

Frames are 25 ms long and 10 ms apart. Frame t is centred on sample 160·t, with zeros beyond both ends, so that the
padding of a batch changes nothing: an utterance of n samples has 1 + n // 160 frames.

N utterances, n samples, T frames, F = 80 bins.
"""

import contextlib
import functools
import math
import os
import re
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile
import torch

from labkit import DataError
from labkit.data.speech.sources import Segment, Utterance

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
UNKNOWN_FRAMES = 2**62
"""libsndfile states at least this number of samples of a FLAC file without a length in its header"""
OTHERS = {
    "MP4 audio (M4A)": rb"....ftyp",
    "WebM or Matroska": rb"\x1aE\xdf\xa3",
    "AMR": rb"#!AMR",
    "Windows Media (WMA)": rb"0&\xb2u",
    "AAC": rb"\xff[\xf1\xf9]",
}
"""Kinds of audio that libsndfile does not read, with patterns of their first bytes"""
MPEG_RATES_HZ = 44_100, 48_000, 32_000
MPEG_KBITS = {
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
}
"""Rates of samples and of bits in the headers of an MP3's frames; 3 is MPEG-1, and 2 MPEG-2 (ISO 11172-3, 13818-3)"""
LONGEST_S = 600.0
"""Longest utterance accepted; a damaged header may state any length"""
TOLERANCE_S = 0.02
"""Seconds by which an audio file may be shorter than its manifest says, because manifests round"""
MEL_BINS = 80
HOP = SAMPLE_RATE_HZ // 100
WINDOW = SAMPLE_RATE_HZ // 40
FFT = 512
"""The power of two above the window; with 400 points the lowest of 80 mel bands would contain no frequency"""
FLOOR = 1e-6
"""Added to the energies: below the noise of 16-bit speech, so that digital silence does not become −∞"""
BATCH_SAMPLES = 10 * SAMPLE_RATE_HZ
"""Samples of a batch, including padding: ten seconds, which fit in a core's cache (benchmarks/speech_features.py)"""
VALLEY = 0.01
"""Share of an utterance's mean energy in a bin that is added to its energies. How far silence is below speech depends
on the room and the recorder, and a model trained on few of them takes it for speech (docs/performance.md)."""
MIN_DEVIATION = 0.1
"""Least deviation that a bin is divided by, so that an empty one (above 4 kHz in resampled 8 kHz audio) is not
amplified; of logarithms, and of energies as a share of their mean"""


def read_wave(path: Path | str) -> np.ndarray:
    """The waveform of an audio file (WAV, FLAC, Ogg Vorbis or Opus, MP3): float32 (samples,), mono, at 16 kHz.

    Raises:
        DataError: there is no such file, or its audio cannot be used.
    """
    if not Path(path).is_file():
        raise DataError("There is no such file.", fix="Check the path.", file=path)
    return decode(Utterance((Segment(Path(path)),), text="", speaker=""))[0]


class Reader:
    """The audio file that was read last, which stays open for further stretches of it. For one thread."""

    def __init__(self):
        self._path: Path | None = None
        self._at = 0
        """The next sample"""

    def open(self, path: Path) -> soundfile.SoundFile:
        """Open a file, unless it is open."""
        # an MP3's decoder gives other samples after a jump that is not its first
        if path != self._path or self.audio.format == "MP3":
            self.close()
            # as bytes, because soundfile cannot encode names that are not UTF-8 (Windows has none)
            self.audio = soundfile.SoundFile(path if os.name == "nt" else os.fsencode(path))  # ty: ignore[invalid-argument-type]
            self._path, self._at = path, 0
        return self.audio

    def read(self, start: int, count: int) -> np.ndarray:
        """Samples float32 (n, channels) from `start` on, up to the end.

        libsndfile cannot seek in GSM 6.10 and in G.721 to G.723, and in the last second of Ogg Vorbis it arrives 384
        samples late (1.2.2): such files are read up to there.
        """
        if self.audio.seekable() and self.audio.subtype != "VORBIS":
            self.audio.seek(start)
        else:
            if start < self._at and (path := self._path):
                self.close()
                self.open(path)
            for left in range(start - self._at, 0, -BATCH_SAMPLES):
                self.audio.read(min(left, BATCH_SAMPLES), dtype="float32")
        samples = self.audio.read(count, dtype="float32", always_2d=True)
        self._at = start + len(samples)
        return samples

    def close(self) -> None:
        if self._path:
            self.audio.close()
        self._path = None


def decode(utterance: Utterance, file: Reader | None = None) -> tuple[np.ndarray, bool]:
    """The waveform of an utterance, float32 (samples,) at 16 kHz, and whether one of its files is truncated.

    Its last file stays open in `file`, if there is one.

    Raises:
        DataError: its audio cannot be used.
    """
    if file is None:
        with contextlib.closing(Reader()) as file:
            return decode(utterance, file)
    pieces, is_cut_off = [], False
    for segment in utterance.segments:
        wave, ends_early = _read(segment, utterance, file)
        pieces += [wave, np.zeros(round(segment.silence_s * SAMPLE_RATE_HZ), np.float32)]
        is_cut_off = is_cut_off or ends_early
    return np.concatenate(pieces), is_cut_off


def _read(segment: Segment, utterance: Utterance, file: Reader) -> tuple[np.ndarray, bool]:
    """A stretch of a file, float32 (samples,) at 16 kHz, and whether the file is truncated."""
    path, field = segment.audio, utterance.audio_field
    if not path.exists():
        raise utterance.error(f"There is no file {path}.", "Restore it, or correct the path.", field)
    try:
        audio = file.open(path)
        rate_hz, stated_hz = audio.samplerate, utterance.sample_rate_hz
        if stated_hz not in (None, rate_hz):
            what = f"The stated sample rate is {stated_hz:,} Hz, but {path.name} has {rate_hz:,} Hz."
            fix = "Correct or remove sample_rate; rates other than 16,000 Hz are resampled."
            raise utterance.error(what, fix, "sample_rate")
        if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
            wrong = "too low for speech" if rate_hz < LOWEST_RATE_HZ else "higher than any sound card's"
            fix = f"Check its header, or record it again with {LOWEST_RATE_HZ:,} to {HIGHEST_RATE_HZ:,} Hz."
            raise utterance.error(f"{path.name} has a sample rate of {rate_hz:,} Hz, {wrong}.", fix, field)
        channels, first = _read_stretch(file, segment, utterance)
        is_cut_off = segment.duration_s is None and _is_cut_off(file.audio)
    except (soundfile.LibsndfileError, TypeError) as error:  # a TypeError if the name ends in .raw
        file.close()
        with path.open("rb") as opened:
            head = opened.read(16)
        why = getattr(error, "error_string", "it is raw audio, without a header")
        what = f"cannot be decoded: {why}" if head else "is empty (0 bytes)."
        fix = f"Convert it to a kind that is read (WAV, FLAC, Ogg Vorbis or Opus, MP3): {_conversion(path)}"
        if kind := next((name for name, known in OTHERS.items() if re.match(known, head, re.DOTALL)), ""):
            what = f"is {kind}, which libsndfile cannot decode."
        else:
            fix = f"Copy it again if it is truncated. {fix}"
        raise utterance.error(f"The audio file {path} {what}", fix, field) from None
    if not np.abs(channels).max() < LOUDEST:  # false for NaN as well
        fix = "Export the audio again, for example as 16-bit PCM."
        what = f"{path.name} has samples that are NaN, infinite or beyond {LOUDEST:g}."
        raise utterance.error(what, fix, field)
    wave = resample(mixed_down(channels), rate_hz)[first:]
    wanted = None if segment.duration_s is None else max(1, round(segment.duration_s * SAMPLE_RATE_HZ))
    return wave[:wanted], is_cut_off


def _conversion(path: Path) -> str:
    return f"ffmpeg -i {path.name} -ar {SAMPLE_RATE_HZ} {path.stem}-16k.flac"


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

    up, down = Fraction(SAMPLE_RATE_HZ, rate_hz).as_integer_ratio()
    return resample_poly(wave, up, down, window=_low_pass(max(up, down))).astype(np.float32)


@functools.lru_cache(maxsize=4)
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


@functools.lru_cache(maxsize=1)  # for all stretches of a file
def mpeg_samples(path: Path, changed_ns: int) -> int:
    """The samples of an MP3, by the headers of its frames; libsndfile estimates them from the size of the first one."""
    content = path.read_bytes()
    samples, tag = 0, sum(byte << 7 * place for place, byte in enumerate(content[9:5:-1]))
    at = 10 + tag if content[:3] == b"ID3" else 0
    while (at := content.find(b"\xff", at)) >= 0 and at + 4 <= len(content):
        head = int.from_bytes(content[at : at + 4], "big")
        version, bits, rate = head >> 19 & 3, head >> 12 & 15, head >> 10 & 3
        kbits = MPEG_KBITS[min(3, max(2, version))][bits]
        if head >> 21 != 0x7FF or version == 1 or head >> 17 & 3 != 1 or rate == 3 or not kbits:
            at += 1
            continue
        halves = {3: 0, 2: 1, 0: 2}[version]
        at += (144 >> (halves > 0)) * 1000 * kbits // (MPEG_RATES_HZ[rate] >> halves) + (head >> 9 & 1)
        samples += 1152 >> (halves > 0)
    return samples


def _read_stretch(reader: Reader, segment: Segment, utterance: Utterance) -> tuple[np.ndarray, int]:
    """The samples of one stretch, float32 (samples, channels), and the number of those at 16 kHz that precede it.

    Audio of another rate is read from a little before the stretch to a little after it, so that the resampled stretch
    equals that of the resampled file.
    """
    file, name = reader.audio, segment.audio.name
    rate_hz, length_s = file.samplerate, file.frames / file.samplerate
    start, field = round(segment.offset_s * rate_hz), utterance.audio_field
    if file.frames >= UNKNOWN_FRAMES:
        what = f"{name} does not state its length, as it was written into a pipe."
        raise utterance.error(what, f"Write it again: {_conversion(segment.audio)}", field)
    counted = mpeg_samples(segment.audio, segment.audio.stat().st_mtime_ns) if file.format == "MP3" else 0
    if counted > 1.1 * file.frames + rate_hz / 4:
        what = f"{name} is an MP3 of variable bit rate without a table of contents: of {counted / rate_hz:.1f} s"
        fix = f"Write it again: {_conversion(segment.audio)}"
        raise utterance.error(f"{what} only {length_s:.1f} can be read.", fix, field)
    if start >= file.frames > 0:
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
        fix = "Cut it (in a manifest: offset, duration), or replace the file if its header is damaged."
        raise utterance.error(what, fix, field)
    up, down = Fraction(SAMPLE_RATE_HZ, rate_hz).as_integer_ratio()
    margin = 0 if up == down else 10 * max(up, down) // up + 1  # the filter's half length
    begin = max(0, start - margin) // down * down  # a sample that both rates have
    wanted += start - begin + (0 if segment.duration_s is None else margin)
    first = round(segment.offset_s * SAMPLE_RATE_HZ) - begin * up // down
    samples = reader.read(begin, wanted)
    # MP3 files without a table of contents only estimate their length
    if len(samples) < min(wanted, file.frames - begin) and file.format != "MP3":
        what = f"{name} ends after {(begin + len(samples)) / rate_hz:.2f} s of {length_s:.2f} s."
        raise utterance.error(what, "The file is truncated or damaged: copy or download it again.", field)
    if not len(samples):
        raise utterance.error(f"{name} has no samples there.", "Correct the duration, or export it again.", field)
    return samples, first


KINDS = {"log-mel": MEL_BINS, "mel": MEL_BINS, "mfcc": 40}
"""Numbers per frame of each kind of features: logarithms of mel energies, the energies, and the first cosine terms of
the logarithms"""


def frame_count(samples: int) -> int:
    """The number of frames of an utterance with `samples` at 16 kHz."""
    return 1 + samples // HOP


def features_of(waves: list[np.ndarray], kind: str) -> list[np.ndarray]:
    """Features float32 (T, F), of one of `KINDS`, of utterances float32 (n,) at 16 kHz, for a `Voice` to normalise.

    Mel energies stay logarithms until then, because these fit in 16 bits however loud the sound is.
    """
    energies = [np.exp(each) for each in log_mel(waves)]
    logarithms = [np.log(each + VALLEY * each.mean(0)) for each in energies]
    if kind == "mfcc":
        from scipy.fft import dct

        return [dct(one, norm="ortho")[:, : KINDS[kind]] for one in logarithms]
    return logarithms


def log_mel(waves: list[np.ndarray]) -> list[np.ndarray]:
    """Log-mel features float32 (T, F) of utterances float32 (n,) at 16 kHz, computed in batches of similar length."""
    features: list[np.ndarray] = [np.empty(0)] * len(waves)
    by_length = sorted(range(len(waves)), key=lambda index: len(waves[index]), reverse=True)
    while by_length:
        # the first is the longest of the rest, so it determines how many fit
        fit = max(1, BATCH_SAMPLES // max(1, len(waves[by_length[0]])))
        chosen, by_length = by_length[:fit], by_length[fit:]
        for index, values in zip(chosen, log_mel_batch([waves[index] for index in chosen]), strict=True):
            features[index] = values
    return features


@torch.inference_mode()
@torch.autocast("cpu", enabled=False)  # a loader may run inside the autocast block of a model
def log_mel_batch(waves: list[np.ndarray]) -> list[np.ndarray]:
    """Log-mel features of utterances computed together, padded to the longest."""
    padded = torch.zeros(len(waves), max(len(wave) for wave in waves))  # (N, n)
    for row, wave in zip(padded, waves, strict=True):
        row[: len(wave)] = torch.from_numpy(wave)
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(padded, FFT, HOP, WINDOW, window, pad_mode="constant", return_complex=True)  # (N, FFT/2+1, T)
    power = spectrum.real.square() + spectrum.imag.square()  # abs() takes a root, which takes half as long as the FFT
    mel = power.transpose(1, 2) @ mel_filters()  # (N, T, F)
    mel = (mel + FLOOR).log_().numpy()
    return [values[: frame_count(len(wave))] for values, wave in zip(mel, waves, strict=True)]


@functools.cache
def mel_filters() -> torch.Tensor:
    """Weights float32 (FFT / 2 + 1, F) of each frequency in each bin: triangles of equal area on Slaney's mel scale.

    The scale is linear up to 1,000 Hz (15 mel), then logarithmic (Slaney, Auditory Toolbox, 1998). Equal, bit by bit,
    to those of `torchaudio.transforms.MelSpectrogram(mel_scale="slaney", norm="slaney")` 2.11.
    """
    log_step = math.log(6.4) / 27  # of a mel above 1,000 Hz
    highest_mel = 15 + math.log(SAMPLE_RATE_HZ / 2 / 1000) / log_step
    mels = torch.linspace(0, highest_mel, MEL_BINS + 2)
    edges = torch.where(mels < 15, mels * (200 / 3), 1000 * torch.exp(log_step * (mels - 15)))  # Hz, (F + 2,)
    distance = edges - torch.linspace(0, SAMPLE_RATE_HZ // 2, FFT // 2 + 1)[:, None]  # (FFT / 2 + 1, F + 2)
    width = edges.diff()
    rising, falling = -distance[:, :-2] / width[:-1], distance[:, 2:] / width[1:]
    return torch.minimum(rising, falling).clamp(min=0) * (2 / (edges[2:] - edges[:-2]))


class Voice:
    """Mean and deviation of each bin over everything that one speaker has said so far.

    Normalising by them removes loudness and the colour of voice, microphone and room, but keeps what distinguishes
    short words. Mean and variance over a single word of 0.3 s would mostly describe the word itself, so all utterances
    of a speaker are taken together.
    """

    def __init__(self, kind: str):
        """`kind` is that of the features, one of `KINDS`."""
        self._are_energies = kind == "mel"
        self._frames, self._sum, self._squares = 0, np.zeros(1), np.zeros(1)

    def listen(self, features: np.ndarray) -> None:
        """Include features (T, F)."""
        values = self._values(features)
        self._frames += len(values)
        self._sum = self._sum + values.sum(0)
        self._squares = self._squares + np.square(values).sum(0)

    def normalised(self, features: np.ndarray) -> np.ndarray:
        """Features float32 (T, F), with mean 0 and variance 1 per bin over the frames of this voice."""
        mean = self._sum / self._frames
        deviation = np.sqrt(np.maximum(self._squares / self._frames - mean**2, 0))
        deviation = deviation.clip(MIN_DEVIATION * (mean if self._are_energies else 1.0))
        return ((self._values(features) - mean) / deviation).astype(np.float32)

    def _values(self, features: np.ndarray) -> np.ndarray:
        values = features.astype(np.float64)
        return np.exp(values) if self._are_energies else values


def normalise_file(path: Path, keys: list[tuple], frames: list[int], kind: str) -> None:
    """Rewrite a file of features, normalised for each speaker over all of their frames.

    Splits are normalised separately, so that no information of the test split reaches training. The file has float16
    (sum of frames, F), utterance after utterance; `keys` has the split and speaker of each.
    """
    features = np.memmap(path, np.float16, "r+", shape=(sum(frames), KINDS[kind]))
    spans: dict[tuple, list[slice]] = defaultdict(list)
    for key, count, end in zip(keys, frames, np.cumsum(frames), strict=True):
        spans[key].append(slice(end - count, end))
    for own in spans.values():
        voice = Voice(kind)
        for span in own:
            voice.listen(features[span])
        for span in own:
            features[span] = voice.normalised(features[span])
    features.flush()
