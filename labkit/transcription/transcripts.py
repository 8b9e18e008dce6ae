"""From recordings to texts, lot by lot: what cannot be used is told of, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from labkit.data.speech import SAMPLE_RATE_HZ, SILENT, Voice, decode, is_silent
from labkit.errors import UserError, refusal
from labkit.transcription.recogniser import Heard, Recogniser
from labkit.transcription.recordings import Recording

LOT = 64
"""Recordings that are decoded before they are heard"""
LOT_S = 300.0
"""Seconds of audio from which a lot has enough"""

Decoder = Callable[[np.ndarray], str]
"""Log-probabilities (T', V) to a text"""


@dataclass(frozen=True)
class Transcribed:
    """What came of one recording."""

    recording: Recording
    text: str
    heard: Heard
    wave: np.ndarray
    """float32 (n,) at 16 kHz"""
    is_cut_off: bool
    """Whether the end of the file is missing"""

    @property
    def audio_s(self) -> float:
        return len(self.wave) / SAMPLE_RATE_HZ

    @property
    def note(self) -> str:
        """What a reader should know: silence, or that the file is cut off; mostly empty."""
        if is_silent(self.wave):
            return f"too quiet: no sample beyond {SILENT:g} of full scale" if self.wave.any() else "silence"
        return "the file is cut off, this is its beginning" if self.is_cut_off else ""


def transcribe(
    recogniser: Recogniser,
    recordings: Iterable[Recording | UserError],
    *,
    by_file: bool = False,
    decoder: Decoder | None = None,
    on_more: Callable[[Recording, str], None] | None = None,
) -> Iterator[Transcribed | UserError]:
    """What is said in each recording, or why that cannot be told.

    Args:
        recogniser: a trained one.
        recordings: those of one voice in a row are normalised together, each lot with all that was heard before it.
        by_file: normalise each recording alone, whoever speaks.
        decoder: writes a text; None writes the likeliest path.
        on_more: hear in chunks, and call this with each piece of text when it is known.
    """
    lot: list[tuple[Recording, np.ndarray, bool]] = []
    voice, of = recogniser.voice(), ""
    for recording in recordings:
        if isinstance(recording, UserError):
            yield recording
            continue
        if by_file or recording.voice != of:
            yield from _hear(recogniser, lot, voice, decoder, on_more)
            voice, of = recogniser.voice(), recording.voice
        try:
            lot.append((recording, *decode(recording.utterance)))
        except UserError as error:
            yield error
        except OSError as error:
            yield refusal(error) or UserError(f"{recording.name}: {error.strerror}.")
        if len(lot) == LOT or sum(len(wave) for _, wave, _ in lot) > LOT_S * SAMPLE_RATE_HZ:
            yield from _hear(recogniser, lot, voice, decoder, on_more)
    yield from _hear(recogniser, lot, voice, decoder, on_more)


def _hear(
    recogniser: Recogniser,
    lot: list[tuple[Recording, np.ndarray, bool]],
    voice: Voice,
    decoder: Decoder | None,
    on_more: Callable[[Recording, str], None] | None,
) -> Iterator[Transcribed]:
    """Hear a lot of one voice, and empty it."""
    spoken = [(recording, wave) for recording, wave, _ in lot if not is_silent(wave)]
    waves = [wave for _, wave in spoken]
    if on_more is None:
        heard = iter(recogniser.hear(waves, voice))
    else:
        features = zip(spoken, recogniser.features(waves, voice), strict=True)
        heard = (recogniser.hear_in_chunks(each, partial(on_more, recording)) for (recording, _), each in features)
    for recording, wave, is_cut_off in lot:
        if is_silent(wave):
            nothing = Heard("", np.empty((0, len(recogniser.alphabet)), np.float32))
            yield Transcribed(recording, "", nothing, wave, is_cut_off)
            continue
        own = next(heard)
        text = own.text if decoder is None else decoder(own.log_probabilities)
        yield Transcribed(recording, text, own, wave, is_cut_off)
    lot.clear()
